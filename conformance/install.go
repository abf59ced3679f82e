package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// The pins of the npm packages travel in the binary.
//
//go:embed suite/package.json suite/package-lock.json
var pins embed.FS

// The official peers: commands of the Go SDK, in the version in which the
// figures of groups were taken.
const (
	peerVersion = "v1.8.0"
	peerModule  = "github.com/modelcontextprotocol/go-sdk/conformance/"
)

// installTimeout bounds one step of the installation: a registry that hangs is
// one that cannot be reached.
const installTimeout = 4 * time.Minute

// kit is what is installed: the suite with the Node it needs, and its peers.
type kit struct {
	suite          []string // the command that runs the suite
	server, client string   // binaries of the Go SDK's peers
	node           string
	reference      string // the reference server's script
}

// install brings everything into the cache, once for each content of the pins.
func (k *kit) install(cache string) error {
	if err := k.installSuite(filepath.Join(cache, "suite")); err != nil {
		return err
	}
	bin := filepath.Join(cache, "bin-"+peerVersion)
	for name, path := range map[string]*string{"everything-server": &k.server, "everything-client": &k.client} {
		*path = filepath.Join(bin, name)
		if runtime.GOOS == "windows" {
			*path += ".exe"
		}
		if _, err := os.Stat(*path); err == nil {
			continue
		}
		if err := step("", []string{"GOBIN=" + bin, "GOFLAGS="}, "go", "install", peerModule+name+"@"+peerVersion); err != nil {
			return err
		}
	}
	return nil
}

// installSuite runs npm ci, without any package's scripts.
func (k *kit) installSuite(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	digest := sha256.New()
	for _, name := range []string{"package.json", "package-lock.json"} {
		data, err := pins.ReadFile("suite/" + name)
		if err != nil {
			return err
		}
		digest.Write(data)
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return err
		}
	}
	stamp, stampFile := fmt.Sprintf("%x", digest.Sum(nil)), filepath.Join(dir, ".installed")
	if have, err := os.ReadFile(stampFile); err != nil || string(have) != stamp {
		if err := step(dir, nil, "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"); err != nil {
			return err
		}
		if err := os.WriteFile(stampFile, []byte(stamp), 0o644); err != nil {
			return err
		}
	}
	script := func(name string) string {
		return filepath.Join(dir, "node_modules", "@modelcontextprotocol", name, "dist", "index.js")
	}
	node, err := findNode(dir)
	k.node, k.suite, k.reference = node, []string{node, script("conformance")}, script("server-everything")
	return err
}

// findNode is the Node that was installed with the suite, or that of the
// machine where there is no package for it.
func findNode(dir string) (string, error) {
	cpu := map[string]string{"amd64": "x64"}[runtime.GOARCH]
	if cpu == "" {
		cpu = runtime.GOARCH
	}
	for _, name := range []string{"node-", "node-bin-"} {
		path := filepath.Join(dir, "node_modules", name+runtime.GOOS+"-"+cpu, "bin", "node")
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath("node")
	if err != nil {
		return "", fmt.Errorf("no package of Node for %s/%s: %w", runtime.GOOS, runtime.GOARCH, err)
	}
	return path, nil
}

// step runs one command of the installation.
func step(dir string, env []string, name string, args ...string) error {
	ctx, stop := context.WithTimeoutCause(context.Background(), installTimeout,
		fmt.Errorf("no end within %v", installTimeout))
	defer stop()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	cmd.WaitDelay = time.Second
	fmt.Fprintf(os.Stderr, "conformance: %s %s\n", name, strings.Join(args, " "))
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	out = bytes.TrimSpace(out)
	return fmt.Errorf("%s %s: %w: %s", name, args[0], errors.Join(err, context.Cause(ctx)), out[max(0, len(out)-600):])
}

// versions names the pins for the head of the page.
func versions() string {
	list := []string{"go-sdk conformance peers " + peerVersion}
	var file struct {
		Dependencies map[string]string `json:"dependencies"`
	}
	data, err := pins.ReadFile("suite/package.json")
	if err != nil || json.Unmarshal(data, &file) != nil {
		return "unknown"
	}
	for _, name := range slices.Sorted(maps.Keys(file.Dependencies)) {
		list = append(list, name+" "+file.Dependencies[name])
	}
	return strings.Join(list, ", ")
}
