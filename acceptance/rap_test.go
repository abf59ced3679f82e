//go:build unix

package acceptance

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/rappeer"
)

// rapPeer starts an independent tool server.
func rapPeer(t testing.TB, p *rappeer.ToolServer) *rappeer.ToolServer {
	t.Helper()
	if _, err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	return p
}

// ofRAP is a server that is a RAP tool server.
func ofRAP(base string, more ...any) map[string]any {
	def := map[string]any{"url": base}
	for i := 0; i < len(more); i += 2 {
		def[more[i].(string)] = more[i+1]
	}
	return map[string]any{"rap": def}
}

// heart is a tool whose work is a process: it appends to a file until it is killed,
// which it is when the call is cancelled (RAP-3, RAP-23).
func heart(t testing.TB) (tool func(c *rappeer.Invoked), file string, pid chan int) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "heart")
	pid = make(chan int, 16)
	return func(c *rappeer.Invoked) {
		cmd := exec.Command("sh", "-c", `while :; do echo beat >> "$0"; sleep 0.02; done`, file)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			_, _ = c.Text("Error: " + err.Error())
			return
		}
		pid <- cmd.Process.Pid
		<-c.Cancelled
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		_, _ = c.Text("Cancelled by user. Partial results:\nbeaten for a while")
	}, file, pid
}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

// modernCall is a tools/call of 2026-07-28, which has no session.
func (s *server) modernCall(t testing.TB, who, name, id, tool, args string) (got <-chan reply, abort context.CancelFunc) {
	t.Helper()
	ctx, end := context.WithCancel(context.Background())
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"arguments":%s,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"a","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`, id, tool, args)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/mcp/"+name, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range map[string]string{
		"Authorization": "Bearer " + token(who), "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": tool,
	} {
		r.Header.Set(k, v)
	}
	answers := make(chan reply, 1)
	go func() {
		defer end()
		resp, err := web.Do(r)
		if err != nil {
			answers <- reply{raw: err.Error()}
			return
		}
		defer resp.Body.Close()
		var text strings.Builder
		buf := make([]byte, 4096)
		for {
			n, err := resp.Body.Read(buf)
			text.Write(buf[:n])
			if err != nil {
				break
			}
		}
		one := reply{http: resp.StatusCode, raw: text.String()}
		for _, m := range messages(text.String()) {
			var r reply
			if json.Unmarshal([]byte(m), &r) == nil && string(r.ID) == id {
				one.ID, one.Result, one.Error = r.ID, r.Result, r.Error
			}
		}
		answers <- one
	}()
	return answers, end
}

// TestRAP_MCPCaller: the tools of a RAP tool server are called by an MCP client, of
// the official SDK and of the modern era (RAP-43 to 47, 54, 62, 63, 66).
func TestRAP_MCPCaller(t *testing.T) {
	t.Parallel()
	p := rapPeer(t, &rappeer.ToolServer{
		Bearer: "hush",
		Manifest: `{"name":"files","endpoint":"ENDPOINT","tools":[
			{"name":"scan","description":"scans","inputSchema":{"type":"object","properties":{"path":{"type":"string"}}},"annotations":{"readOnly":true,"longRunning":true},"displayScript":"x"},
			{"name":"draw","description":"draws","inputSchema":{"type":"object"}},
			{"name":"fail","description":"fails","inputSchema":{"type":"object"}}]}`,
		Tools: map[string]func(*rappeer.Invoked){
			"scan": func(c *rappeer.Invoked) { _, _ = c.Text("scanned " + string(c.Arguments)) },
			"draw": func(c *rappeer.Invoked) {
				_, _ = c.Post(map[string]any{"type": "tool_result", "group_id": c.Group, "id": c.ID, "content": []map[string]any{
					{"type": "text", "text": "one picture"}, {"type": "image", "data": "iVBORw0KGgo=", "mediaType": "image/png"},
				}})
			},
			"fail": func(c *rappeer.Invoked) { _, _ = c.Text("Error: no such file. Give another path.") },
		},
	})
	s := start(t, func(c *settings) { c.servers["files"] = ofRAP(p.Base(), "bearer", "hush") })
	client := s.official(t, "ann", "files")
	list, err := client.ListTools(t.Context(), nil)
	if err != nil || len(list.Tools) != 4 {
		t.Fatalf("%v %v", list, err)
	}
	for _, tool := range list.Tools {
		if tool.Name == "scan" && (tool.Annotations == nil || !tool.Annotations.ReadOnlyHint || tool.Description != "scans") {
			t.Errorf("scan: %+v", tool)
		}
	}
	result, err := client.CallTool(t.Context(), &sdk.CallToolParams{Name: "scan", Arguments: map[string]any{"path": "/srv/a"}})
	if err != nil || result.IsError || result.Content[0].(*sdk.TextContent).Text != `scanned {"path":"/srv/a"}` {
		t.Errorf("%+v, %v", result, err)
	}
	result, err = client.CallTool(t.Context(), &sdk.CallToolParams{Name: "draw"})
	if err != nil || len(result.Content) != 2 || result.Content[1].(*sdk.ImageContent).MIMEType != "image/png" {
		t.Errorf("%+v, %v", result, err)
	}
	result, err = client.CallTool(t.Context(), &sdk.CallToolParams{Name: "fail"})
	if err != nil || !result.IsError {
		t.Errorf("%+v, %v", result, err)
	}
	got, _ := s.modernCall(t, "ann", "files", "7", "scan", `{"path":"/m"}`)
	if r := wait(t, got); r.Error != nil || !strings.Contains(string(r.Result), `scanned {\"path\":\"/m\"}`) || !strings.Contains(string(r.Result), `"resultType":"complete"`) {
		t.Errorf("modern: %s", r.raw)
	}
	for _, one := range p.Seen("/run") {
		if one.Authorization != "Bearer hush" {
			t.Errorf("an invocation came with %q", one.Authorization)
		}
	}
}

// TestRAP_CancelKillsTheProcess: an MCP client cancels a RAP tool's call, in either
// era, and the process behind the tool server is dead; every other server is told as
// well, whatever it does about it (RAP-3, 5, 23, 27, 29 to 31, 90, 93; R1).
func TestRAP_CancelKillsTheProcess(t *testing.T) {
	t.Parallel()
	work, file, pids := heart(t)
	p := rapPeer(t, &rappeer.ToolServer{Tools: map[string]func(*rappeer.Invoked){"work": work}})
	other := rapPeer(t, &rappeer.ToolServer{Tools: map[string]func(*rappeer.Invoked){"x": nil}})
	hung := rapPeer(t, &rappeer.ToolServer{
		Tools:    map[string]func(*rappeer.Invoked){"x": nil},
		OnCancel: func(ctx context.Context, _ []byte) int { <-ctx.Done(); return 0 },
	})
	s := start(t, func(c *settings) {
		c.servers["work"], c.servers["other"], c.servers["hung"] = ofRAP(p.Base()), ofRAP(other.Base()), ofRAP(hung.Base())
		c.servers["gone"] = ofRAP("http://127.0.0.1:1")
	})
	stops := map[string]func(t *testing.T){
		"legacy": func(t *testing.T) {
			client := s.begin(t, "ann", "work")
			_ = client.call(t, `"c1"`, "work", `{}`)
			pid := <-pids
			eventually(t, "a beat", func() bool { _, err := os.Stat(file); return err == nil })
			began := time.Now()
			client.post(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"c1","reason":"enough"}}`)
			eventually(t, "the death of the process", func() bool { return !alive(pid) })
			t.Logf("dead %v after the cancel", time.Since(began))
		},
		"modern": func(t *testing.T) {
			_, abort := s.modernCall(t, "ann", "work", "1", "work", `{}`)
			pid := <-pids
			abort()
			eventually(t, "the death of the process", func() bool { return !alive(pid) })
		},
		"operator": func(t *testing.T) {
			client := s.begin(t, "ann", "work")
			got := client.call(t, `"op1"`, "work", `{}`)
			pid := <-pids
			a := s.cancel(t, "op", "op1", `"reason":"cost"`, `"wait":8`)
			eventually(t, "the death of the process", func() bool { return !alive(pid) })
			// The partial result came in time, and the model reads it (RAP-93).
			if r := wait(t, got); !strings.Contains(r.raw, "beaten for a while") && r.code() != -32800 {
				t.Errorf("the caller got %s", r.raw)
			}
			receipt := s.receipt(t, "op", *a.Run)
			if receipt.Verdict != belay.Acknowledged || receipt.Outcome != belay.Cancelled || receipt.Work != belay.Stopped {
				t.Errorf("receipt: %s %s %s", receipt.Verdict, receipt.Outcome, receipt.Work)
			}
			told := 0
			for _, step := range receipt.Steps {
				if step.Evidence != nil && strings.HasPrefix(string(step.Evidence.Kind), "server_") {
					told++
				}
			}
			eventually(t, "a step for each server", func() bool {
				told = 0
				for _, step := range s.receipt(t, "op", *a.Run).Steps {
					if step.Evidence != nil && strings.HasPrefix(string(step.Evidence.Kind), "server_") {
						told++
					}
				}
				return told == 4
			})
		},
	}
	n := 0
	for _, name := range []string{"legacy", "modern", "operator"} {
		t.Run(name, stops[name])
		n++
		ctx, end := context.WithTimeout(t.Context(), 10*time.Second)
		defer end()
		if got := len(other.Await(ctx, "/cancel_tool_call", n)); got != n {
			t.Errorf("after %s the other server got %d cancels, want %d", name, got, n)
		}
	}
	beats := func() int64 {
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	before := beats()
	time.Sleep(150 * time.Millisecond)
	if after := beats(); after != before {
		t.Errorf("the file grows after the Stop: %d, %d", before, after)
	}
}

// TestRAP_ChoiceIsAsked: a choice is put to the caller as an elicitation, and to the
// approvals where the caller takes none; a Stop withdraws it and nothing is posted (RAP-82,
// 83, 85; acceptance 9; R6).
func TestRAP_ChoiceIsAsked(t *testing.T) {
	t.Parallel()
	selections := make(chan string, 8)
	asked := make(chan *rappeer.Invoked, 8)
	var p *rappeer.ToolServer
	p = rapPeer(t, &rappeer.ToolServer{OnChoice: func(_ context.Context, body []byte) int {
		var m map[string]any
		_ = json.Unmarshal(body, &m)
		selections <- fmt.Sprint(m["selected"])
		return 0
	}, Tools: map[string]func(*rappeer.Invoked){"write": func(c *rappeer.Invoked) {
		asked <- c
		_, _ = c.Post(map[string]any{
			"type": "user_choice", "group_id": c.Group, "id": c.ID, "prompt": "Write to /etc?", "choices": []string{"Yes", "No"}, "default": 1,
			"response_url": p.Base() + "/choice",
		})
	}}})
	s := start(t, func(c *settings) { c.servers["files"] = ofRAP(p.Base()) })

	t.Run("elicitation", func(t *testing.T) {
		prompts := make(chan string, 1)
		client := sdk.NewClient(&sdk.Implementation{Name: "acceptance", Version: "1"}, &sdk.ClientOptions{
			ElicitationHandler: func(_ context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
				prompts <- r.Params.Message
				return &sdk.ElicitResult{Action: "accept", Content: map[string]any{"choice": "Yes"}}, nil
			},
		})
		c, err := client.Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: s.url + "/mcp/files", HTTPClient: &http.Client{Transport: as("ann")}, MaxRetries: -1}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		done := make(chan *sdk.CallToolResult, 1)
		go func() {
			r, _ := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "write"})
			done <- r
		}()
		in := <-asked
		if got := <-prompts; got != "Write to /etc?" {
			t.Errorf("the caller was asked %q", got)
		}
		if got := <-selections; got != "0" {
			t.Errorf("selected %s, want 0", got)
		}
		_, _ = in.Text("written")
		if r := <-done; r == nil || r.IsError {
			t.Errorf("%+v", r)
		}
	})
	t.Run("approvals", func(t *testing.T) {
		client := s.begin(t, "ann", "files")
		got := client.call(t, `"a1"`, "write", `{}`)
		in := <-asked
		id := s.question(t, "Write to /etc?")
		a := s.do(t, "POST", "/v1/approvals/"+id, "op", `{"decision":"decline"}`)
		if a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		if got := <-selections; got != "1" {
			t.Errorf("selected %s, want 1", got)
		}
		_, _ = in.Text("not written")
		if r := wait(t, got); r.Error != nil {
			t.Errorf("%s", r.raw)
		}
	})
	t.Run("stop", func(t *testing.T) {
		client := s.begin(t, "ann", "files")
		got := client.call(t, `"stop-1"`, "write", `{}`)
		in := <-asked
		id := s.question(t, "Write to /etc?")
		s.cancel(t, "op", "stop-1", `"reason":"no"`)
		if r := wait(t, got); r.code() != -32800 {
			t.Errorf("%s", r.raw)
		}
		<-in.Cancelled
		eventually(t, "the question withdrawn", func() bool {
			a := s.do(t, "POST", "/v1/approvals/"+id, "op", `{"decision":"approve"}`)
			return a.status == 404
		})
		if status, _ := in.Text("late"); status != 200 {
			t.Errorf("a late result got %d", status)
		}
		select {
		case got := <-selections:
			t.Errorf("%s was posted after the Stop", got)
		case <-time.After(150 * time.Millisecond):
		}
	})
}

// question is the id of the open question with this text.
func (s *server) question(t testing.TB, text string) (id string) {
	t.Helper()
	eventually(t, "the question", func() bool {
		a := s.do(t, "GET", "/v1/approvals", "op", "")
		var list struct {
			Approvals []struct {
				ID       string `json:"id"`
				Question struct {
					Text string `json:"text"`
				} `json:"question"`
			} `json:"approvals"`
		}
		if err := json.Unmarshal([]byte(a.body), &list); err != nil {
			t.Fatalf("%s: %v", a.body, err)
		}
		for _, one := range list.Approvals {
			if one.Question.Text == text {
				id = one.ID
			}
		}
		return id != ""
	})
	return id
}
