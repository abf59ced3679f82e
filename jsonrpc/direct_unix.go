//go:build unix && (!linux || 386 || s390x)

package jsonrpc

import "syscall"

func isSocket(uintptr) bool { return false }

func writeFD(fd uintptr, b []byte, _ bool) (int, error) { return syscall.Write(int(fd), b) }

func readFD(fd uintptr, b []byte, _ bool) (int, error) { return syscall.Read(int(fd), b) }
