package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"
)

// The peers' scripts, their pins and the lock file travel in the binary and
// are written into the cache, where the packages they import lie beside them.
//
//go:embed peers
var peerFiles embed.FS

// installTimeout bounds one installation: a registry that hangs is one that
// cannot be reached.
const installTimeout = 4 * time.Minute

// peers are the installed packages.
type peers struct {
	node    string            // folder with the scripts and node_modules; "" = not there
	python  map[string]string // "v1", "v2" -> interpreter of its environment
	missing []string          // what could not be installed, and why
}

// install brings every peer into the cache; what it cannot get it notes.
func (p *peers) install(cache string) {
	p.python = map[string]string{}
	if err := p.installNode(filepath.Join(cache, "node")); err != nil {
		p.miss("node packages", err)
	}
	for _, v := range []string{"v1", "v2"} {
		if err := p.installPython(filepath.Join(cache, "python-"+v), v); err != nil {
			p.miss("python package mcp "+v, err)
		}
	}
}

func (p *peers) miss(what string, err error) {
	text := fmt.Sprintf("%s: %v", what, err)
	p.missing = append(p.missing, text)
	fmt.Fprintf(os.Stderr, "\n!!! interop: NOT INSTALLED, its rows are not run: %s\n\n", text)
}

// reportMissing repeats at the end what was not run, where it is read.
func (p *peers) reportMissing() {
	if len(p.missing) == 0 {
		return
	}
	fmt.Println("\nNOT RUN, because the peers could not be installed (is a package registry reachable?):")
	for _, m := range p.missing {
		fmt.Println("  -", strings.ReplaceAll(m, "\n", "\n    "))
	}
}

// installNode runs npm ci for the pinned lock file, once for each content.
func (p *peers) installNode(dir string) error {
	stamp, err := unpack("peers/node", dir)
	if err != nil {
		return err
	}
	if !stamped(dir, stamp) {
		if err := command(dir, "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"); err != nil {
			return err
		}
		if err := setStamp(dir, stamp); err != nil {
			return err
		}
	}
	p.node = dir
	return nil
}

// installPython makes a virtual environment with one pinned SDK.
func (p *peers) installPython(dir, version string) error {
	stamp, err := unpack("peers/python", dir)
	if err != nil {
		return err
	}
	interpreter := filepath.Join(dir, "venv", "bin", "python")
	if !stamped(dir, stamp) {
		if err := command(dir, "python3", "-m", "venv", "venv"); err != nil {
			return err
		}
		if err := command(dir, interpreter, "-m", "pip", "install", "-q", "--disable-pip-version-check", "-r", version+".txt"); err != nil {
			return err
		}
		if err := setStamp(dir, stamp); err != nil {
			return err
		}
	}
	p.python[version] = interpreter
	return nil
}

// command runs one step of an installation.
func command(dir, name string, args ...string) error {
	ctx, stop := context.WithTimeoutCause(context.Background(), installTimeout,
		fmt.Errorf("no end within %v", installTimeout))
	defer stop()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.WaitDelay = time.Second
	fmt.Fprintf(os.Stderr, "interop: %s %s\n", filepath.Base(name), strings.Join(args, " "))
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	out = bytes.TrimSpace(out)
	return fmt.Errorf("%s %s: %w: %s", filepath.Base(name), args[0], err, out[max(0, len(out)-600):])
}

// unpack writes one folder of the embedded files and returns the digest of its
// pins; scripts may change without a new installation.
func unpack(from, to string) (string, error) {
	digest := sha256.New()
	err := fs.WalkDir(peerFiles, from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := peerFiles.ReadFile(path)
		if err != nil {
			return err
		}
		switch filepath.Ext(path) {
		case ".json", ".txt":
			digest.Write(data)
		}
		if err := os.MkdirAll(to, 0o755); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, filepath.Base(path)), data, 0o644)
	})
	return fmt.Sprintf("%x", digest.Sum(nil)), err
}

func stamped(dir, stamp string) bool {
	have, err := os.ReadFile(filepath.Join(dir, ".installed"))
	return err == nil && string(have) == stamp
}

func setStamp(dir, stamp string) error {
	return os.WriteFile(filepath.Join(dir, ".installed"), []byte(stamp), 0o644)
}

// versions names the pins for the head of the table.
func (p *peers) versions() []string {
	var list []string
	if data, err := peerFiles.ReadFile("peers/node/package.json"); err == nil {
		for line := range strings.Lines(string(data)) {
			if name, version, ok := strings.Cut(strings.TrimSpace(line), `": "`); ok && strings.HasPrefix(name, `"@`) {
				list = append(list, strings.Trim(name, `"`)+" "+strings.Trim(version, `",`))
			}
		}
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == "github.com/modelcontextprotocol/go-sdk" {
				list = append(list, m.Path+" "+m.Version)
			}
		}
	}
	for _, v := range []string{"v1", "v2"} {
		if data, err := peerFiles.ReadFile("peers/python/" + v + ".txt"); err == nil {
			list = append(list, "python "+strings.TrimSpace(strings.Replace(string(data), "==", " ", 1)))
		}
	}
	return list
}
