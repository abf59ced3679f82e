package hook

import (
	"os"
	"os/exec"
)

func leaveSession(*exec.Cmd) {}

func dead(pid int) bool {
	p, err := os.FindProcess(pid)
	if err == nil {
		_ = p.Release()
	}
	return err != nil
}
