//go:build !linux && !darwin

package cli

import "os"

// terminal: elsewhere there is no job control to take part in.
type terminal struct{}

func openTerminal() *terminal { return nil }

func (*terminal) restore() {}

func (*terminal) close() {}

func sendFence(chan os.Signal) bool { return false }

func isFence(os.Signal) bool { return false }
