//go:build linux || darwin

package proc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

func isNotFound(err error) bool { return errors.Is(err, ErrNotFound) }

// checkExecutable says early, and in words, what execve would refuse.
func checkExecutable(name, file string) error {
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
	if cfg.Dir != "" {
		if st, err := os.Stat(cfg.Dir); err != nil {
			return nil, fmt.Errorf("%w: working directory: %w; create it or name another", ErrStart, err)
		} else if !st.IsDir() {
			return nil, fmt.Errorf("%w: working directory %q is not a directory", ErrStart, cfg.Dir)
		}
	}
	env := cfg.Env
	if env == nil {
		env = os.Environ()
	}
	name, _, ok := strings.Cut(marker, "=")
	if !ok || name == "" {
		return nil, fmt.Errorf("%w: marker %q is not name=value", ErrStart, marker)
	}
	env = withEnv(env, name, marker)
	args := append([]string{cfg.Path}, cfg.Args...)
	for _, s := range append(append([]string{cfg.Dir}, args...), env...) {
		if strings.Contains(s, "\x00") {
			return nil, fmt.Errorf("%w: %q contains a NUL byte", ErrStart, s)
		}
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

// withEnv returns env with the entry in place of any other of that name.
func withEnv(env []string, name, entry string) []string {
	out := make([]string, 0, len(env)+1)
	for _, e := range env {
		if !strings.HasPrefix(e, name+"=") {
			out = append(out, e)
		}
	}
	return append(out, entry)
}

// stdio holds both ends of the leader's input and output.
type stdio struct {
	child [3]*os.File // given to the guardian
	mine  [3]*os.File // P's ends of pipes that were made here; nil for inherited ones
}

func openStdio(cfg *Config) (*stdio, error) {
	io := &stdio{child: [3]*os.File{cfg.Stdin, cfg.Stdout, cfg.Stderr}}
	for i, f := range io.child {
		if f != nil {
			continue
		}
		r, w, err := os.Pipe()
		if err != nil {
			io.close()
			return nil, fmt.Errorf("%w: pipe for standard input or output: %w", ErrStart, err)
		}
		if i == 0 {
			io.child[i], io.mine[i] = r, w
		} else {
			io.child[i], io.mine[i] = w, r
		}
	}
	return io, nil
}

// closeChild closes the leader's ends that were made here: P must not hold
// them, or it would never read an end of file.
func (io *stdio) closeChild() {
	for i, f := range io.mine {
		if f != nil {
			io.child[i].Close()
		}
	}
}

func (io *stdio) close() {
	io.closeChild()
	for _, f := range io.mine {
		if f != nil {
			f.Close()
		}
	}
}
