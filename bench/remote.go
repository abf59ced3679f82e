package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// remote measures a stdio caller in front of a server over HTTP: belay wrap
// --url beside what others use for that.
func (b *bench) remote() error {
	if b.belay == "" {
		return errors.New("needs the belay binary")
	}
	server, err := b.serve(role(roleHTTP, "", eraLegacy), printed)
	if err != nil {
		return err
	}
	defer server.stop()
	ps := &peers[*peer]{open: map[string]*peer{}}
	defer ps.close()
	p, err := openPeer([]string{b.belay, "wrap", "--enforce", "never", "--url", server.url}, b.env())
	if err != nil {
		return fmt.Errorf("belay wrap --url: %w", err)
	}
	ps.add("belay", p)
	if b.installGateways() == "" {
		ps.said = append(ps.said, mcpRemote+": npm is not reachable")
	} else {
		argv := b.node(mcpRemote, server.url, "--allow-http", "--transport", "http-only", "--silent")
		env := append(b.env(), "MCP_REMOTE_CONFIG_DIR="+filepath.Join(b.dir, mcpRemote))
		if p, err = openPeer(argv, env); err == nil {
			ps.add(mcpRemote, p)
		} else {
			ps.drop(mcpRemote, err)
		}
	}
	const name = "stdio -> HTTP " + eraLegacy
	r, err := latencyOf(b, ps, name, payload{name: "100 B", tool: "echo", args: `{"text":"` + strings.Repeat("x", 70) + `"}`, calls: 500})
	if err != nil {
		return err
	}
	b.beside(r, -1)
	if r, err = throughputOf(b, ps, name, 2500); err != nil {
		return err
	}
	b.beside(r, 1)
	return nil
}

// beside judges a row that has nothing but other people's gateways to compare.
func (b *bench) beside(r *row, sign float64) {
	r.bar = "no gateway ahead"
	behind := r.ahead(sign)
	r.judge(!behind)
}
