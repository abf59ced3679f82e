package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/belayhq/belay/internal/faketool"
)

// The rows of the stop-ack extension (docs/stop-ack.md): the servers under
// examples/stop-ack, each on a real SDK. Bare, a raw client gets the ack; under
// Belay with --enforce never, where nobody is killed, only the ack can make a
// stop confirmed.

// ackServer is a server with the extension and the tools tick and deaf.
type ackServer struct {
	name   string
	argv   []string
	modern bool
	asks   bool // it answers stop-ack/await
}

// ackToken is the token of the raw client; it is used in one session each.
const ackToken = "interop-0123456789abcdef"

const (
	ackName  = "io.github.belayhq/stop-ack"
	ackTells = "notifications/stop-ack"
	ackAsk   = "stop-ack/await"
)

// ackServers lists what is installed.
func (h *harness) ackServers() ([]ackServer, error) {
	root, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	list := []ackServer{
		{"Go stop-ack", []string{self, goAckMarker}, false, true},
		{"Go stop-ack, 2026", []string{self, goAckMarker}, true, true},
	}
	if h.peers.node != "" {
		dir := filepath.Join(h.peers.node, "stop-ack") // below node_modules' folder
		_ = os.RemoveAll(dir)
		if err := os.CopyFS(dir, os.DirFS(filepath.Join(root, "examples", "stop-ack", "typescript"))); err != nil {
			return nil, err
		}
		list = append(list,
			ackServer{"TypeScript v1 stop-ack", []string{"node", filepath.Join(dir, "server-v1.mjs")}, false, true},
			ackServer{"TypeScript v2 stop-ack", []string{"node", filepath.Join(dir, "server-v2.mjs")}, false, true},
			ackServer{"TypeScript v2 stop-ack, 2026", []string{"node", filepath.Join(dir, "server-v2.mjs")}, true, true})
	}
	script := filepath.Join(root, "examples", "stop-ack", "python", "server.py")
	if p := h.peers.python["v1"]; p != "" {
		list = append(list, ackServer{"Python v1 stop-ack", []string{p, "-B", script}, false, false})
	}
	if p := h.peers.python["v2"]; p != "" {
		list = append(list,
			ackServer{"Python v2 stop-ack", []string{p, "-B", script}, false, true},
			ackServer{"Python v2 stop-ack, 2026", []string{p, "-B", script}, true, true})
	}
	return list, nil
}

func moduleRoot() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(out))), nil
}

// stopAcks adds the rows.
func (h *harness) stopAcks(only string) {
	list, err := h.ackServers()
	if err != nil {
		h.stdio.add(&row{peer: "stop-ack", problem: err.Error()})
		return
	}
	rows := newBatch(h.jobs / 2)
	defer rows.addTo(&h.stdio)
	for _, s := range list {
		for _, tool := range []string{"tick", "deaf"} {
			for _, belay := range []bool{false, true} {
				name := s.name + " / " + tool
				if !strings.Contains(name, only) || (belay && h.belay == "") {
					continue
				}
				r := &row{peer: s.name, event: map[string]string{"tick": "cancel, enforce never; the tool listens", "deaf": "cancel, enforce never; the tool is deaf"}[tool], belay: belay}
				rows.run(r, r, name, func() error { return h.ackRow(s, tool, r) })
			}
		}
	}
}

// ackRow runs one session: bare with the client's own token, under Belay
// without one.
func (h *harness) ackRow(s ackServer, tool string, r *row) error {
	dir, err := os.MkdirTemp(h.dir, "row-")
	if err != nil {
		return err
	}
	witness := filepath.Join(dir, "witness")
	env := []string{"BELAY_RUNTIME_DIR=" + filepath.Join(dir, "run"), "STOP_ACK_WITNESS=" + witness}
	argv := s.argv
	if r.belay {
		argv = append([]string{h.belay, "wrap", "--enforce", "never", "--"}, argv...)
	}
	opt := faketool.ClientOptions{Env: env}
	if !h.verbose {
		opt.Stderr = io.Discard
	}
	c, err := faketool.StartClient(argv, opt)
	if err != nil {
		return err
	}
	defer c.Close()
	c.Timeout = 20 * time.Second
	if err := (sdkServer{modern: s.modern}).open(c); err != nil {
		return err
	}
	if err := s.call(c, tool, !r.belay); err != nil {
		return err
	}
	if err := waitLines(witness, 4); err != nil {
		return err
	}
	stop := time.Now()
	if r.belay {
		r.told, err = h.confirmed(env)
	} else {
		r.told, err = s.acked(c, tool)
	}
	if err != nil {
		return err
	}
	atAck := lines(witness)
	r.stop, r.wentOn = stop, time.Since(stop)
	time.Sleep(200 * time.Millisecond)
	if now := lines(witness); now != atAck {
		return fmt.Errorf("%d steps came after the ack", now-atAck)
	}
	r.next = "ok"
	return nil
}

// call starts the tool: tick for far too long, deaf for a second and a half.
func (s ackServer) call(c *faketool.Client, tool string, withToken bool) error {
	n := map[string]int{"tick": 2000, "deaf": 30}[tool]
	var meta []string
	if s.modern {
		meta = append(meta, faketool.ModernMeta)
	}
	if withToken {
		meta = append(meta, fmt.Sprintf(`%q:{"token":%q}`, ackName, ackToken))
	}
	return c.Sendf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":{"n":%d,"ms":50},"_meta":{%s}}}`,
		tool, n, strings.Join(meta, ","))
}

// acked cancels as a client and gets the ack, by each of the server's ways.
func (s ackServer) acked(c *faketool.Client, tool string) (string, error) {
	want := map[string]string{"tick": "stopped", "deaf": "completed"}[tool]
	if err := (sdkServer{modern: s.modern}).cancel(c, "1"); err != nil {
		return "", err
	}
	if s.asks {
		meta := ""
		if s.modern {
			meta = `,"_meta":{` + faketool.ModernMeta + `}`
		}
		if err := c.Sendf(`{"jsonrpc":"2.0","id":"ask","method":%q,"params":{"token":%q,"waitMs":10000%s}}`, ackAsk, ackToken, meta); err != nil {
			return "", err
		}
		m, err := c.Expect(`"ask"`)
		if err != nil {
			return "", err
		}
		if got := outcomeIn(m.Result); got != want {
			return "", fmt.Errorf("asked, it says %q, not %q: %s", got, want, m.Raw)
		}
	}
	if !s.modern {
		m, err := c.Notification(ackTells)
		if err != nil {
			return "", err
		}
		if got := outcomeIn(m.Params); got != want {
			return "", fmt.Errorf("it tells %q, not %q: %s", got, want, m.Raw)
		}
		return "ack: " + want, nil
	}
	for _, m := range c.Messages() {
		if m.Method == ackTells {
			return "", fmt.Errorf("a notification in the modern era: %s", m.Raw)
		}
	}
	return "ack, asked for: " + want, nil
}

func outcomeIn(raw json.RawMessage) string {
	var a struct {
		Outcome string `json:"outcome"`
	}
	_ = json.Unmarshal(raw, &a) // whatever it is, it is shown
	return a.Outcome
}

// confirmed stops the call as an operator and waits until the verdict is
// confirmed: mostly that is the first final one, but a server that answers
// before its handler has returned (Python, version 1) is acknowledged first.
func (h *harness) confirmed(env []string) (string, error) {
	var results []struct {
		Run     struct{ ID string }
		Receipt struct{ Verdict string }
	}
	out, err := h.command(env, "cancel", "--all", "--json")
	if err := json.Unmarshal(out, &results); err != nil || len(results) != 1 {
		return "", fmt.Errorf("belay cancel: %s", out)
	}
	verdict := results[0].Receipt.Verdict
	if verdict == "confirmed" {
		return "verdict: confirmed", err
	}
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if out, err = h.command(env, "status", results[0].Run.ID); bytes.Contains(out, []byte("confirmed:")) {
			return "verdict: " + verdict + ", then confirmed", nil
		}
	}
	return "", fmt.Errorf("belay status: %v: %s", err, out)
}

// command runs belay with more environment and returns what it prints.
func (h *harness) command(env []string, args ...string) ([]byte, error) {
	return h.commandIn(append(os.Environ(), env...), args...)
}

// commandIn is the same with no other environment.
func (h *harness) commandIn(env []string, args ...string) ([]byte, error) {
	cmd := exec.Command(h.belay, args...)
	cmd.Env = env
	out, err := cmd.Output() // what it says while it waits goes to stderr
	return bytes.TrimSpace(out), err
}

func lines(path string) int {
	data, _ := os.ReadFile(path)
	return bytes.Count(data, []byte("\n"))
}

func waitLines(path string, n int) error {
	for end := time.Now().Add(20 * time.Second); lines(path) < n; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("the tool did %d steps in 20 s, not %d", lines(path), n)
		}
	}
	return nil
}
