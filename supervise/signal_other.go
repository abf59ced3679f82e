//go:build !unix

package supervise

import "errors"

// A console event reaches everybody on the console, Belay included; where
// there are no process groups nobody is told, and SIGTERM's place is taken by
// what package proc has.
func (t *Tree) interrupt() error {
	return errors.New("no way to interrupt one process tree on this system")
}
