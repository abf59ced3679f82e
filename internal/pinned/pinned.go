// Package pinned installs other people's programs at pinned versions, for the
// commands that drive them: what a folder of pins asks for is installed once for
// each content of it.
package pinned

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// stepTimeout bounds one step: a registry that hangs is one that cannot be
// reached.
const stepTimeout = 4 * time.Minute

// stampFile names the pins that a folder was installed for.
const stampFile = ".installed"

// Install writes the files of one folder into dir, flat, and runs the steps
// there, each a command line, unless that was done for the same pins before.
// Pins are the files that end in .json or .txt; scripts beside them may change
// without a new installation.
func Install(files fs.FS, from, dir string, steps ...[]string) error {
	stamp, err := unpack(files, from, dir)
	if err != nil {
		return err
	}
	have, err := os.ReadFile(filepath.Join(dir, stampFile))
	if err == nil && string(have) == stamp {
		return nil
	}
	for _, argv := range steps {
		if err := Run(dir, nil, argv); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, stampFile), []byte(stamp), 0o644)
}

// NPM is the step that installs the packages of a lock file, without running
// any script of theirs.
func NPM() []string {
	return []string{"npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"}
}

// Node is the Node that an installation in dir has brought, "" if its pins hold
// none for this platform. The packages of Node for it are node-OS-CPU, and
// node-bin-OS-CPU where those are newer.
func Node(dir string) string {
	cpu := runtime.GOARCH
	if cpu == "amd64" {
		cpu = "x64"
	}
	for _, name := range []string{"node-", "node-bin-"} {
		path := filepath.Join(dir, "node_modules", name+runtime.GOOS+"-"+cpu, "bin", "node")
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return ""
}

// unpack writes the files and returns the digest of the pins among them.
func unpack(files fs.FS, from, to string) (string, error) {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return "", err
	}
	digest := sha256.New()
	err := fs.WalkDir(files, from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(files, path)
		if err != nil {
			return err
		}
		switch filepath.Ext(path) {
		case ".json", ".txt":
			digest.Write(data)
		}
		return os.WriteFile(filepath.Join(to, filepath.Base(path)), data, 0o644)
	})
	return fmt.Sprintf("%x", digest.Sum(nil)), err
}

// Run runs one step of an installation in dir, with more environment; what it
// says is quoted when it fails, or does not end in time.
func Run(dir string, env, argv []string) error {
	const quoted = 600
	ctx, stop := context.WithTimeoutCause(context.Background(), stepTimeout,
		fmt.Errorf("no end within %v", stepTimeout))
	defer stop()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	cmd.WaitDelay = time.Second
	fmt.Fprintf(os.Stderr, "installing: %s %s\n", filepath.Base(argv[0]), strings.Join(argv[1:], " "))
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	out = bytes.TrimSpace(out)
	return fmt.Errorf("%s %s: %w: %s", filepath.Base(argv[0]), argv[1], err, out[max(0, len(out)-quoted):])
}

// Locked is what a lock file of npm pins: the version of each package, by its
// place in the installation. It is an error if the file would not work with any
// registry, because it holds addresses, or does not pin a package by version and
// digest.
func Locked(lockFile []byte) (map[string]string, error) {
	if bytes.Contains(lockFile, []byte(`"resolved"`)) {
		return nil, errors.New("the lock file holds addresses of a registry; make it with omit-lockfile-registry-resolved")
	}
	var lock struct {
		Packages map[string]struct {
			Version   string `json:"version"`
			Integrity string `json:"integrity"`
		} `json:"packages"`
	}
	if err := json.Unmarshal(lockFile, &lock); err != nil {
		return nil, fmt.Errorf("the lock file: %w", err)
	}
	versions := make(map[string]string, len(lock.Packages))
	for name, p := range lock.Packages {
		if name != "" && (p.Version == "" || p.Integrity == "") {
			return nil, fmt.Errorf("the lock file: %s has no version or no digest", name)
		}
		versions[name] = p.Version
	}
	return versions, nil
}
