package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/belayhq/belay/internal/faketool"
)

// sdkServer is a server on an official SDK with the tools tick, deaf and echo.
type sdkServer struct {
	name   string
	argv   []string // the witness file is appended
	modern bool     // spoken to in 2026-07-28
}

// servers stops a call of each SDK's servers with a raw client, so that only
// the server differs.
func (h *harness) servers(only string) {
	var list []sdkServer
	both := func(name string, argv ...string) {
		list = append(list, sdkServer{name, argv, false}, sdkServer{name + ", 2026", argv, true})
	}
	if dir := h.peers.node; dir != "" {
		list = append(list, sdkServer{"TypeScript v1 server", []string{"node", filepath.Join(dir, "server-v1.mjs")}, false})
		both("TypeScript v2 server", "node", filepath.Join(dir, "server-v2.mjs"))
	}
	both("Go server", executable(), goServerMarker)
	for _, v := range []string{"v1", "v2"} {
		python := h.peers.python[v]
		if python == "" {
			continue
		}
		script := filepath.Join(filepath.Dir(filepath.Dir(filepath.Dir(python))), "server.py")
		if v == "v1" {
			list = append(list, sdkServer{"Python v1 server", []string{python, script}, false})
		} else {
			both("Python v2 server", python, script)
		}
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
				r := &row{peer: s.name, event: map[string]string{"tick": "cancel; the tool listens", "deaf": "cancel; the tool is deaf"}[tool], belay: belay}
				rows.run(r, r, name, func() error { return h.serverRow(s, tool, r) })
			}
		}
	}
}

// serverRow runs one session against one server.
func (h *harness) serverRow(s sdkServer, tool string, r *row) error {
	dir, err := os.MkdirTemp(h.dir, "row-")
	if err != nil {
		return err
	}
	w := faketool.NewWitness(filepath.Join(dir, "witness"))
	defer sweep(w)
	opt := faketool.ClientOptions{Env: []string{"BELAY_RUNTIME_DIR=" + filepath.Join(dir, "run")}}
	if !h.verbose {
		opt.Stderr = io.Discard
	}
	c, err := faketool.StartClient(h.wrapped(r.belay, append(append([]string{}, s.argv...), w.Path)), opt)
	if err != nil {
		return err
	}
	defer c.Close()
	c.Timeout = 20 * time.Second
	if err := s.open(c); err != nil {
		return err
	}
	if err := s.call(c, "1", tool, `{"key":"k","n":400,"ms":50}`, `"p1"`); err != nil {
		return err
	}
	if _, err := w.WaitCount("k", "tick", 4, 20*time.Second); err != nil {
		return err
	}
	stop := time.Now()
	if err := s.cancel(c, "1"); err != nil {
		return err
	}
	if err := s.call(c, "2", "echo", `{"message":"still here"}`, ""); err != nil {
		return err
	}
	r.observe(w, "k", stop)
	if !r.belay { // behind a deaf call there is nothing to wait for
		c.Timeout = 5 * time.Second
	}
	if r.next = answered(c, "2"); r.next == "ok" {
		if err := s.call(c, "3", "echo", `{"message":"still here"}`, ""); err != nil {
			return err
		}
		r.next = answered(c, "3")
	}
	r.told = describe(c.Responses("1"))
	return nil
}

// answered says "ok" when the call got a result, else what was wrong.
func answered(c *faketool.Client, id string) string {
	m, err := c.Expect(id)
	switch {
	case err != nil:
		return fmt.Sprintf("no answer within %v", c.Timeout)
	case m.Error != nil:
		return fmt.Sprintf("error %d: %s", m.Error.Code, m.Error.Message)
	}
	return "ok"
}

// describe says what came back for the cancelled call.
func describe(list []faketool.Message) string {
	if len(list) == 0 {
		return "nothing"
	}
	m := list[0]
	text := "result: " + m.Text()
	if m.Error != nil {
		text = fmt.Sprintf("error %d: %s", m.Error.Code, m.Error.Message)
	}
	if len(list) > 1 {
		text += fmt.Sprintf(" (and %d more)", len(list)-1)
	}
	return text
}

// open does the handshake of the era.
func (s sdkServer) open(c *faketool.Client) error {
	if !s.modern {
		_, err := c.Initialize("2025-11-25")
		return err
	}
	if err := c.Send(`{"jsonrpc":"2.0","id":"d","method":"server/discover","params":{"_meta":{` + faketool.ModernMeta + `}}}`); err != nil {
		return err
	}
	m, err := c.Expect(`"d"`)
	if err == nil && m.Error != nil {
		err = fmt.Errorf("server/discover: %d %s", m.Error.Code, m.Error.Message)
	}
	return err
}

func (s sdkServer) call(c *faketool.Client, id, tool, args, token string) error {
	if s.modern {
		return c.CallModern(id, tool, args, token)
	}
	return c.Call(id, tool, args, token)
}

func (s sdkServer) cancel(c *faketool.Client, id string) error {
	if !s.modern {
		return c.Cancel(id, "the user pressed Stop")
	}
	return c.Sendf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s,"reason":"the user pressed Stop","_meta":{%s}}}`,
		id, faketool.ModernMeta)
}
