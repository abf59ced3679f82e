package gateway

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/calm"
	"github.com/belayhq/belay/internal/faketool"
)

type toolResult struct {
	Content []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	} `json:"content"`
	IsError    bool   `json:"isError"`
	ResultType string `json:"resultType"`
}

const modernMeta = `"_meta":{` + faketool.ModernMeta + `}`

// TestPartialResult: a success result that comes within partial_wait of a Stop
// by somebody else is carried by the one answer, as a tool result that says it
// was cancelled; the receipt keeps it (MCP-G25, MCP-G26).
func TestPartialResult(t *testing.T) {
	t.Parallel()
	for _, modern := range []bool{false, true} {
		t.Run(fmt.Sprint("modern ", modern), func(t *testing.T) {
			r, server, _ := play(t, linkOptions{cfg: func(c *Config) { c.PartialWait = 5 * time.Second }})
			more := ""
			if modern {
				more = "," + modernMeta
			}
			r.send(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"x"%s}}`, more)
			call := got(t, server, "tools/call")
			run := r.stop("7", "cost limit")
			got(t, server, "notifications/cancelled")
			say(t, server, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"12 of 40 \u0066iles"},{"type":"image","data":""},{"type":"text","text":"more"}]}}`, call.ID)
			m := r.expect("7")
			var result toolResult
			if m.Error != nil || json.Unmarshal(m.Result, &result) != nil || len(result.Content) != 2 {
				t.Fatalf("the answer is %s", m.Raw)
			}
			if !result.IsError || result.Content[0].Text != "Cancelled by operator: cost limit." || result.Content[1].Text != "12 of 40 files\nmore" { // AT-38
				t.Errorf("the answer is %s", m.Raw)
			}
			if want := map[bool]string{true: "complete", false: ""}[modern]; result.ResultType != want {
				t.Errorf("resultType is %q, want %q (MCP-66)", result.ResultType, want)
			}
			receipt := r.receipt(run)
			if receipt.Partial != "12 of 40 files\nmore" || receipt.Verdict != belay.Acknowledged || receipt.Late != 1 {
				t.Errorf("the receipt says %s, partial %q, late %d", receipt.Verdict, receipt.Partial, receipt.Late)
			}
			say(t, server, `{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}`, call.ID)
			say(t, server, `{"jsonrpc":"2.0","method":"notifications/marker"}`)
			got(t, r.Client, "notifications/marker")
			if n := len(r.Responses("7")); n != 1 {
				t.Errorf("the caller got %d answers, want 1", n)
			}
		})
	}
}

// TestNoPartialResult: everything else that a server can say after a Stop by
// somebody else leads to the error -32800, and methods other than tools/call
// always do (MCP-G26).
func TestNoPartialResult(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, method, reply string }{
		{"isError", "tools/call", `"result":{"content":[{"type":"text","text":"Cancelled by me"}],"isError":true}`},
		{"code 0", "tools/call", `"error":{"code":0,"message":"Request cancelled"}`},
		{"its own -32800", "tools/call", `"error":{"code":-32800,"message":"theirs"}`},
		{"no text", "tools/call", `"result":{"content":[]}`},
		{"no content", "tools/call", `"result":{}`},
		{"silence", "tools/call", ``},
		{"prompts/get", "prompts/get", `"result":{"content":[{"type":"text","text":"partial"}]}`},
		{"custom", "x/long", `"result":{"content":[{"type":"text","text":"partial"}]}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, server, _ := play(t, linkOptions{})
			r.send(`{"jsonrpc":"2.0","id":"seven","method":%q,"params":{"name":"x"}}`, c.method)
			call := got(t, server, c.method)
			w, at := calm.Start(t), time.Now()
			run := r.stop(`"seven"`, "")
			got(t, server, "notifications/cancelled")
			if c.reply != "" {
				say(t, server, `{"jsonrpc":"2.0","id":%s,%s}`, call.ID, c.reply)
			}
			m := r.expect(`"seven"`)
			if m.Error == nil || m.Error.Code != belay.CodeCancelled || m.Error.Message != "Cancelled" || !strings.Contains(m.Raw, run.ID().String()) {
				t.Errorf("the answer is %s", m.Raw)
			}
			w.Within(t, m.Time.Sub(at), 250*time.Millisecond+schedule, "the answer")
			if c.reply != "" {
				r.until("the late answer is on the receipt", func() bool { return run.Receipt().Late == 1 })
			}
			say(t, server, `{"jsonrpc":"2.0","method":"notifications/marker"}`)
			got(t, r.Client, "notifications/marker")
			never(t, r.Client, "theirs")
			if n := len(r.Responses(`"seven"`)); n != 1 {
				t.Errorf("the caller got %d answers, want 1", n)
			}
		})
	}
}

// TestCallerGivesUpToo: a cancel of the caller while an operator's Stop waits
// for a partial result means that it wants no answer any more (MCP-G24).
func TestCallerGivesUpToo(t *testing.T) {
	t.Parallel()
	r, server, _ := play(t, linkOptions{cfg: func(c *Config) { c.PartialWait = time.Second }})
	r.send(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"x"}}`)
	call := got(t, server, "tools/call")
	run := r.stop("7", "")
	got(t, server, "notifications/cancelled")
	r.cancel("7", "")
	r.until("the cancel is read", func() bool {
		r.s.mu.Lock()
		defer r.s.mu.Unlock()
		return r.s.calls["7"] == nil
	})
	say(t, server, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"partial"}]}}`, call.ID)
	r.receipt(run)
	time.Sleep(1050 * time.Millisecond)
	if n := len(r.Responses("7")); n != 0 {
		t.Errorf("the caller got %d answers, want none", n)
	}
}

// TestAnsweredAtTheEnd: Belay's own end answers what is in flight, at once and
// once (DESIGN 3, MCP-G25, MCP-G28).
func TestAnsweredAtTheEnd(t *testing.T) {
	t.Parallel()
	r := legacy(t, linkOptions{})
	r.tick("7", "w", `"n":3000`)
	r.send(`{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"hang","arguments":{"key":"h"}}}`)
	r.saw("h", "start")
	if err := r.s.Close(t.Context(), belay.Cancellation{Cause: belay.CauseShutdown, Reason: "SIGTERM"}); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"7", "8"} {
		m := r.expect(id)
		if m.Error == nil || m.Error.Code != belay.CodeCancelled || len(r.Responses(id)) != 1 {
			t.Errorf("the answer is %s", m.Raw)
		}
	}
}

// TestLateMessagesAreMuted: progress and log after a Stop are signs of life on
// the receipt and go nowhere (MCP-G27, MCP-G32).
func TestLateMessagesAreMuted(t *testing.T) {
	t.Parallel()
	r, server, _ := play(t, linkOptions{cfg: func(c *Config) { c.Enforce, c.Ladder.Grace = EnforceNever, time.Second }})
	r.send(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"x","_meta":{"progressToken":"p"}}}`)
	got(t, server, "tools/call")
	r.cancel("7", "")
	got(t, server, "notifications/cancelled")
	run := r.runOf("7")
	say(t, server, `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"late"}}`)
	r.until("signs of life", func() bool { // what comes at once may have been on its way
		say(t, server, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"b-1","progress":1,"message":"late"}}`)
		return run.Receipt().StillActive
	})
	if receipt := r.receipt(run); receipt.Verdict != belay.Signalled {
		t.Errorf("the verdict is %s", receipt.Verdict)
	}
	// When its ladder is over, log messages are nobody's again and pass.
	say(t, server, `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"of the background"}}`)
	got(t, r.Client, "of the background")
	never(t, r.Client, "late")
}

// TestAnswerAfterTheAck: a server that says that it has stopped, and answers all
// the same, is not at fault: that answer and one that nobody asked for are two
// things in the log.
func TestAnswerAfterTheAck(t *testing.T) {
	t.Parallel()
	r, server, _ := play(t, linkOptions{})
	r.s.mu.Lock()
	r.s.acks.Notify = true
	r.s.mu.Unlock()
	r.send(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"x"}}`)
	call := got(t, server, "tools/call")
	_, token, ok := strings.Cut(call.Raw, `{"token":"`)
	if !ok {
		t.Fatalf("no token in %s", call.Raw)
	}
	token, _, _ = strings.Cut(token, `"`)
	r.cancel("7", "")
	got(t, server, "notifications/cancelled")
	say(t, server, `{"jsonrpc":"2.0","method":"notifications/stop-ack","params":{"token":"%s","outcome":"stopped"}}`, token)
	if receipt := r.receipt(r.runOf("7")); receipt.Verdict != belay.Confirmed {
		t.Errorf("the verdict is %s", receipt.Verdict)
	}
	r.until("the call is forgotten", func() bool {
		r.s.mu.Lock()
		defer r.s.mu.Unlock()
		return len(r.s.current.calls) == 0
	})
	say(t, server, `{"jsonrpc":"2.0","id":%s,"result":{"to":"nobody"}}`, call.ID)
	say(t, server, `{"jsonrpc":"2.0","method":"notifications/marker"}`)
	got(t, r.Client, "notifications/marker")
	never(t, r.Client, "nobody")
	if logs := r.logs.String(); strings.Contains(logs, "not in flight") || !strings.Contains(logs, "that was given up") {
		t.Errorf("the log says:\n%s", logs)
	}
}
