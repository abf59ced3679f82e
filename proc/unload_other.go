//go:build !linux

package proc

// Unload does nothing here.
func Unload() {}
