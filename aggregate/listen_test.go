package aggregate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/mcp"
)

// ack is a member's acknowledgement of a subscription.
func (r *fakeCall) ack(agreed string) {
	_ = r.to.Send(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":%q,"params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s},"notifications":{%s}}}`, noticeAcknowledged, r.ID.Raw(), agreed))
}

func (r *fakeCall) news(method string) {
	_ = r.to.Send(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":%q,"params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s},"from":%q}}`, method, r.ID.Raw(), r.s.name))
}

// TestListen: a subscription is one in each member, each with its own resources;
// the caller gets one acknowledgement first, then what any member sends, under
// its own id; it ends everywhere when the caller goes (MCP-73, MCP-54).
func TestListen(t *testing.T) {
	resources := func(uri string) func(*fakeSession, *fakeCall) bool {
		return lister(map[string][]string{"resources/list": {`{"uri":"` + uri + `"}`}, "resources/templates/list": {``}})
	}
	a, b := &fake{name: "a", handle: resources("x:a")}, &fake{name: "b", handle: resources("x:b")}
	old := &fake{name: "old", handle: func(_ *fakeSession, c *fakeCall) bool {
		c.fail(mcp.CodeMethodNotFound, "what?")
		return true
	}}
	r := start(t, true, a, b, old)
	box, exchange := r.askExchange(`"s"`, mcp.MethodListen, `{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["x:b","x:nobody","x:a"]}}`)
	ca, cb := a.find(t, mcp.MethodListen), b.find(t, mcp.MethodListen)
	if !strings.Contains(string(ca.Frame), `"resourceSubscriptions":["x:a"]`) || !strings.Contains(string(cb.Frame), `"resourceSubscriptions":["x:b"]`) {
		t.Errorf("a got %s, b got %s", ca.Frame, cb.Frame)
	}
	cb.ack(`"toolsListChanged":true,"promptsListChanged":false,"resourceSubscriptions":["x:b"]`)
	cb.news(mcp.NoticeTools) // before a has acknowledged
	ca.ack(`"toolsListChanged":true,"resourceSubscriptions":["x:a"]`)
	first := box.heard(t, noticeAcknowledged)
	if want := `"params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"s"},"notifications":{"toolsListChanged":true,"resourceSubscriptions":["x:a","x:b"]}}`; !strings.Contains(first, want) {
		t.Errorf("got %s", first)
	}
	ca.news("notifications/resources/updated")
	box.heard(t, `"from":"b"`)
	if got := box.heard(t, `"from":"a"`); !strings.Contains(got, `subscriptionId":"s"`) {
		t.Errorf("got %s", got)
	}
	if box.told[0] != first || len(box.told) != 3 {
		t.Errorf("the caller was told %v", box.told)
	}
	r.s.Abandon(exchange, belay.Cancellation{Cause: belay.CauseDisconnect})
	r.dropped(box)
	until(t, "both are told", func() bool { return ca.abandoned() && cb.abandoned() })
}

// TestListenEnds: a subscription that no member has any of ends with a result; one
// that a replaced server ended is begun anew, and the caller is told what may
// have changed.
func TestListenEnds(t *testing.T) {
	a := &fake{name: "a"}
	r := start(t, true, a)
	box := r.ask("1", mcp.MethodListen, `{"notifications":{"toolsListChanged":true}}`)
	c := a.find(t, mcp.MethodListen)
	c.ack(``)
	c.answer(`{"resultType":"complete"}`)
	if got := r.result(box); got != `{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":1}}` {
		t.Errorf("got %s", got)
	}
	box.heard(t, `"notifications":{}`)

	box, exchange := r.askExchange("2", mcp.MethodListen, `{"notifications":{"toolsListChanged":true}}`)
	until(t, "a gets it", func() bool { return len(a.last().got(mcp.MethodListen)) == 2 })
	c = a.find(t, mcp.MethodListen)
	c.ack(`"toolsListChanged":true`)
	box.heard(t, noticeAcknowledged)
	c.fail(-32603, "replaced")
	until(t, "a gets it again", func() bool { return len(a.last().got(mcp.MethodListen)) == 3 })
	a.find(t, mcp.MethodListen).ack(`"toolsListChanged":true`)
	box.heard(t, mcp.NoticeTools)
	r.s.Abandon(exchange, belay.Cancellation{Cause: belay.CauseDisconnect})
	r.dropped(box)
}

// TestListenLater: a member that comes later gets the subscription, and the
// caller is told that lists have changed.
func TestListenLater(t *testing.T) {
	a, b := &fake{name: "a"}, &fake{name: "b"}
	r := start(t, true, a)
	box, exchange := r.askExchange("1", mcp.MethodListen, `{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["x:1"]}}`)
	a.find(t, mcp.MethodListen).ack(`"toolsListChanged":true`)
	box.heard(t, noticeAcknowledged)
	r.set(a, b)
	r.b.Changed()
	c := b.find(t, mcp.MethodListen)
	if !strings.Contains(string(c.Frame), `"resourceSubscriptions":[]`) {
		t.Errorf("b got %s", c.Frame)
	}
	c.ack(`"toolsListChanged":true`)
	box.heard(t, mcp.NoticeTools)
	r.b.Changed() // again: nothing
	r.s.Abandon(exchange, belay.Cancellation{Cause: belay.CauseDisconnect})
	r.dropped(box)
	until(t, "b is told", c.abandoned)
	if n := len(b.last().got(mcp.MethodListen)); n != 1 {
		t.Errorf("b was asked %d times", n)
	}
}

// TestListenBad: a subscription to nothing that could be one is refused.
func TestListenBad(t *testing.T) {
	a := &fake{name: "a"}
	r := start(t, true, a)
	for _, params := range []string{`{}`, `{"notifications":7}`, `{"notifications":{"resourceSubscriptions":7}}`, `{"notifications":{"resourceSubscriptions":[7]}}`} {
		if got := r.failure(r.ask("1", mcp.MethodListen, params)); got != mcp.CodeInvalidParams {
			t.Errorf("%s: got %d", params, got)
		}
	}
	if a.last() != nil && len(a.last().got(mcp.MethodListen)) > 0 {
		t.Error("a was asked")
	}
	old := start(t, false, &fake{name: "a"})
	if got := old.failure(old.ask("1", mcp.MethodListen, "")); got != mcp.CodeMethodNotFound {
		t.Errorf("got %d", got)
	}
}
