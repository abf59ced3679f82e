package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/belayhq/belay/internal/faketool"
)

// testAgentMarker is the first argument that makes the test binary an agent.
const testAgentMarker = "acp-test-agent"

// testAgent is the least agent that the rows can be run with: it starts the
// session's MCP server, asks the model, runs its shell tool, and is told to stop.
// A careless one says that it has stopped, and leaves the tool alone.
type testAgent struct {
	careless bool

	mu   sync.Mutex // guards stdout and the field below
	stop chan struct{}
}

func (a *testAgent) serve() int {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params struct {
				Servers []struct {
					Command string   `json:"command"`
					Args    []string `json:"args"`
				} `json:"mcpServers"`
				Prompt []struct {
					Text string `json:"text"`
				} `json:"prompt"`
			} `json:"params"`
		}
		if json.Unmarshal(lines.Bytes(), &m) != nil {
			return 1
		}
		switch m.Method {
		case "initialize":
			a.answer(m.ID, `{"protocolVersion":1}`)
		case "session/new":
			s := m.Params.Servers[0]
			c, err := faketool.StartClient(append([]string{s.Command}, s.Args...), faketool.ClientOptions{})
			if err != nil {
				return 1
			}
			_, _ = c.Initialize("2025-06-18")
			_ = c.Send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
			a.answer(m.ID, `{"sessionId":"s"}`)
		case "session/prompt":
			a.mu.Lock()
			a.stop = make(chan struct{})
			go a.turn(m.ID, m.Params.Prompt[0].Text, a.stop)
			a.mu.Unlock()
		case "session/cancel":
			a.mu.Lock()
			close(a.stop)
			a.mu.Unlock()
		}
	}
	return 0
}

func (a *testAgent) answer(id json.RawMessage, result string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", id, result)
}

// turn asks the model until it has nothing more to do.
func (a *testAgent) turn(id json.RawMessage, prompt string, stop chan struct{}) {
	for {
		command := a.ask(prompt)
		if command == "" {
			a.answer(id, `{"stopReason":"end_turn"}`)
			return
		}
		cmd := exec.Command("sh", "-c", command)
		ownGroup(cmd)
		if cmd.Start() != nil {
			os.Exit(1)
		}
		done := make(chan struct{})
		go func() { defer close(done); _ = cmd.Wait() }()
		select {
		case <-done:
		case <-stop:
			if !a.careless {
				killGroup(cmd.Process.Pid)
				<-done
			}
			a.answer(id, `{"stopReason":"cancelled"}`)
			return
		}
	}
}

// ask returns the command that the model wants, "" = none.
func (a *testAgent) ask(prompt string) string {
	body, _ := json.Marshal(map[string]any{
		"messages": []string{prompt}, "tools": []any{map[string]any{"function": map[string]string{"name": "bash"}}},
	})
	answer, err := http.Post(os.Getenv("MODEL")+"/v1/chat/completions", "application/json", bytes.NewReader(body))
	if err != nil {
		os.Exit(1)
	}
	defer answer.Body.Close()
	var said struct {
		Choices []struct {
			Message struct {
				Calls []struct {
					Function struct {
						Arguments string `json:"arguments"`
					} `json:"function"`
				} `json:"tool_calls"`
			} `json:"message"`
		} `json:"choices"`
	}
	var arguments struct {
		Command string `json:"command"`
	}
	if json.NewDecoder(answer.Body).Decode(&said) != nil {
		os.Exit(1)
	}
	for _, c := range said.Choices[0].Message.Calls {
		if json.Unmarshal([]byte(c.Function.Arguments), &arguments) != nil {
			os.Exit(1)
		}
	}
	return arguments.Command
}

// TestACPRows runs whole rows with an agent that needs no network: what is left
// alive is seen and fails a row, and what an obedient agent does passes.
func TestACPRows(t *testing.T) {
	t.Parallel()
	if !acpHere {
		t.Skip("the agents' rows are measured on Linux only")
	}
	h := &harness{cache: t.TempDir(), dir: t.TempDir()}
	cell := func(name string) acpCell {
		for _, c := range acpCells {
			if c.name == name {
				return c
			}
		}
		t.Fatalf("no cell %q", name)
		return acpCell{}
	}
	rows := map[string]*acpRow{}
	var all sync.WaitGroup
	for _, c := range []struct{ manner, cell string }{
		{"obedient", "Stop, shell tool"},
		{"careless", "Stop, shell tool"},
		{"careless", "SIGKILL"},
	} {
		agent := acpAgent{
			key: c.manner, native: true, program: "agent", args: []string{testAgentMarker, c.manner},
			settings: func(p acpPlace, _ bool) ([]string, error) { return []string{"MODEL=" + p.model}, nil },
		}
		bin := filepath.Join(h.cache, "acp-"+c.manner, "node_modules")
		if err := os.MkdirAll(bin, 0o755); err != nil {
			t.Fatal(err)
		}
		_ = os.Symlink(executable(), filepath.Join(bin, "agent")) // it may be there
		r := &acpRow{agent: c.manner, cell: c.cell, version: 1, end: c.cell == "SIGKILL"}
		rows[c.manner+", "+c.cell] = r
		all.Go(func() {
			if err := h.withAgent(agent, cell(c.cell), r); err != nil {
				t.Errorf("%s, %s: %v", c.manner, c.cell, err)
			}
		})
	}
	all.Wait()
	for name, problem := range map[string]string{
		"obedient, Stop, shell tool": "",
		"careless, Stop, shell tool": "left alive",
		"careless, SIGKILL":          "left alive after 1s",
	} {
		r := rows[name]
		r.belay, r.receipt = true, "acknowledged" // judged as if it were Belay's
		if r.judge(); (problem == "") != (r.problem == "") || !strings.Contains(r.problem, problem) {
			t.Errorf("%s: %q; %q", name, r.problem, r.cells())
		}
	}
	if r := rows["obedient, Stop, shell tool"]; r.told != "cancelled" || len(r.hurt) > 0 || r.next != "ok" {
		t.Errorf("%q", r.cells())
	}
	if left := marked(h.dir); len(left) > 0 {
		t.Errorf("rows leave processes behind: %v", left)
	}
}
