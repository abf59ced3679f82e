package front_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/belayhq/belay/internal/faketool"
)

// agentMarker makes the test binary an ACP agent that starts the MCP servers it is
// told of, and has the defects that matter here: it answers a Stop at once and
// tells its servers nothing, and it never ends them.
const agentMarker = "front-test-agent"

// envOwn names a command line of the agent's own configuration, as JSON.
const envOwn = "FRONT_TEST_OWN"

// prompt is what a prompt's text says is to be done.
type prompt struct {
	Server, Key string
	ToolCall    string // announce a tool call with this id
	Title       string
	Use         string // and name this id to the server
	Tool        string // default: tick
	Args        map[string]any
}

// What the agent is like beside its defects, in its environment.
const (
	envNoHTTP  = "FRONT_TEST_NO_HTTP" // it takes commands alone
	envElicits = "FRONT_TEST_ELICITS" // it answers questions of servers with this
)

func (p *prompt) call() (tool string, args map[string]any) {
	if p.Tool != "" {
		return p.Tool, p.Args
	}
	return "tick", map[string]any{"key": p.Key, "n": 3000}
}

type testAgent struct {
	mu      sync.Mutex
	out     *json.Encoder
	servers map[string]func(prompt) string // by session and name: calls the tick tool
	prompts map[string]json.RawMessage     // ids, by session
	n       int
}

func (a *testAgent) send(v any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	_ = a.out.Encode(v)
}

func (a *testAgent) answer(id json.RawMessage, result any) {
	a.send(map[string]any{"jsonrpc": "2.0", "id": id, "result": result})
}

func (a *testAgent) update(session string, u map[string]any) {
	a.send(map[string]any{"jsonrpc": "2.0", "method": "session/update", "params": map[string]any{"sessionId": session, "update": u}})
}

func agentMain() int {
	a := &testAgent{out: json.NewEncoder(os.Stdout), servers: make(map[string]func(prompt) string), prompts: make(map[string]json.RawMessage)}
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct {
				SessionID  string `json:"sessionId"`
				MCPServers []got  `json:"mcpServers"`
				Prompt     []struct{ Text string }
			}
		}
		if err := json.Unmarshal(in.Bytes(), &m); err != nil {
			return 3
		}
		session := m.Params.SessionID
		switch m.Method {
		case "initialize":
			a.answer(m.ID, map[string]any{"protocolVersion": 1, "agentCapabilities": map[string]any{
				"loadSession": true, "mcpCapabilities": map[string]any{"http": os.Getenv(envNoHTTP) == "", "sse": true}, "sessionCapabilities": map[string]any{"close": map[string]any{}, "resume": map[string]any{}},
			}})
		case "session/new", "session/load", "session/resume":
			if session == "" {
				a.n++
				session = fmt.Sprint("s_", a.n)
			}
			for i := range m.Params.MCPServers {
				e := &m.Params.MCPServers[i]
				a.servers[session+e.Name] = startServer(e)
			}
			if own := os.Getenv(envOwn); own != "" { // of its own configuration, for all sessions
				if a.servers["own"] == nil {
					a.servers["own"] = startOwn(own)
				}
				a.servers[session+"own"] = a.servers["own"]
			}
			a.answer(m.ID, map[string]any{"sessionId": session})
		case "session/prompt":
			var p prompt
			if err := json.Unmarshal([]byte(m.Params.Prompt[0].Text), &p); err != nil {
				return 3
			}
			a.mu.Lock()
			a.prompts[session] = m.ID
			a.mu.Unlock()
			go a.turn(session, m.ID, p, a.servers[session+p.Server])
		case "session/cancel":
			a.endTurn(session, nil, "cancelled")
		case "session/close":
			a.answer(m.ID, map[string]any{})
		default:
			if m.ID != nil {
				a.send(map[string]any{"jsonrpc": "2.0", "id": m.ID, "error": map[string]any{"code": -32601, "message": m.Method}})
			}
		}
	}
	return 0
}

func (a *testAgent) turn(session string, id json.RawMessage, p prompt, call func(prompt) string) {
	if p.ToolCall != "" {
		a.update(session, map[string]any{"sessionUpdate": "tool_call", "toolCallId": p.ToolCall, "title": p.Title, "kind": "other", "status": "in_progress"})
	}
	text := "no such server"
	if call != nil {
		text = call(p)
	}
	if p.ToolCall != "" {
		a.update(session, map[string]any{"sessionUpdate": "tool_call_update", "toolCallId": p.ToolCall, "status": "completed"})
	}
	a.update(session, map[string]any{"sessionUpdate": "agent_message_chunk", "content": map[string]any{"type": "text", "text": "the tool said: " + text}})
	a.endTurn(session, id, "end_turn")
}

// endTurn answers a prompt, or whichever is open, once.
func (a *testAgent) endTurn(session string, id json.RawMessage, reason string) {
	a.mu.Lock()
	open := a.prompts[session]
	if open == nil || id != nil && string(id) != string(open) {
		a.mu.Unlock()
		return
	}
	delete(a.prompts, session)
	a.mu.Unlock()
	a.answer(open, map[string]any{"stopReason": reason})
}

// startOwn starts a server with the environment that the agent has.
func startOwn(text string) func(prompt) string {
	var e got
	var argv []string
	if err := json.Unmarshal([]byte(text), &argv); err != nil {
		return nil
	}
	e.Command, e.Args = argv[0], argv[1:]
	for _, v := range os.Environ() {
		name, value, _ := strings.Cut(v, "=")
		e.Env = append(e.Env, struct{ Name, Value string }{name, value})
	}
	return startServer(&e)
}

// startServer starts or connects to a server as an agent does.
func startServer(e *got) func(prompt) string {
	if e.URL == "" {
		env := []string{"PATH=" + os.Getenv("PATH")}
		for _, v := range e.Env {
			env = append(env, v.Name+"="+v.Value)
		}
		c, err := faketool.StartClient(append([]string{e.Command}, e.Args...), faketool.ClientOptions{Env: env, Alone: true, Stderr: os.Stderr})
		if err != nil {
			return nil
		}
		// It has nobody to ask: its capabilities say so.
		_ = c.Send(`{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"agent","version":"1"}}}`)
		if _, err := c.Expect(`"init"`); err != nil {
			return nil
		}
		_ = c.Send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		return func(p prompt) string {
			id := fmt.Sprintf("%q", p.Key)
			meta := ""
			if p.Use != "" {
				meta = fmt.Sprintf(`,"_meta":{"claudecode/toolUseId":%q}`, p.Use)
			}
			tool, args := p.call()
			text, _ := json.Marshal(args)
			_ = c.Sendf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"arguments":%s%s}}`, id, tool, text, meta)
			m, err := c.Expect(id)
			return fmt.Sprint(m.Raw, err)
		}
	}
	var via sdk.Transport = &sdk.StreamableClientTransport{Endpoint: e.URL, HTTPClient: &http.Client{Transport: withHeaders{e}}}
	if e.Type == "sse" {
		via = &sdk.SSEClientTransport{Endpoint: e.URL, HTTPClient: &http.Client{Transport: withHeaders{e}}}
	}
	var o *sdk.ClientOptions
	if answer := os.Getenv(envElicits); answer != "" {
		o = &sdk.ClientOptions{ElicitationHandler: func(context.Context, *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
			return &sdk.ElicitResult{Action: "accept", Content: map[string]any{"answer": answer}}, nil
		}}
	}
	s, err := sdk.NewClient(&sdk.Implementation{Name: "agent", Version: "1"}, o).Connect(context.Background(), via, &sdk.ClientSessionOptions{ProtocolVersion: "2025-06-18"})
	if err != nil {
		fmt.Fprintln(os.Stderr, e.Name, err)
		return nil
	}
	return func(p prompt) string {
		tool, args := p.call()
		params := &sdk.CallToolParams{Name: tool, Arguments: args}
		if p.Use != "" {
			params.Meta = sdk.Meta{"claudecode/toolUseId": p.Use}
		}
		result, err := s.CallTool(context.Background(), params)
		text, _ := json.Marshal(result)
		return fmt.Sprint(string(text), err)
	}
}

// withHeaders sends what the agent was told to.
type withHeaders struct{ e *got }

func (w withHeaders) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for _, h := range slices.Backward(w.e.Headers) {
		r.Header.Set(h.Name, h.Value)
	}
	return http.DefaultTransport.RoundTrip(r)
}
