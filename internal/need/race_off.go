//go:build !race

package need

// BuildFlags are the flags with which a test builds programs of this module: as
// it was built itself, so that all that they import is compiled but once, and
// the race detector watches them, too.
func BuildFlags() []string { return nil }
