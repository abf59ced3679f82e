//go:build !linux && !darwin

package cli

// terminal: elsewhere there is no job control to take part in.
type terminal struct{}

func openTerminal() *terminal { return nil }

func (*terminal) restore() {}

func (*terminal) close() {}
