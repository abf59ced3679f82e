package main

import (
	"embed"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/belayhq/belay/internal/pinned"
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
		argv := []string{"go", "install", peerModule + name + "@" + peerVersion}
		if err := pinned.Run("", []string{"GOBIN=" + bin, "GOFLAGS="}, argv); err != nil {
			return err
		}
	}
	return nil
}

// installSuite runs npm ci, without any package's scripts.
func (k *kit) installSuite(dir string) error {
	if err := pinned.Install(pins, "suite", dir, pinned.NPM()); err != nil {
		return err
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
	if path := pinned.Node(dir); path != "" {
		return path, nil
	}
	path, err := exec.LookPath("node")
	if err != nil {
		return "", fmt.Errorf("no package of Node for %s/%s: %w", runtime.GOOS, runtime.GOARCH, err)
	}
	return path, nil
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
