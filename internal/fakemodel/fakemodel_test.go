package fakemodel

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ask posts one request and returns the whole answer.
func ask(t *testing.T, s *Server, path, body string) string {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	answer, err := client.Post(s.URL()+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func start(t *testing.T, steps ...Step) *Server {
	t.Helper()
	s, err := Start(steps...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// events are the data of a stream, decoded, with the names of the events where
// there are any; the end mark is nil.
func events(t *testing.T, stream string) (names []string, data []map[string]any) {
	t.Helper()
	for line := range strings.Lines(stream) {
		if name, ok := strings.CutPrefix(line, "event: "); ok {
			names = append(names, strings.TrimSpace(name))
		}
		raw, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			continue
		}
		var one map[string]any
		if err := json.Unmarshal([]byte(raw), &one); err != nil && strings.TrimSpace(raw) != "[DONE]" {
			t.Fatalf("%v: %s", err, raw)
		}
		data = append(data, one)
	}
	return names, data
}

// dig walks through maps and lists.
func dig(v any, path ...any) any {
	for _, step := range path {
		switch key := step.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[key]
		case int:
			list, _ := v.([]any)
			if key >= len(list) {
				return nil
			}
			v = list[key]
		}
	}
	return v
}

var tool = Step{Word: "step-one", Shell: "make test"}

// TestMessages: the shapes of the Anthropic interface, as a stream and whole.
func TestMessages(t *testing.T) {
	s := start(t, tool, Step{Word: "step-two", Shell: "make more"})
	const offers = `"tools":[{"name":"Read"},{"name":"Bash"}]`
	names, data := events(t, ask(t, s, "/v1/messages?beta=true",
		`{"model":"m","stream":true,`+offers+`,"messages":[{"role":"user","content":"step-one"}]}`))
	want := "message_start content_block_start content_block_delta content_block_stop message_delta message_stop"
	if got := strings.Join(names, " "); got != want {
		t.Fatalf("events %s", got)
	}
	for i, one := range data {
		if one["type"] != names[i] {
			t.Errorf("event %s has the type %v", names[i], one["type"])
		}
	}
	if dig(data[0], "message", "model") != "m" || dig(data[1], "content_block", "name") != "Bash" ||
		dig(data[4], "delta", "stop_reason") != "tool_use" {
		t.Errorf("%v", data)
	}
	arguments := map[string]any{}
	if raw, _ := dig(data[2], "delta", "partial_json").(string); json.Unmarshal([]byte(raw), &arguments) != nil || arguments["command"] != "make test" {
		t.Errorf("arguments %v", data[2])
	}

	var whole map[string]any
	raw := ask(t, s, "/v1/messages", `{"model":"m",`+offers+`,"messages":[{"role":"user","content":"step-two"}]}`)
	if err := json.Unmarshal([]byte(raw), &whole); err != nil {
		t.Fatal(err)
	}
	if dig(whole, "content", 0, "name") != "Bash" || whole["stop_reason"] != "tool_use" ||
		dig(whole, "content", 0, "id") == dig(data[1], "content_block", "id") {
		t.Errorf("%s", raw)
	}
	if got := ask(t, s, "/v1/messages/count_tokens", `{}`); got != `{"input_tokens":1}` {
		t.Error(got)
	}
}

// TestResponses: a tool of an MCP server lies inside an entry, whose name the
// call repeats.
func TestResponses(t *testing.T) {
	s := start(t, Step{Word: "use-slow", Tool: "slow", Arguments: map[string]any{"seconds": 60}})
	names, data := events(t, ask(t, s, "/v1/responses", `{"stream":true,"input":"use-slow",
		"tools":[{"type":"function","name":"exec_command"},{"type":"namespace","name":"mcp__wit","tools":[{"name":"slow"}]}]}`))
	want := "response.created response.output_item.added response.output_item.done response.completed"
	if got := strings.Join(names, " "); got != want {
		t.Fatalf("events %s", got)
	}
	for i, one := range data {
		if one["type"] != names[i] || one["sequence_number"] != float64(i) {
			t.Errorf("event %d: %v", i, one)
		}
	}
	item := dig(data[2], "item")
	if dig(item, "name") != "slow" || dig(item, "namespace") != "mcp__wit" || dig(item, "arguments") != `{"seconds":60}` {
		t.Errorf("%v", item)
	}
	if dig(data[3], "response", "output", 0, "type") != "function_call" || dig(data[3], "response", "usage", "total_tokens") != 2.0 {
		t.Errorf("%v", data[3])
	}
	_, data = events(t, ask(t, s, "/v1/responses", `{"stream":true,"input":"use-slow","tools":[{"name":"x","tools":[{"name":"slow"}]}]}`))
	if dig(data[3], "response", "output", 0, "content", 0, "text") != "done." {
		t.Errorf("a step is taken once: %v", data[3])
	}
}

func TestChat(t *testing.T) {
	s := start(t, tool)
	const body = `{"stream":true,"messages":[{"role":"user","content":"step-one"}],"tools":[{"type":"function","function":{"name":"bash"}}]}`
	_, data := events(t, ask(t, s, "/v1/chat/completions", body))
	if len(data) != 3 || data[2] != nil || dig(data[1], "choices", 0, "finish_reason") != "tool_calls" ||
		dig(data[0], "choices", 0, "delta", "tool_calls", 0, "function", "name") != "bash" || dig(data[1], "usage") == nil {
		t.Errorf("%v", data)
	}
	_, data = events(t, ask(t, s, "/v1/chat/completions", body))
	if dig(data[0], "choices", 0, "delta", "content") != "done." || dig(data[1], "choices", 0, "finish_reason") != "stop" {
		t.Errorf("%v", data)
	}
	var whole map[string]any
	raw := ask(t, s, "/v1/chat/completions", `{"messages":[]}`)
	if err := json.Unmarshal([]byte(raw), &whole); err != nil || dig(whole, "choices", 0, "message", "content") != "done." {
		t.Errorf("%v: %s", err, raw)
	}
}

func TestGemini(t *testing.T) {
	s := start(t, tool)
	const offers = `"tools":[{"functionDeclarations":[{"name":"read_file"},{"name":"run_shell_command"}]}]`
	var whole map[string]any
	raw := ask(t, s, "/v1beta/models/gemini-2.5-flash:generateContent", `{"contents":[{"role":"user","parts":[{"text":"route step-one"}]}]}`)
	if err := json.Unmarshal([]byte(raw), &whole); err != nil || dig(whole, "candidates", 0, "content", "parts", 0, "text") != "done." {
		t.Errorf("a request without tools takes no step: %v: %s", err, raw)
	}
	_, data := events(t, ask(t, s, "/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse",
		`{`+offers+`,"contents":[{"role":"user","parts":[{"text":"step-one"}]}]}`))
	call := dig(data[0], "candidates", 0, "content", "parts", 0, "functionCall")
	if len(data) != 1 || dig(call, "name") != "run_shell_command" || dig(call, "args", "command") != "make test" {
		t.Errorf("%v", data)
	}
	if got := ask(t, s, "/v1beta/models/m:countTokens", `{}`); got != `{"totalTokens":1}` {
		t.Error(got)
	}
}

// TestHang: the stream goes on until the client closes it, which the log tells.
func TestHang(t *testing.T) {
	s := start(t, Step{Word: "hang-here", Hang: true})
	transport := &http.Transport{DisableKeepAlives: true}
	answer, err := (&http.Client{Transport: transport}).Post(s.URL()+"/v1/chat/completions", "application/json",
		strings.NewReader(`{"stream":true,"messages":"hang-here","tools":[{"function":{"name":"bash"}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() && lines.Text() != ": alive" { // one event, then signs of life
	}
	if lines.Text() != ": alive" {
		t.Fatalf("the stream ended: %v", lines.Err())
	}
	if err := answer.Body.Close(); err != nil {
		t.Error(err)
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		log := s.Log()
		if last := log[len(log)-1]; last.What == "closed" {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("log %v", log)
		}
	}
}

// TestNothingLeaves: as a proxy the model refuses, and says who was asked for.
func TestNothingLeaves(t *testing.T) {
	s := start(t)
	proxy, err := url.Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(proxy), DisableKeepAlives: true}}
	answer, err := client.Get("http://telemetry.invalid/x")
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusForbidden {
		t.Error(answer.Status)
	}
	if answer, err := client.Get("https://telemetry.invalid/x"); err == nil {
		_ = answer.Body.Close()
		t.Error("a tunnel was opened")
	}
	log := s.Log()
	if len(log) != 2 || log[0].Detail != "telemetry.invalid" || log[1].Detail != "telemetry.invalid:443" {
		t.Errorf("%v", log)
	}
}

// TestBad: what is no request of an interface is refused and named in the log.
func TestBad(t *testing.T) {
	if _, err := Start(Step{Shell: "x"}); err == nil {
		t.Error("a step without a word was taken")
	}
	s := start(t)
	for _, path := range []string{"/v1/messages", "/v1/responses", "/v1/chat/completions", "/m:generateContent", "/nothing"} {
		if got := ask(t, s, path, `[`); !strings.Contains(got, "error") {
			t.Errorf("%s: %s", path, got)
		}
	}
	if log := s.Log(); len(log) != 5 || log[0].What != "unknown" {
		t.Errorf("%v", log)
	}
	if got := ask(t, s, "/v1/models", ""); !strings.Contains(got, `"mock"`) {
		t.Error(got)
	}
}
