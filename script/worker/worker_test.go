package worker_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/belayhq/belay/internal/calm"
	"github.com/belayhq/belay/script"
	"github.com/belayhq/belay/script/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// load writes a project and loads it.
func load(t *testing.T, id, body string) *script.Tool {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		script.ManifestFile:  fmt.Sprintf(`{"id":%q,"displayName":"A tool","description":"Does it.","parameters":[{"name":"n","type":"integer"}]}`, id),
		"assistant_tool.tsx": "AssistantTool.registerExecuteTool<any>(async (params: any) => {\n" + body + "\n})",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tool, err := script.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return tool
}

// wire is a raw client of a worker: what it reads are lines.
type wire struct {
	t    *testing.T
	to   io.WriteCloser
	from *bufio.Scanner
}

// open serves tools to a client that has said hello.
func open(t *testing.T, o worker.Options) *wire {
	t.Helper()
	return openWith(t, o, "{}")
}

// openWith is open for a client with capabilities.
func openWith(t *testing.T, o worker.Options, capabilities string) *wire {
	t.Helper()
	in, to := io.Pipe()
	from, out := io.Pipe()
	ended := make(chan error, 1)
	w := worker.New(o)
	go func() { ended <- w.Serve(context.Background(), in, out); _ = out.Close() }()
	c := &wire{t: t, to: to, from: bufio.NewScanner(from)}
	t.Cleanup(func() {
		_ = to.Close()
		go func() { _, _ = io.Copy(io.Discard, from) }()
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			t.Error("the worker did not end")
		}
		_ = from.Close()
	})
	c.send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":` + capabilities + `,"clientInfo":{"name":"t","version":"1"}}}`)
	c.expect(`"id":0`, `stop-ack`)
	c.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return c
}

func (c *wire) send(line string) {
	c.t.Helper()
	if _, err := io.WriteString(c.to, line+"\n"); err != nil {
		c.t.Fatal(err)
	}
}

// expect reads on to the first line that has all of the words.
func (c *wire) expect(words ...string) string {
	c.t.Helper()
	for c.from.Scan() {
		found := true
		for _, w := range words {
			found = found && strings.Contains(c.from.Text(), w)
		}
		if found {
			return c.from.Text()
		}
	}
	c.t.Fatalf("the worker ended before it said %q", words)
	return ""
}

// TestWorker lists, calls and refuses (AT-36, AT-47, AT-54, AT-57, AT-71).
func TestWorker(t *testing.T) {
	c := open(t, worker.Options{Tools: []*script.Tool{load(t, "count", `
		AssistantTool.report("at it")
		return {success: true, output: {assistantParts: ["for the model " + params.n], userParts: ["for you"]}}`)}})
	c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	c.expect(`"id":1`, `"name":"count"`, `"title":"A tool"`, `"additionalProperties":false`)
	c.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"count","arguments":{"n":7},"_meta":{"progressToken":"p"}}}`)
	c.expect(`notifications/progress`, `at it`, `"p"`)
	c.expect(`"id":2`, `"text":"for the model 7"`, `"audience":["assistant"]`, `"text":"for you"`, `"audience":["user"]`)
	c.send(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"count","arguments":{"m":7}}}`)
	c.expect(`"id":3`, `-32602`, `there is no parameter`)
}

// TestWorkerStop hands back what there is at once, and acknowledges when the script
// has ended (AT-15, AT-16, AT-37).
func TestWorkerStop(t *testing.T) {
	c := open(t, worker.Options{Tools: []*script.Tool{load(t, "slow", `
		AssistantTool.onCancel = () => "half of it"
		AssistantTool.report("now")
		while (!AssistantTool.isCancelled) await new Promise(r => setTimeout(r, 5))
		await new Promise(r => setTimeout(r, 300))
		return`)}})
	c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow","arguments":{},"_meta":{"progressToken":1,"io.github.belayhq/stop-ack":{"token":"secret"}}}}`)
	c.expect(`notifications/progress`, `now`)
	weather, stop := calm.Start(t), time.Now()
	c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	c.expect(`notifications/stop-ack`, `"outcome":"running"`, `"partial":"half of it"`, `"token":"secret"`)
	weather.Within(t, time.Since(stop), 250*time.Millisecond, "handed back")
	c.expect(`notifications/stop-ack`, `"outcome":"stopped"`, `"partial":"half of it"`)
	if time.Since(stop) < 300*time.Millisecond {
		t.Error("acknowledged before the script had ended")
	}
}

// TestWorkerBusy refuses a call too many of one tool (AT-88).
func TestWorkerBusy(t *testing.T) {
	c := open(t, worker.Options{AtOnce: 1, Tools: []*script.Tool{
		load(t, "wait", `AssistantTool.report("now"); await new Promise(r => setInterval(() => { if (AssistantTool.isCancelled) r(0) }, 5))`),
		load(t, "other", `return {success: true, message: "free"}`),
	}})
	c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait","arguments":{},"_meta":{"progressToken":1}}}`)
	c.expect("now")
	c.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"wait","arguments":{}}}`)
	c.expect(`"id":2`, script.TextBusy, `"isError":true`)
	c.send(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"other","arguments":{}}}`)
	c.expect(`"id":3`, "free")
	c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
}

// TestAT37_NoAnswer: a cancelled call is answered only where its script came to a
// result of its own, too late (AT-24, AT-37).
func TestAT37_NoAnswer(t *testing.T) {
	c := open(t, worker.Options{Tools: []*script.Tool{
		load(t, "bare", `AssistantTool.report("now"); await new Promise(r => setInterval(() => { if (AssistantTool.isCancelled) (globalThis as any).Script.exit() }, 5))`),
		load(t, "late", `AssistantTool.report("now"); while (!AssistantTool.isCancelled) await new Promise(r => setTimeout(r, 5)); return {success: true, message: "LATE"}`),
		load(t, "other", `return {success: true, message: "free"}`),
	}})
	for i, tool := range []string{"bare", "late"} {
		c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":{},"_meta":{"progressToken":1,"io.github.belayhq/stop-ack":{"token":"t-%d"}}}}`, i+1, tool, i))
		c.expect("now")
		c.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, i+1))
		if tool == "bare" {
			c.expect(`"outcome":"stopped"`, `"ended":"returned"`, `"token":"t-0"`)
		}
	}
	answered := c.expect(`"id":`, `"error"`)
	if !strings.Contains(answered, `"id":2`) || strings.Contains(answered, "LATE") {
		t.Errorf("answered %s", answered)
	}
	c.send(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"other","arguments":{}}}`)
	c.expect(`"id":3`, "free")
}
