package worker_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay/script"
	"github.com/belayhq/belay/script/worker"
)

// approved is a tool that wants approval, says by which flags it was called, and
// shows a preview.
const approved = `
AssistantTool.registerApprovalRequest<any>(async (p: any) => ({
	title: "Sure?", message: "Delete " + p.n + " files?", primaryButtonLabel: "Delete", secondaryButtonLabel: "Keep",
	previewButton: {label: "Show", action: async () => {
		AssistantTool.report("a.txt")
		await new Promise(r => setTimeout(r, 5))
		AssistantTool.report("b.txt")
		if (p.n === 13) throw new Error("bad luck")
	}},
}))
AssistantTool.registerExecuteToolWithApproval<any>(async (p: any, a: any) => {
	AssistantTool.onCancel = () => "never asked for"
	return {success: a.primaryConfirmed, message: "flags " + a.primaryConfirmed + " " + a.secondaryConfirmed}
})`

func asksFirst(t *testing.T) *script.Tool {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		script.ManifestFile:  `{"id":"delete","displayName":"Delete files","description":"Does it.","requireApproval":true,"parameters":[{"name":"n","type":"integer"}]}`,
		"assistant_tool.tsx": approved,
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

// asked calls the tool as a client that takes the worker's own questions, and returns
// the id of its question.
func (c *wire) asked(id, n int, more string) string {
	c.t.Helper()
	c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"delete","arguments":{"n":%d},"_meta":{"io.github.belayhq/ask":{"call":"c-%d"}%s}}}`, id, n, id, more))
	line := c.expect(`"method":"io.github.belayhq/ask"`, fmt.Sprintf(`"call":"c-%d"`, id))
	for _, part := range []string{`"title":"Sure?"`, fmt.Sprintf(`"message":"Delete %d files?"`, n), `"primary":"Delete"`, `"secondary":"Keep"`, `"preview":"Show"`} {
		if !strings.Contains(line, part) {
			c.t.Errorf("%s lacks %s", line, part)
		}
	}
	var m struct{ ID string }
	if err := json.Unmarshal([]byte(line), &m); err != nil {
		c.t.Fatal(err)
	}
	return m.ID
}

// TestAT61_TheWorkersQuestion: each answer is what the script gets, and a call without
// approval says so (AT-61, AT-62).
func TestAT61_TheWorkersQuestion(t *testing.T) {
	c := open(t, worker.Options{Tools: []*script.Tool{asksFirst(t)}, AskTimeout: 90 * time.Second})
	for i, x := range []struct {
		answer, flags string
		declined      bool
	}{
		{`"result":{"answer":"primary"}`, "flags true false", false},
		{`"result":{"answer":"secondary"}`, "flags false true", true},
		{`"result":{"answer":"dismissed"}`, "flags false false", true},
		{`"result":{"answer":"approved"}`, "flags false false", true},
		{`"result":{"answer":true}`, "flags false false", true},
		{`"result":{}`, "flags false false", true},
		{`"error":{"code":-32600,"message":"nobody is there"}`, "flags false false", true},
	} {
		id := c.asked(i+1, 2, "")
		c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,%s}`, id, x.answer))
		line := c.expect(fmt.Sprintf(`"id":%d`, i+1), x.flags)
		if strings.Contains(line, `"io.github.belayhq/outcome":"declined"`) != x.declined || strings.Contains(line, `"isError":true`) != x.declined {
			t.Errorf("%s: %s", x.answer, line)
		}
		c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,%s}`, id, x.answer)) // once more: dropped
	}
}

// TestAT60_PreviewByTheClient: it is run while the question is open, and what it
// reports is the answer; what is wrong with it is logged only.
func TestAT60_PreviewByTheClient(t *testing.T) {
	c := open(t, worker.Options{Tools: []*script.Tool{asksFirst(t)}})
	look := func(id int, call string) {
		c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"io.github.belayhq/preview","params":{"call":%q}}`, id, call))
	}
	look(50, "c-1")
	c.expect(`"id":50`, `-32602`) // nothing is open
	for i, n := range []int{2, 13} {
		id := c.asked(i+1, n, `,"progressToken":"p"`)
		for j := range 2 { // as often as one likes
			look(100+10*i+j, fmt.Sprintf("c-%d", i+1))
			c.expect(fmt.Sprintf(`"id":%d`, 100+10*i+j), `"text":"a.txt\nb.txt"`)
		}
		look(60+i, "c-9")
		c.expect(fmt.Sprintf(`"id":%d`, 60+i), `-32602`)
		c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"result":{"answer":"primary"}}`, id))
		c.expect(fmt.Sprintf(`"id":%d`, i+1), "flags true false")
		look(70+i, fmt.Sprintf("c-%d", i+1))
		c.expect(fmt.Sprintf(`"id":%d`, 70+i), `-32602`) // it is over
	}
}

// TestAT65_TheWorkerTakesItsQuestionBack when the call is stopped: neither the execute
// function nor onCancel is called (AT-19, AT-65).
func TestAT65_TheWorkerTakesItsQuestionBack(t *testing.T) {
	c := open(t, worker.Options{Tools: []*script.Tool{asksFirst(t)}})
	id := c.asked(1, 2, `,"io.github.belayhq/stop-ack":{"token":"secret"}`)
	c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	var seen []string
	for c.from.Scan() { // both come, in whatever order
		seen = append(seen, c.from.Text())
		all := strings.Join(seen, "\n")
		if strings.Contains(all, `"requestId":"`+id+`"`) && strings.Contains(all, `"outcome":"stopped"`) {
			break
		}
	}
	all := strings.Join(seen, "\n")
	if strings.Contains(all, "never asked for") || strings.Contains(all, "flags") || !strings.Contains(all, "notifications/cancelled") {
		t.Errorf("the worker said %s", all)
	}
	c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"result":{"answer":"primary"}}`, id)) // too late
	c.send(`{"jsonrpc":"2.0","id":2,"method":"ping"}`)
	c.expect(`"id":2`)
}

// TestAT65_TheWordOvertakesTheStop: a client that says of the question that the call was
// stopped, before it says so of the call, does not make the script go on.
func TestAT65_TheWordOvertakesTheStop(t *testing.T) {
	c := open(t, worker.Options{Tools: []*script.Tool{asksFirst(t)}})
	id := c.asked(1, 2, `,"io.github.belayhq/stop-ack":{"token":"secret"}`)
	c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"error":{"code":-32800,"message":"cancelled"}}`, id))
	c.send(`{"jsonrpc":"2.0","id":2,"method":"ping"}`)
	c.expect(`"id":2`)
	c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	if line := c.expect(`"token":"secret"`); !strings.Contains(line, `"outcome":"stopped"`) || strings.Contains(line, "partial") {
		t.Errorf("the worker said %s", line)
	}
	c.send(`{"jsonrpc":"2.0","id":3,"method":"ping"}`)
	if line := c.expect(`"id":`); !strings.Contains(line, `"id":3`) {
		t.Errorf("the script went on: %s", line)
	}
}

// TestAT61_TheClientForgets a question: the script goes on all the same.
func TestAT61_TheClientForgets(t *testing.T) {
	t.Parallel()
	c := open(t, worker.Options{Tools: []*script.Tool{asksFirst(t)}, AskTimeout: time.Millisecond})
	c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"delete","arguments":{"n":1},"_meta":{"io.github.belayhq/ask":{"call":"c-1"}}}}`)
	c.expect(`"method":"io.github.belayhq/ask"`, `"timeoutMs":1`)
	c.expect(`"id":1`, "flags false false")
}

// TestAT66_ElicitationWithoutTheGateway: a client of the protocol alone is asked by a
// form, in which the preview is a choice after which it is asked again; who takes no
// questions is not asked (AT-60, AT-61).
func TestAT66_ElicitationWithoutTheGateway(t *testing.T) {
	plain := open(t, worker.Options{Tools: []*script.Tool{asksFirst(t)}})
	plain.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"delete","arguments":{"n":1}}}`)
	plain.expect(`"id":1`, "flags false false", `"declined"`)

	c := openWith(t, worker.Options{Tools: []*script.Tool{asksFirst(t)}}, `{"elicitation":{}}`)
	answers := func(label string) {
		line := c.expect(`"elicitation/create"`, `"enum":["Delete","Keep","Show"]`)
		var m struct{ ID json.RawMessage }
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err)
		}
		c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept","content":{"answer":%q}}}`, m.ID, label))
	}
	c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"delete","arguments":{"n":1}}}`)
	answers("Show")
	line := c.expect(`"elicitation/create"`, `Show:\na.txt\nb.txt`)
	var m struct{ ID json.RawMessage }
	if err := json.Unmarshal([]byte(line), &m); err != nil {
		t.Fatal(err)
	}
	c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept","content":{"answer":"Delete"}}}`, m.ID))
	c.expect(`"id":1`, "flags true false")
	c.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"delete","arguments":{"n":1}}}`)
	answers("Keep")
	c.expect(`"id":2`, "flags false true")
}

// TestAT66_ManyAtOnce: answers find their questions.
func TestAT66_ManyAtOnce(t *testing.T) {
	const n = 8
	c := open(t, worker.Options{Tools: []*script.Tool{asksFirst(t)}, AtOnce: n})
	ids := map[int]string{}
	for i := range n {
		ids[i] = c.asked(i+1, i, "")
	}
	for i, id := range ids {
		answer, flags := "primary", "flags true false"
		if i%2 == 0 {
			answer, flags = "secondary", "flags false true"
		}
		c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"result":{"answer":%q}}`, id, answer))
		c.expect(fmt.Sprintf(`"id":%d`, i+1), flags)
	}
}

// TestAT64_AnEmptyMessage is a string: the title is what there is to read.
func TestAT64_AnEmptyMessage(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		script.ManifestFile: `{"id":"delete","displayName":"Delete files","description":"Does it.","requireApproval":true,"parameters":[]}`,
		"assistant_tool.ts": `AssistantTool.registerApprovalRequest(async () => ({message: "", primaryButtonLabel: "Go"}))
AssistantTool.registerExecuteToolWithApproval(async (p, a) => ({success: a.primaryConfirmed, message: "done"}))`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tool, err := script.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	c := open(t, worker.Options{Tools: []*script.Tool{tool}})
	c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"delete","arguments":{},"_meta":{"io.github.belayhq/ask":{"call":"c-1"}}}}`)
	c.expect(`"message":"Delete files"`)
	c.send(`{"jsonrpc":"2.0","id":"ask-1","result":{"answer":"primary"}}`)
	c.expect(`"id":1`, "done")
}
