package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/belayhq/belay/internal/faketool"
)

// client is one real client against the reference server.
type client struct {
	name string
	argv []string // the configuration is appended
	mode string
}

// event is one way to end a call.
type event struct {
	name      string
	client    string // what the client does: abort, timeout, wait
	wrap      []string
	cancel    bool // `belay cancel` from another process
	needBelay bool
}

var events = []event{
	{name: "abort", client: "abort"},
	{name: "time-out", client: "timeout"},
	{name: "belay cancel", client: "wait", cancel: true, needBelay: true},
	// Long enough for the next call to wait for a fresh server on a busy machine:
	// its deadline counts from the moment it was made.
	{name: "deadline", client: "wait", wrap: []string{"--deadline", "5s"}, needBelay: true},
}

const (
	afterMS   = 600  // from the first progress to the abort or the cancel
	timeoutMS = 1500 // of a client that gives up
)

// everythingKey is the witness key of the reference server's progress.
const everythingKey = "everything"

// clients runs the matrix of clients against the reference server.
func (h *harness) clients(only string) {
	if h.peers.node == "" {
		return // the reference server is one of the node packages
	}
	node := func(script string) []string { return []string{"node", filepath.Join(h.peers.node, script)} }
	self := executable()
	list := []client{
		{"TypeScript v1 client", node("client-v1.mjs"), ""},
		{"TypeScript v2 client", node("client-v2.mjs"), "legacy"},
		{"TypeScript v2 client, auto", node("client-v2.mjs"), "auto"},
		{"Go client", []string{self, goClientMarker}, ""},
	}
	for _, v := range []string{"v1", "v2"} {
		if python := h.peers.python[v]; python != "" {
			script := filepath.Join(filepath.Dir(filepath.Dir(filepath.Dir(python))), "client.py")
			list = append(list, client{"Python " + v + " client", []string{python, script}, ""})
		}
	}
	rows := newBatch(h.jobs / 2)
	defer rows.addTo(&h.stdio)
	for _, c := range list {
		for _, e := range events {
			for _, belay := range []bool{false, true} {
				name := c.name + " / " + e.name
				if !strings.Contains(name, only) || (belay && h.belay == "") || (!belay && e.needBelay) {
					continue
				}
				r := &row{peer: c.name, event: e.name, belay: belay}
				r.noCancel = c.name == "Python v1 client" && e.client != "wait"
				rows.run(r, r, name, func() error { return h.clientRow(c, e, r) })
			}
		}
	}
}

// clientRow runs one session.
func (h *harness) clientRow(c client, e event, r *row) error {
	dir, err := os.MkdirTemp(h.dir, "row-")
	if err != nil {
		return err
	}
	w := faketool.NewWitness(filepath.Join(dir, "witness"))
	defer sweep(w)
	argv := h.wrapped(r.belay, h.everything(w.Path, "stdio"), e.wrap...)
	runtime := filepath.Join(dir, "run")
	config, err := json.Marshal(clientConfig{
		Command: argv[0], Args: argv[1:], Mode: c.mode,
		Env:  map[string]string{"BELAY_RUNTIME_DIR": runtime},
		Tool: "trigger-long-running-operation", Arguments: map[string]any{"duration": 20, "steps": 100},
		Event: e.client, AfterMS: afterMS, TimeoutMS: timeoutMS,
		NextTool: "echo", NextArguments: map[string]any{"message": "still here"},
	})
	if err != nil {
		return err
	}
	p, err := h.startClient(append(append([]string{}, c.argv...), string(config)))
	if err != nil {
		return err
	}
	defer p.close(r.belay)
	if _, err := p.step("progress", 20*time.Second); err != nil {
		return err
	}
	var stop time.Time
	verdict := ""
	if e.cancel {
		time.Sleep(afterMS * time.Millisecond) // as long as an aborting client works
		stop = time.Now()
		verdict = h.belayCancel(runtime, "15s")
	}
	settled, err := p.step("settled", 20*time.Second)
	if err != nil {
		return err
	}
	r.told = settled.How + verdict
	if stop.IsZero() {
		stop = settled.time() // the time-out and the deadline settle the call themselves
	}
	if e.client == "abort" {
		if s, err := p.step("stop", time.Second); err == nil {
			stop = s.time()
		}
	}
	r.next = p.callOK("next")
	r.observe(w, everythingKey, stop)
	if r.next == "ok" {
		_, _ = io.WriteString(p.in, "again\n") // a client that is gone says so below
		r.next = p.callOK("later")
	}
	h.logf("told %q, next %q, %d ticks", r.told, r.next, w.Count(everythingKey, "tick"))
	return nil
}

// callOK waits for the outcome of one more call: "ok", or what was wrong.
func (p *clientProcess) callOK(name string) string {
	s, err := p.step(name, 25*time.Second)
	switch {
	case err != nil:
		return err.Error()
	case !s.OK || !strings.Contains(s.How, "still here"):
		return s.How
	}
	return "ok"
}

// everything is the reference server with a witness inside; over HTTP it takes
// PORT from the environment.
func (h *harness) everything(witness, transport string) []string {
	hook := url.URL{Scheme: "file", Path: filepath.Join(h.peers.node, "witness.mjs"), RawQuery: url.Values{"file": {witness}}.Encode()}
	main := filepath.Join(h.peers.node, "node_modules/@modelcontextprotocol/server-everything/dist/index.js")
	return []string{"node", "--import", hook.String(), main, transport}
}

// wrapped puts Belay in front of a server.
func (h *harness) wrapped(belay bool, server []string, flags ...string) []string {
	if !belay {
		return server
	}
	argv := append([]string{h.belay, "wrap", "--enforce", "strict", "--grace", grace.String()}, flags...)
	return append(append(argv, "--"), server...)
}

// belayCancel stops everything in this row's runtime directory and returns
// what the command said, in short.
func (h *harness) belayCancel(runtime, wait string) string {
	cmd := exec.Command(h.belay, "cancel", "--all", "--reason", "interop", "--wait", wait)
	cmd.Env = append(os.Environ(), "BELAY_RUNTIME_DIR="+runtime)
	out, err := cmd.CombinedOutput()
	h.logf("belay cancel: %v\n%s", err, out)
	verdict := "no receipt"
	for _, word := range []string{"confirmed", "acknowledged", "signalled", "unreachable"} {
		if strings.Contains(strings.ReplaceAll(string(out), "unconfirmed", ""), word) {
			verdict = word
			break
		}
	}
	code := 0
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		return " [belay cancel: " + err.Error() + "]"
	}
	return fmt.Sprintf(" [receipt %s, exit %d]", verdict, code)
}

// clientProcess is a running client script.
type clientProcess struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	steps chan clientStep
	seen  []clientStep
}

// startClient starts a client in a process group of its own, so that closing
// it can end everything that it failed to end.
func (h *harness) startClient(argv []string) (*clientProcess, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	ownGroup(cmd)
	cmd.WaitDelay = time.Second
	if h.verbose {
		cmd.Stderr = os.Stderr
	}
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start client: %w", err)
	}
	p := &clientProcess{cmd: cmd, in: in, steps: make(chan clientStep, 16)}
	go func() { // ends with the client's output
		defer close(p.steps)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			var s clientStep
			if json.Unmarshal(lines.Bytes(), &s) == nil {
				h.logf("client: %s", lines.Text())
				p.steps <- s
			}
		}
	}()
	return p, nil
}

// step waits for the client to say that it reached an event.
func (p *clientProcess) step(name string, within time.Duration) (clientStep, error) {
	for _, s := range p.seen {
		if s.Event == name {
			return s, nil
		}
	}
	timer := time.NewTimer(within)
	defer timer.Stop()
	for {
		select {
		case s, ok := <-p.steps:
			if !ok {
				return clientStep{}, fmt.Errorf("the client ended before %q", name)
			}
			p.seen = append(p.seen, s)
			if s.Event == name {
				return s, nil
			}
		case <-timer.C:
			return clientStep{}, fmt.Errorf("the client did not reach %q within %v", name, within)
		}
	}
}

// close ends the client: in peace, as it closes its session, or at once, since
// a bare server may need many seconds to see that nobody is there any more.
// What is left of its group is ended by force.
func (p *clientProcess) close(peace bool) {
	_ = p.in.Close()
	ended := false
	if peace {
		_, err := p.step("closed", 8*time.Second)
		ended = err == nil
	}
	if !ended {
		killGroup(p.cmd.Process.Pid)
	}
	for range p.steps { // until its output ends
	}
	_ = p.cmd.Wait() // how it exited says nothing here
}
