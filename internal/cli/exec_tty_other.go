//go:build !linux && !darwin

package cli

import "os"

// ctty: elsewhere there is no job control to take part in.
type ctty struct{}

func openTerminal() *ctty { return nil }

func (*ctty) restore() {}

func (*ctty) close() {}

func sendFence(chan os.Signal) bool { return false }

func isFence(os.Signal) bool { return false }
