package gateway

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/calm"
	"github.com/belayhq/belay/internal/faketool"
)

type message = faketool.Message

// TestModernToolStops: without any handshake a listening tool stops within
// 50 ms of its cancel, and nothing more comes (MCP-53, MCP-55, MCP-71).
func TestModernToolStops(t *testing.T) {
	for _, reply := range []string{"none", "result", "-32800"} {
		t.Run(reply, func(t *testing.T) {
			r := open(t, linkOptions{server: []string{"-era", "modern", "-reply", reply}})
			try := -1
			calm.Within(t, stopsWithin, func() (from, to time.Time) {
				try++
				key, id := fmt.Sprint("w", try), fmt.Sprint(try) // 0 comes first, as with real clients
				if err := r.CallModern(id, "tick", fmt.Sprintf(`{"key":%q,"n":2000}`, key), id); err != nil {
					t.Fatal(err)
				}
				r.saw(key, "tick")
				at := time.Now()
				r.cancel(id, "closed")
				to = r.saw(key, "stopped").Time
				r.worksModern()
				r.silent(id, at)
				r.muted(key, id)
				return at, to
			})
		})
	}
}

func (r *link) worksModern() {
	r.t.Helper()
	probes.Lock()
	probes.n++
	id := fmt.Sprintf(`"probe-%d"`, probes.n)
	probes.Unlock()
	if err := r.CallModern(id, "echo", `{"x":1}`, ""); err != nil {
		r.t.Fatal(err)
	}
	if m := r.expect(id); m.Error != nil || !strings.Contains(m.Raw, `"resultType":"complete"`) {
		r.t.Fatalf("the session does not work any more: %s", m.Raw)
	}
}

// TestModernAfterForce: a stateless session needs no replay; the next call goes
// to a fresh process, and subscriptions are sent again with their ids mapped
// (MCP-72, MCP-73, MCP-76).
func TestModernAfterForce(t *testing.T) {
	t.Parallel()
	r := open(t, linkOptions{server: []string{"-era", "modern"}, cfg: func(c *Config) { c.Enforce = EnforceStrict }})
	r.send(`{"jsonrpc":"2.0","id":"L","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},%s}}`, modernMeta)
	got(t, r.Client, "notifications/subscriptions/acknowledged")
	if err := r.CallModern("1", "tick", `{"key":"w","n":3000,"deaf":true}`, ""); err != nil {
		t.Fatal(err)
	}
	r.saw("w", "tick")
	run := r.runOf("1")
	r.cancel("1", "")
	if receipt := r.receipt(run); receipt.Verdict != belay.Confirmed {
		t.Errorf("the verdict is %s", receipt.Verdict)
	}
	r.worksModern()
	if _, err := r.wit.WaitCount("server", "listen", 2, 5*time.Second); err != nil {
		t.Fatal(err)
	}
	if err := r.CallModern("2", "list_changed", `{}`, ""); err != nil {
		t.Fatal(err)
	}
	m := got(t, r.Client, "notifications/tools/list_changed")
	if !strings.Contains(m.Raw, `"io.modelcontextprotocol/subscriptionId":"L"`) {
		t.Errorf("the caller got %s", m.Raw)
	}
	r.cancel(`"L"`, "")
	if _, err := r.wit.WaitFor("server", "unlisten", 5*time.Second); err != nil {
		t.Fatal(err)
	}
	if n := len(r.gotWith("initialize")); n != 0 {
		t.Error("a modern session was opened by initialize")
	}
}

// TestModernDiscoverReplay: a session that was opened by server/discover is
// compared by it after a forced restart, in _meta as well.
func TestModernDiscoverReplay(t *testing.T) {
	t.Parallel()
	for _, changes := range []bool{false, true} {
		t.Run(fmt.Sprint(changes), func(t *testing.T) {
			flags := []string{"-era", "modern"}
			if changes {
				flags = append(flags, "-versions")
			}
			r := open(t, linkOptions{server: flags, cfg: func(c *Config) { c.Enforce = EnforceStrict }})
			r.send(`{"jsonrpc":"2.0","id":"d","method":"server/discover","params":{%s}}`, modernMeta)
			r.expect(`"d"`)
			if err := r.CallModern("1", "tick", `{"key":"w","n":3000,"deaf":true}`, ""); err != nil {
				t.Fatal(err)
			}
			r.saw("w", "tick")
			r.cancel("1", "")
			r.receipt(r.runOf("1"))
			if !changes {
				r.worksModern()
				return
			}
			if err := r.CallModern("2", "echo", `{}`, ""); err != nil {
				t.Fatal(err)
			}
			if m := r.expect("2"); m.Error == nil || !strings.Contains(m.Error.Message, "not the same") {
				t.Errorf("the call was answered %s", m.Raw)
			}
		})
	}
}

// TestErasTogether: one process serves both, and each call is cancelled in its
// own way (MCP-71).
func TestErasTogether(t *testing.T) {
	t.Parallel()
	r := legacy(t, linkOptions{})
	r.tick("1", "legacy", `"n":2000`)
	if err := r.CallModern("2", "tick", `{"key":"modern","n":2000}`, ""); err != nil {
		t.Fatal(err)
	}
	r.saw("modern", "tick")
	r.cancel("2", "")
	r.saw("modern", "stopped")
	r.cancel("1", "")
	r.saw("legacy", "stopped")
	cancels := r.gotWith("notifications/cancelled")
	if len(cancels) != 2 || !strings.Contains(cancels[0], "_meta") || strings.Contains(cancels[1], "_meta") {
		t.Errorf("the server got %v", cancels)
	}
	r.works()
}

// TestSubscriptionWithoutProcess: when no fresh process can take its place, a
// subscription is ended with an error: silence would look like a server where
// nothing happens (MCP-76, MCP-G28).
func TestSubscriptionWithoutProcess(t *testing.T) {
	t.Parallel()
	r := open(t, linkOptions{server: []string{"-era", "modern", "-versions"}, cfg: strictly})
	r.send(`{"jsonrpc":"2.0","id":"d","method":"server/discover","params":{%s}}`, modernMeta)
	r.expect(`"d"`)
	r.send(`{"jsonrpc":"2.0","id":"L","method":"subscriptions/listen","params":{%s}}`, modernMeta)
	got(t, r.Client, "notifications/subscriptions/acknowledged")
	if err := r.CallModern("1", "crash", `{}`, ""); err != nil {
		t.Fatal(err)
	}
	r.expect("1")
	if m := r.expect(`"L"`); m.Error == nil {
		t.Errorf("the subscription was answered %s", m.Raw)
	}
}
