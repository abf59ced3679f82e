//go:build unix

package supervise

import "syscall"

func (t *Tree) interrupt() error { return t.SignalGroup(syscall.SIGINT) }
