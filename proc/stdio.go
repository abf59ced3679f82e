package proc

import (
	"fmt"
	"os"
	"strings"
	"sync/atomic"
)

// treeSeq makes default markers unique in this process.
var treeSeq atomic.Int64

// markerOf returns the environment entry that marks the leader.
func markerOf(cfg *Config) (string, error) {
	if cfg.Marker == "" {
		self := selfID()
		return fmt.Sprintf("BELAY_TREE=%d-%d-%d", self.PID, self.Born/bornUnit, treeSeq.Add(1)), nil
	}
	if name, _, ok := strings.Cut(cfg.Marker, "="); !ok || name == "" {
		return "", fmt.Errorf("%w: marker %q is not name=value", ErrStart, cfg.Marker)
	}
	return cfg.Marker, nil
}

// environment returns the leader's environment, the marker included.
func environment(cfg *Config, marker string) []string {
	env := cfg.Env
	if env == nil {
		env = os.Environ()
	}
	name, _, _ := strings.Cut(marker, "=")
	return withEnv(env, name, marker)
}

// checkDir says early, and in words, what is wrong with a working directory.
func checkDir(dir string) error {
	if dir == "" {
		return nil
	}
	st, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("%w: working directory: %w; create it or name another", ErrStart, err)
	}
	if !st.IsDir() {
		return fmt.Errorf("%w: working directory %q is not a directory", ErrStart, dir)
	}
	return nil
}

// checkNUL refuses what no operating system can pass on.
func checkNUL(lists ...[]string) error {
	for _, list := range lists {
		for _, s := range list {
			if strings.Contains(s, "\x00") {
				return fmt.Errorf("%w: %q contains a NUL byte", ErrStart, s)
			}
		}
	}
	return nil
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
