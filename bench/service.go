package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// service is a started program that serves over HTTP.
type service struct {
	url     string
	peer    *peer
	drained sync.WaitGroup // of what it prints after its address
}

func (s *service) pid() int { return s.peer.cmd.Process.Pid }

// stop asks the program to end, by its stdin and by SIGTERM, and kills it when
// it does not.
func (s *service) stop() {
	_ = s.peer.in.Close()
	_ = s.peer.cmd.Process.Signal(syscall.SIGTERM)
	guard := time.AfterFunc(5*time.Second, func() { _ = s.peer.cmd.Process.Kill() })
	defer guard.Stop()
	s.drained.Wait()
	_ = s.peer.close()
}

// serve starts a program. address finds out where it serves.
func (b *bench) serve(argv []string, address func(*peer) (string, error)) (*service, error) {
	p, err := startPeer(argv, b.env())
	if err != nil {
		return nil, err
	}
	s := &service{peer: p}
	s.url, err = address(p)
	s.drained.Go(func() { _, _ = io.Copy(io.Discard, p.out) })
	if err != nil {
		s.stop()
		return nil, fmt.Errorf("%s: %w; stderr: %s", filepath.Base(argv[0]), err, p.err)
	}
	return s, nil
}

// printed is the address of a peer of this binary: its first line.
func printed(p *peer) (string, error) {
	text, err := p.line()
	return strings.TrimSpace(string(text)), err
}

// announced is the address of the one server that belay serve --json names.
func announced(p *peer) (string, error) {
	text, err := p.line()
	if err != nil {
		return "", err
	}
	var said struct {
		Servers []struct {
			URL string `json:"url"`
		} `json:"servers"`
	}
	if err := json.Unmarshal(text, &said); err != nil || len(said.Servers) != 1 {
		return "", fmt.Errorf("it says %q: %w", text, err)
	}
	return said.Servers[0].URL, nil
}

// reachable waits until something listens at an address that was given to the
// program.
func reachable(host string) func(*peer) (string, error) {
	return func(*peer) (string, error) {
		var last error
		for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			conn, err := net.Dial("tcp", host)
			if err == nil {
				return "http://" + host + "/mcp", conn.Close()
			}
			last = err
		}
		return "", last
	}
}

// freePort is a port that nobody listened at a moment ago.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, errors.Join(err, l.Close())
}

// belayServe starts belay serve before one server, which is a command line, or
// a URL alone. settings are keys at the top of belay.yaml. What it keeps lies in a
// folder of its own.
func (b *bench) belayServe(server []string, url string, settings map[string]any) (*service, error) {
	definition := map[string]any{"url": url}
	if url == "" {
		definition = map[string]any{"command": server}
	}
	dir, err := os.MkdirTemp(b.dir, "serve-")
	if err != nil {
		return nil, err
	}
	all := map[string]any{
		"defaults": map[string]any{"enforce": "never"},
		"servers":  map[string]any{"peer": definition},
		"ledger":   map[string]any{"path": filepath.Join(dir, "ledger.db")},
		"latch":    map[string]any{"file": filepath.Join(dir, "latch.json")},
	}
	maps.Copy(all, settings)
	config, err := json.Marshal(all) // JSON is YAML, too
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "belay.yaml")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		return nil, err
	}
	return b.serve([]string{b.belay, "serve", "--config", file, "--listen", "127.0.0.1:0", "--json"}, announced)
}
