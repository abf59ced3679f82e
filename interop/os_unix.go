//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// ownGroup starts the command in a process group of its own.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// killGroup ends what is left of that group.
func killGroup(leader int) { _ = syscall.Kill(-leader, syscall.SIGKILL) }
