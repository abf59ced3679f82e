//go:build !386 && !s390x

package jsonrpc

import (
	"syscall"
	"unsafe"
)

// isSocket tells sockets, which have a flag for each call that keeps it from
// blocking: somebody who shares a socket may change its mode at any time.
func isSocket(fd uintptr) bool {
	_, err := syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_TYPE)
	return err == nil
}

// writeFD and readFD are system calls of which the scheduler is not told. They
// must not block.
func writeFD(fd uintptr, b []byte, socket bool) (int, error) {
	if socket {
		return result(syscall.RawSyscall6(syscall.SYS_SENDTO, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)),
			syscall.MSG_DONTWAIT|syscall.MSG_NOSIGNAL, 0, 0))
	}
	return result(syscall.RawSyscall(syscall.SYS_WRITE, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b))))
}

func readFD(fd uintptr, b []byte, socket bool) (int, error) {
	if socket {
		return result(syscall.RawSyscall6(syscall.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)),
			syscall.MSG_DONTWAIT, 0, 0))
	}
	return result(syscall.RawSyscall(syscall.SYS_READ, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b))))
}

func result(n, _ uintptr, errno syscall.Errno) (int, error) {
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
