//go:build !unix

package wholefile

// syncDir does nothing: no folder can be synced here.
func syncDir(string) error { return nil }
