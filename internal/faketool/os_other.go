//go:build !unix

package faketool

import (
	"os"
	"os/exec"
)

func detach(*exec.Cmd) {}

var termSignals = []os.Signal{os.Interrupt}

func alive(pid int) bool {
	p, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	_ = p.Release()
	return true
}

func crash() { leave(exitCrash) }
