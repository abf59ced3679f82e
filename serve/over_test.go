package serve

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
)

// TestSharedStopped: an operator's Stop of the session that modern callers share
// ends what is in it. The next call gets a fresh one at once, while the old one's
// process is still being ended.
func TestSharedStopped(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.apply(r.fake("tools", "-era", "modern", "-deaf-term", "-stay"))
	r.works(true, "")
	list, err := r.tree.List(context.Background(), belay.Filter{Kinds: []belay.Kind{belay.KindSession}})
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	_, err = r.tree.Cancel(context.Background(), belay.CancelRequest{
		Filter:       belay.Filter{IDs: []belay.RunID{list[0].ID}},
		Cancellation: belay.Cancellation{Cause: belay.CauseOperator, By: "operator", Via: "test", Reason: "enough"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if a := r.must(r.modern("tools", "echo", `{"text":"fine"}`)); a.status != 200 || !strings.Contains(a.body, `"result"`) {
			t.Errorf("%+v", a)
		}
	}
}

// TestApplyMeetsExchange: a request that was on its way when its server's
// definition changed is served by the old one, however long its body takes.
func TestApplyMeetsExchange(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	before := r.fake("tools", "-era", "modern")
	before.Labels = map[string]string{"n": "1"}
	r.apply(before)
	front, back := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.web.URL+Path("tools"), front)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "echo",
	} {
		req.Header.Set(name, value)
	}
	got := async(func() (answer, error) {
		resp, err := r.client.Do(req)
		if err != nil {
			return answer{}, err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		return answer{status: resp.StatusCode, body: string(text)}, err
	})
	if _, err := io.WriteString(back, `{"jsonrpc":"2.0","id":0,"method":"tools/call",`); err != nil {
		t.Fatal(err)
	}
	e := r.hub.endpoints()[0]
	r.eventually("the hub has the exchange", func() bool { return e.exchanges.Load() == 1 })
	r.apply(r.fake("tools", "-era", "modern"))
	time.Sleep(3 * leaveQuiet / 2)
	_, _ = io.WriteString(back, `"params":{"name":"echo","arguments":{"text":"fine"},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`)
	_ = back.Close()
	if a := r.wait(got, 10*time.Second); a.status != 200 || !strings.Contains(a.body, "fine") {
		t.Errorf("%+v", a)
	}
	r.eventually("the old definition leaves", func() bool { return r.health().Servers[0].Leaving == 0 })
}
