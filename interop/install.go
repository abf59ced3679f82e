package main

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	"github.com/belayhq/belay/internal/pinned"
)

// The peers' scripts, their pins and the lock file travel in the binary and
// are written into the cache, where the packages they import lie beside them.
//
//go:embed peers
var peerFiles embed.FS

// peers are the installed packages.
type peers struct {
	node    string            // folder with the scripts and node_modules; "" = not there
	python  map[string]string // "v1", "v2" -> interpreter of its environment
	acpNode string            // the Node of the agents
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

// installNode runs npm ci for the pinned lock file.
func (p *peers) installNode(dir string) error {
	if err := pinned.Install(peerFiles, "peers/node", dir, pinned.NPM()); err != nil {
		return err
	}
	p.node = dir
	return nil
}

// installPython makes a virtual environment with one pinned SDK.
func (p *peers) installPython(dir, version string) error {
	interpreter := filepath.Join(dir, "venv", "bin", "python")
	if err := pinned.Install(peerFiles, "peers/python", dir,
		[]string{"python3", "-m", "venv", "venv"},
		[]string{interpreter, "-m", "pip", "install", "-q", "--disable-pip-version-check", "-r", version + ".txt"},
	); err != nil {
		return err
	}
	p.python[version] = interpreter
	return nil
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
