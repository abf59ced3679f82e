package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// startTimeout is what a server may take until it listens, on a busy machine.
const startTimeout = 30 * time.Second

// process is a server that listens.
type process struct {
	cmd    *exec.Cmd
	url    string
	exited chan struct{} // closed when it has ended
}

// launch starts cmd with its stderr in a file.
func launch(cmd *exec.Cmd, log string) (*process, error) {
	if err := os.MkdirAll(filepath.Dir(log), 0o755); err != nil {
		return nil, err
	}
	f, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer f.Close() // the child has its own
	cmd.Stderr = f
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &process{cmd: cmd, exited: make(chan struct{})}, nil
}

// wait reaps the process; it is called once, when nothing reads from it.
func (p *process) wait() {
	_ = p.cmd.Wait() // how it ended says nothing about the checks
	close(p.exited)
}

// end asks the process to go, waits, and kills it if it does not.
func (p *process) end() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(startTimeout):
		_ = p.cmd.Process.Kill()
		<-p.exited
	}
}

// httpServer is the command of a peer that serves HTTP on an address.
func (k *kit) httpServer(who peer, host, port string) *exec.Cmd {
	if who == reference {
		cmd := exec.Command(k.node, k.reference, "streamableHttp")
		cmd.Env = append(os.Environ(), "PORT="+port)
		return cmd
	}
	return exec.Command(k.server, "-http="+net.JoinHostPort(host, port), fmt.Sprintf("-stateless=%t", who == goStateless))
}

// stdioServer is the same peer over stdio, as Belay's configuration has it.
func (k *kit) stdioServer(who peer) map[string]any {
	if who == reference {
		return map[string]any{"command": k.node, "args": []string{k.reference, "stdio"}}
	}
	return map[string]any{"command": k.server}
}

// startServer starts a peer on a free port.
func (h *harness) startServer(who peer, dir string) (*process, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	cmd := h.kit.httpServer(who, host, port)
	p, err := launch(cmd, filepath.Join(dir, "server.log"))
	if err != nil {
		return nil, fmt.Errorf("start the peer: %w", err)
	}
	go p.wait()
	p.url = localURL(address) + "/mcp"
	for deadline := time.Now().Add(startTimeout); ; time.Sleep(10 * time.Millisecond) {
		c, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			return p, c.Close()
		}
		select {
		case <-p.exited:
			return nil, fmt.Errorf("the peer ended at once: %v", p.cmd.ProcessState)
		default:
		}
		if time.Now().After(deadline) {
			p.end()
			return nil, fmt.Errorf("the peer does not listen: %w", err)
		}
	}
}

// peerName is the name of the one server that Belay is configured with.
const peerName = "peer"

// startBelay runs `belay serve` in front of one server, on a free port.
func startBelay(belay string, upstream map[string]any, dir string) (*process, error) {
	conf, err := json.Marshal(map[string]any{"servers": map[string]any{peerName: upstream}}) // JSON is YAML
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "belay.yaml")
	if err := os.WriteFile(file, conf, 0o644); err != nil {
		return nil, err
	}
	cmd := exec.Command(belay, "serve", "--config", file, "--listen", "127.0.0.1:0", "--json") //nolint:gosec // our own binary
	cmd.Env = append(os.Environ(), "BELAY_RUNTIME_DIR="+filepath.Join(dir, "run"), "BELAY_STATE_DIR="+filepath.Join(dir, "state"))
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p, err := launch(cmd, filepath.Join(dir, "belay.log"))
	if err != nil {
		return nil, fmt.Errorf("start belay serve: %w", err)
	}
	type answer struct {
		line []byte
		err  error
	}
	first := make(chan answer, 1)
	go func() {
		line, err := bufio.NewReader(out).ReadBytes('\n')
		first <- answer{line, err}
		p.wait()
	}()
	var served struct {
		URL string `json:"url"`
	}
	select {
	case a := <-first:
		if err = a.err; err == nil {
			err = json.Unmarshal(a.line, &served)
		}
	case <-time.After(startTimeout):
		err = errors.New("it does not say what it serves")
	}
	if err != nil {
		p.end()
		log, _ := os.ReadFile(filepath.Join(dir, "belay.log"))
		return nil, fmt.Errorf("belay serve: %w: %s", err, log)
	}
	p.url = localURL(served.URL) + "/mcp/" + peerName
	return p, nil
}

// localURL names a local address or URL in the way that the suite wants for its
// checks of foreign hosts.
func localURL(address string) string {
	return "http://localhost" + address[strings.LastIndexByte(address, ':'):]
}
