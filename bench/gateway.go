package main

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/belayhq/belay/internal/pinned"
)

// The pins of other people's gateways travel in the binary.
//
//go:embed gateways/package.json gateways/package-lock.json
var gatewayPins embed.FS

// Other people's gateways, as their packages are called.
const (
	supergateway = "supergateway"
	mcpProxy     = "mcp-proxy"
	mcpRemote    = "mcp-remote"
)

// installGateways installs them once; where that cannot be done, the rows say
// so.
func (b *bench) installGateways() string {
	if b.gateways != "" || b.noGateways != nil {
		return b.gateways
	}
	root, err := moduleRoot()
	if err == nil {
		dir := filepath.Join(root, ".cache", "bench")
		if err = pinned.Install(gatewayPins, "gateways", dir, pinned.NPM()); err == nil {
			b.gateways = dir
		}
	}
	if b.noGateways = err; err != nil {
		fmt.Fprintf(os.Stderr, "bench: other gateways are not measured: %v\n", err)
	}
	return b.gateways
}

// node is the command line of a gateway's program.
func (b *bench) node(name string, args ...string) []string {
	return append([]string{"node", filepath.Join(b.gateways, "node_modules", ".bin", name)}, args...)
}

// gateway starts one of those that serve a stdio server over HTTP. Their logs
// are off, and nothing is kept that the figures do not ask for.
func (b *bench) gateway(name string, server []string) (*service, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	var argv []string
	switch name {
	case supergateway:
		argv = b.node(name, "--stdio", strings.Join(server, " "), "--outputTransport", "streamableHttp",
			"--stateful", "--port", port, "--logLevel", "none")
	case mcpProxy:
		argv = b.node(name, "--host", "127.0.0.1", "--port", port, "--server", "stream", "--no-eventStore", "--")
		argv = append(argv, server...)
	}
	return b.serve(argv, reachable("127.0.0.1:"+port))
}
