package aggregate

import (
	"maps"
	"strings"
	"testing"

	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
	"github.com/belayhq/belay/mcp/httpserver"
)

const news = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"7","reason":"enough"}}`

// told counts how often a caller was told something, and resets nothing.
func (b *box) toldOf(text string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, f := range b.told {
		n += strings.Count(f, text)
	}
	return n
}

// another opens a session of another caller, with the handshake done.
func (r *rig) another(principal string) (*box, httpserver.Session) {
	r.t.Helper()
	home := newBox()
	s, err := r.b.Open(r.t.Context(), httpserver.Caller{Principal: principal, Revision: "2025-11-25"}, home)
	if err != nil {
		r.t.Fatal(err)
	}
	was := r.s
	r.s = s
	r.hello()
	r.s = was
	return home, s
}

// TestTell: each legacy caller is told once, however many members there are, the
// owner's alone if there is an owner, and no member hears of it (ORC-44).
func TestTell(t *testing.T) {
	a, b := &fake{name: "a", caps: allCaps}, &fake{name: "b", caps: allCaps}
	r := begin(t, a, b)
	bob, _ := r.another("bob")
	early, err := r.b.Open(t.Context(), httpserver.Caller{Principal: "tester"}, newBox())
	if err != nil || early == nil {
		t.Fatal(err) // and it never says hello
	}
	if _, err := r.b.Shared(t.Context(), httpserver.Caller{Principal: "tester", Revision: mcp.Revision26}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		owner      string
		told       int
		mine, bobs int
	}{{"tester", 1, 1, 0}, {"bob", 1, 1, 1}, {"", 2, 2, 2}, {"nobody", 0, 2, 2}} {
		if n := r.b.Tell(c.owner, "7", []byte(news)); n != c.told {
			t.Errorf("%q: %d were told", c.owner, n)
		}
		if n, m := r.home.toldOf("enough"), bob.toldOf("enough"); n != c.mine || m != c.bobs {
			t.Errorf("after %q: told %d and %d times", c.owner, n, m)
		}
	}
	for _, f := range []*fake{a, b} {
		if !f.last().who.Part {
			t.Errorf("%s does not know that its session is a part", f.name)
		}
		for _, s := range f.sessions {
			if got := s.got("enough"); len(got) > 0 {
				t.Errorf("%s got %v", f.name, got)
			}
		}
	}
}

// TestTellLeavesOut: a caller for whom the id is in flight is not told, whichever
// side asks and of whichever JSON type the id is (DESIGN 11, 11).
func TestTellLeavesOut(t *testing.T) {
	a := &fake{name: "a", caps: allCaps}
	r := begin(t, a)
	for _, id := range []string{"7", `"7"`, `"\u0037"`} {
		open := r.ask(id, mcp.MethodCallTool, `{"name":"a__x"}`)
		if n := r.b.Tell("", "7", []byte(news)); n != 0 {
			t.Errorf("%s is in flight, and %d were told", id, n)
		}
		if n := r.b.Tell("", "8", []byte(news)); n != 1 {
			t.Errorf("of 8 %d were told", n)
		}
		var c *fakeCall
		until(t, "the call", func() bool {
			s := a.last()
			s.lock.Lock()
			defer s.lock.Unlock()
			for _, x := range s.calls {
				if x.ID.Raw() == id {
					c = x
				}
			}
			return c != nil
		})
		c.answer(`{}`)
		r.result(open)
	}
	_ = a.last().home.Send([]byte(`{"jsonrpc":"2.0","id":1,"method":"roots/list"}`))
	asked := r.home.heard(t, "roots/list")
	var e jsonrpc.Envelope
	if err := jsonrpc.Parse([]byte(asked), &e); err != nil {
		t.Fatal(err)
	}
	ours, _ := e.ID.Text()
	if n := r.b.Tell("", ours, []byte(news)); n != 0 {
		t.Errorf("the server's request %s is in flight, and %d were told", ours, n)
	}
	r.send(`{"jsonrpc":"2.0","id":"` + ours + `","result":{"roots":[]}}`)
	if n := r.b.Tell("", ours, []byte(news)); n != 1 {
		t.Errorf("the request is over, and %d were told", n)
	}
}

// TestCarriesWhatHeadersSaid: a member learns what the caller calls its request,
// at once or when it has to be reached first.
func TestCarriesWhatHeadersSaid(t *testing.T) {
	both(t, func(t *testing.T, modern bool) {
		a, b := &fake{name: "a", caps: allCaps}, &fake{name: "b", caps: allCaps}
		r := start(t, modern, a, b)
		m := &mcp.Message{}
		params := `{"name":"b__x"}`
		if modern {
			params = `{"name":"b__x",` + modernMeta + `}`
		}
		if err := m.Read([]byte(`{"jsonrpc":"2.0","id":70,"method":"tools/call","params":` + params + `}`)); err != nil {
			t.Fatal(err)
		}
		open := newBox()
		labels := map[string]string{"request_id": "r-1"}
		r.s.Deliver(mcp.Arrival{
			Message: m, To: open, Exchange: 1 << 20, ByExchange: modern, Labels: labels,
			Parent: "run_p", Traceparent: "00-x", Tracestate: "k=v", Params: []mcp.HeaderParam{{Name: "Mcp-Param-X", Value: "1"}},
		})
		c := b.find(t, mcp.MethodCallTool)
		got := c.about
		if !maps.Equal(got.Labels, labels) || got.Parent != "run_p" || got.Traceparent != "00-x" || got.Tracestate != "k=v" || len(got.Params) != 1 {
			t.Errorf("%+v", got)
		}
		c.answer(`{}`)
		<-open.settled
	})
}
