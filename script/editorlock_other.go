//go:build !(darwin || linux || freebsd || netbsd || openbsd || dragonfly)

package script

// lock does nothing here: what other workers change is only seen by the last look
// before a file is replaced.
func (e *Editor) lock() (unlock func(), err error) { return func() {}, nil }
