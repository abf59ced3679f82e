//go:build !linux

package cli

// waitable changes nothing here.
func waitable(*Env) (both bool) { return false }
