//go:build linux || darwin

package proc

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
)

// The control socket carries one JSON object a line. P sends one order, then
// possibly an end; G answers whether the leader runs, later how it ended, and
// that nobody is left. Either side's death is the end of the stream.

// Descriptors of a guardian. Its own 0, 1 and 2 are /dev/null: nothing of it
// may hold the caller's pipes open or write into them.
const (
	fdControl = 3
	fdStdin   = 4
	fdStdout  = 5
	fdStderr  = 6
)

// orderMax bounds the order; the kernel's own bound for arguments and
// environment together is 2 MiB by default.
const orderMax = 8 << 20

// order is what P wants started. Paths, arguments and environment are bytes,
// not strings: JSON would damage those that are not UTF-8.
type order struct {
	Path  []byte      `json:"path"` // to execute, absolute or relative to Dir
	Args  []byte      `json:"args"` // argv, separated by NUL
	Env   []byte      `json:"env"`  // separated by NUL
	Dir   []byte      `json:"dir,omitempty"`
	Group int         `json:"group,omitempty"` // process group to join; 0: a new one
	Cg    string      `json:"cgroup,omitempty"`
	Spare []SpareRule `json:"spare,omitempty"`
}

// Steps at which a start can fail.
const (
	stepExec  = "exec"
	stepOrder = "order"
)

// notice is what G says. Exactly one field is set.
type notice struct {
	Started *started `json:"started,omitempty"`
	Failed  *failed  `json:"failed,omitempty"`
	Exit    *Exit    `json:"exit,omitempty"`
	Empty   bool     `json:"empty,omitempty"` // nobody is left, G leaves too
}

type started struct {
	PID    int   `json:"pid"`
	Born   Stamp `json:"born"`
	Cgroup bool  `json:"cgroup"` // it was born in the cgroup
}

type failed struct {
	Step  string `json:"step"`
	Errno int    `json:"errno"`
}

// farewell is P's only message after the order: leave without killing; who is
// left is spared.
type farewell struct {
	End bool `json:"end"`
}

func joinNUL(list []string) []byte { return []byte(strings.Join(list, "\x00")) }

func splitNUL(b []byte) []string {
	if len(b) == 0 {
		return nil
	}
	return strings.Split(string(b), "\x00")
}

func line(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		// Only our own plain structs get here.
		panic(err)
	}
	return append(b, '\n')
}

// resolve finds the file to execute as execvp would inside the leader: in the
// PATH of its environment, relative to its directory.
func resolve(name, dir string, env []string) (string, error) {
	if name == "" {
		return "", fmt.Errorf("%w: no command given", ErrNotFound)
	}
	if strings.Contains(name, "/") {
		return name, checkExecutable(inDir(dir, name))
	}
	path := ""
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			path = v
		}
	}
	var denied error
	for _, d := range filepath.SplitList(path) {
		if d == "" {
			d = "."
		}
		file := filepath.Join(d, name)
		if !strings.Contains(file, "/") {
			file = "./" + file
		}
		err := checkExecutable(inDir(dir, file))
		if err == nil {
			return file, nil
		}
		if !isNotFound(err) && denied == nil {
			denied = err
		}
	}
	if denied != nil {
		return "", denied
	}
	return "", fmt.Errorf("%w: %q is in no directory of PATH (%s); install it or give its full path", ErrNotFound, name, path)
}

func inDir(dir, file string) string {
	if filepath.IsAbs(file) || dir == "" {
		return file
	}
	return filepath.Join(dir, file)
}
