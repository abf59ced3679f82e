//go:build linux || darwin

package proc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

func isNotFound(err error) bool { return errors.Is(err, ErrNotFound) }

// checkExecutable says early, and in words, what execve would refuse.
func checkExecutable(file string) error {
	st, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%w: %q does not exist; check the path", ErrNotFound, file)
	case err != nil:
		return fmt.Errorf("%w: %q: %v", ErrNotExecutable, file, err)
	case st.IsDir():
		return fmt.Errorf("%w: %q is a directory; name the program in it", ErrNotExecutable, file)
	case unix.Access(file, unix.X_OK) != nil:
		return fmt.Errorf("%w: no permission to execute %q; try chmod +x", ErrNotExecutable, file)
	}
	return nil
}

// startError puts the guardian's errno into words.
func startError(cfg *Config, f failed) error {
	errno := syscall.Errno(f.Errno)
	switch {
	case f.Step != stepExec:
		return fmt.Errorf("%w: %q: guardian refused the order (%s): %w", ErrStart, cfg.Path, f.Step, errno)
	case errno == syscall.ENOENT, errno == syscall.ENOTDIR:
		return fmt.Errorf("%w: %q exists, but its interpreter (#! line or loader) does not; install that", ErrNotFound, cfg.Path)
	case errno == syscall.ENOEXEC:
		return fmt.Errorf("%w: %q is neither a program for this machine nor a script with a #! line", ErrNotExecutable, cfg.Path)
	case errno == syscall.EACCES, errno == syscall.EPERM:
		return fmt.Errorf("%w: %q: %w; check its permissions and those of the file system", ErrNotExecutable, cfg.Path, errno)
	case errno == syscall.E2BIG:
		return fmt.Errorf("%w: %q: arguments and environment are too long; shorten them: %w", ErrStart, cfg.Path, errno)
	}
	return fmt.Errorf("%w: %q: %w", ErrStart, cfg.Path, errno)
}

// prepare checks the configuration and makes the order from it, but for the
// cgroup.
func prepare(cfg *Config, marker string) (*order, error) {
	if err := checkDir(cfg.Dir); err != nil {
		return nil, err
	}
	env := environment(cfg, marker)
	args := append([]string{cfg.Path}, cfg.Args...)
	if err := checkNUL([]string{cfg.Dir}, args, env); err != nil {
		return nil, err
	}
	file, err := resolve(cfg.Path, cfg.Dir, env)
	if err != nil {
		return nil, err
	}
	o := &order{Path: []byte(file), Args: joinNUL(args), Env: joinNUL(env), Dir: []byte(cfg.Dir), Spare: cfg.Spare}
	if cfg.Foreground {
		o.Group = unix.Getpgrp()
	}
	return o, nil
}
