package gateway

import (
	"testing"

	"github.com/belayhq/belay"
)

// TestStoppedTask: that a request became a task proves nothing about its work;
// the server's record of the cancelled task is its word and no more (MCP-47,
// MCP-48, MCP-G31, A5).
func TestStoppedTask(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, answer string
		want         belay.Verdict
	}{
		{"cancelled", `"result":{"taskId":"t","status":"cancelled"}`, belay.Acknowledged},
		{"over already", `"error":{"code":-32602,"message":"task is completed"}`, belay.Acknowledged},
		{"goes on", `"result":{"taskId":"t","status":"working"}`, belay.Signalled},
		{"empty", `"result":{}`, belay.Signalled},
		{"silence", ``, belay.Signalled},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, server, _ := play(t, linkOptions{cfg: func(c *Config) { c.Enforce = EnforceNever }})
			r.send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}`)
			m := got(t, server, "initialize")
			say(t, server, `{"jsonrpc":"2.0","id":%s,"result":{"capabilities":{"tasks":{}}}}`, m.ID)
			r.expect("0")
			r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","task":{"ttl":1}}}`)
			m = got(t, server, "tools/call")
			run := r.runOf("1")
			r.cancel("1", "")
			r.until("the Stop is known", func() bool { return run.Cancellation() != nil })
			say(t, server, `{"jsonrpc":"2.0","id":%s,"result":{"task":{"taskId":"t","status":"working"}}}`, m.ID)
			m = got(t, server, "tasks/cancel")
			if c.answer != "" {
				say(t, server, `{"jsonrpc":"2.0","id":%s,%s}`, m.ID, c.answer)
			}
			if receipt := r.receipt(run); receipt.Verdict != c.want {
				t.Errorf("the verdict is %s, want %s: %+v", receipt.Verdict, c.want, receipt.Steps)
			}
			never(t, server, "notifications/cancelled")
		})
	}
}
