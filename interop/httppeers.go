package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/belayhq/belay/internal/faketool"
)

// httpClient is one client that speaks Streamable HTTP.
type httpClient struct {
	name   string
	argv   []string // the configuration is appended
	mode   string   // legacy, auto; "" = the SDK's default
	silent bool     // it gives a call up without telling anybody
	// resumes is how often it asks by GET for the rest of a stream that ended
	// without an answer although it is told 405; 0 means once.
	resumes int
}

// httpPeer is one server: remote over HTTP, or Belay's own child on stdio.
type httpPeer struct {
	name  string
	stdio bool
	deaf  bool // its long tool does not look at any signal
	argv  func(witness string) []string
	tool  string
	args  map[string]any
	brief map[string]any // arguments of a call that ends by itself after some seconds
	key   string         // of the tool in the witness
}

// httpClients are the clients whose packages are there, by their short names.
func (h *harness) httpClients() map[string]httpClient {
	self := executable()
	list := map[string]httpClient{
		"go":      {name: "Go", argv: []string{self, goClientMarker}, mode: "legacy"},
		"go 2026": {name: "Go, 2026", argv: []string{self, goClientMarker}},
	}
	if dir := h.peers.node; dir != "" {
		v1, v2 := []string{"node", filepath.Join(dir, "client-v1.mjs")}, []string{"node", filepath.Join(dir, "client-v2.mjs")}
		list["ts1"] = httpClient{name: "TypeScript v1", argv: v1}
		list["ts2"] = httpClient{name: "TypeScript v2", argv: v2, mode: "legacy"}
		list["ts2 2026"] = httpClient{name: "TypeScript v2, auto", argv: v2, mode: "auto"}
	}
	for _, v := range []string{"v1", "v2"} {
		if h.peers.python[v] == "" {
			continue
		}
		argv := h.python(v, "client.py")
		if v == "v1" {
			list["py1"] = httpClient{name: "Python v1", argv: argv, silent: true}
			continue
		}
		// Its own bound of attempts is two, whatever it is told.
		list["py2"] = httpClient{name: "Python v2", argv: argv, mode: "legacy", resumes: 2}
		list["py2 2026"] = httpClient{name: "Python v2, auto", argv: argv, mode: "auto"}
	}
	return list
}

// httpPeers are the servers whose packages are there, by their short names.
func (h *harness) httpPeers() map[string]httpPeer {
	self := executable()
	list := map[string]httpPeer{}
	// tick is a server of ours on an SDK, its tool one that listens, or is deaf.
	tick := func(short, name string, stdio bool, argv ...string) {
		p := httpPeer{
			name: name, stdio: stdio, key: "k", tool: "tick",
			args:  map[string]any{"key": "k", "n": 400, "ms": 50},
			brief: map[string]any{"key": "k", "n": 60, "ms": 50},
			argv: func(witness string) []string { // only Go's takes an argument after the witness
				if argv[len(argv)-1] == "stateless" {
					return append(append([]string{}, argv[:len(argv)-1]...), witness, "stateless")
				}
				return append(append([]string{}, argv...), witness)
			},
		}
		list[short] = p
		p.name, p.tool, p.deaf = name+", deaf tool", "deaf", true
		list[short+" deaf"] = p
	}
	tick("go http", "Go, HTTP", false, self, goServerMarker)
	tick("go http 2026", "Go, HTTP stateless", false, self, goServerMarker, "stateless")
	tick("go stdio", "Go, stdio", true, self, goServerMarker)
	if dir := h.peers.node; dir != "" {
		reference := httpPeer{
			deaf: true, key: everythingKey, tool: "trigger-long-running-operation",
			args:  map[string]any{"duration": 20, "steps": 100},
			brief: map[string]any{"duration": 3, "steps": 15},
		}
		reference.name, reference.argv = "reference, HTTP", func(w string) []string { return h.everything(w, "streamableHttp") }
		list["ref http"] = reference
		reference.name, reference.stdio, reference.argv = "reference, stdio", true, func(w string) []string { return h.everything(w, "stdio") }
		list["ref stdio"] = reference
		tick("ts1 http", "TypeScript v1, HTTP", false, "node", filepath.Join(dir, "server-v1.mjs"))
		tick("ts1 stdio", "TypeScript v1, stdio", true, "node", filepath.Join(dir, "server-v1.mjs"))
		tick("ts2 http", "TypeScript v2, HTTP", false, "node", filepath.Join(dir, "server-v2.mjs"))
		tick("ts2 stdio", "TypeScript v2, stdio", true, "node", filepath.Join(dir, "server-v2.mjs"))
	}
	for _, v := range []string{"v1", "v2"} {
		if h.peers.python[v] == "" {
			continue
		}
		tick("py"+v[1:]+" http", "Python "+v+", HTTP", false, h.python(v, "server.py")...)
		tick("py"+v[1:]+" stdio", "Python "+v+", stdio", true, h.python(v, "server.py")...)
	}
	return list
}

// python is the command of one of the Python peers.
func (h *harness) python(version, script string) []string {
	interpreter := h.peers.python[version]
	return []string{interpreter, filepath.Join(filepath.Dir(filepath.Dir(filepath.Dir(interpreter))), script)}
}

func executable() string {
	self, err := os.Executable()
	if err != nil {
		return os.Args[0]
	}
	return self
}

// process is a server, or Belay, of one row.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it was waited for
}

// start starts a program in a process group of its own.
func (h *harness) start(argv, env []string, out io.Writer) (*process, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	ownGroup(cmd)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout = out
	cmd.WaitDelay = time.Second
	if h.verbose {
		cmd.Stderr = os.Stderr
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", filepath.Base(argv[0]), err)
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	go func() { // ends with the process
		defer close(p.done)
		_ = cmd.Wait() // how it exited says nothing here
	}()
	return p, nil
}

// stop ends it, by force when it does not go by itself in that time, and
// reports whether it went.
func (p *process) stop(within time.Duration) (went bool) {
	if within > 0 {
		_ = p.cmd.Process.Signal(os.Interrupt)
		select {
		case <-p.done:
			went = true
		case <-time.After(within):
		}
	}
	killGroup(p.cmd.Process.Pid)
	<-p.done
	return went
}

// remote starts a server over HTTP and waits until it listens.
func (h *harness) remote(p httpPeer, witness string) (*process, string, error) {
	port, err := faketool.FreePort()
	if err != nil {
		return nil, "", err
	}
	server, err := h.start(p.argv(witness), []string{"PORT=" + strconv.Itoa(port)}, nil)
	if err != nil {
		return nil, "", err
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(30 * time.Millisecond) {
		if conn, err := net.Dial("tcp", address); err == nil {
			_ = conn.Close()
			return server, "http://" + address + "/mcp", nil
		}
	}
	server.stop(0)
	return nil, "", fmt.Errorf("%s does not listen", p.name)
}
