package aggregate

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
	"github.com/belayhq/belay/mcp/httpserver"
)

// TestCancelReachesOwner: a cancel goes to the server at work and to no other, and
// the caller gets nothing more for that id (MCP-G12, MCP-G24).
func TestCancelReachesOwner(t *testing.T) {
	a, b := &fake{name: "a", caps: allCaps}, &fake{name: "b", caps: allCaps}
	r := begin(t, a, b)
	mine := r.ask("7", mcp.MethodCallTool, `{"name":"a__x"}`)
	theirs := r.ask(`"7"`, mcp.MethodCallTool, `{"name":"b__x"}`)
	a.find(t, mcp.MethodCallTool)
	c := b.find(t, mcp.MethodCallTool)
	r.notify(mcp.NoticeCancelled, `{"requestId":"7","reason":"enough"}`)
	r.dropped(theirs)
	if got := b.last().got(`"reason":"enough"`); len(got) != 1 {
		t.Errorf("b got %v", b.last().frames)
	}
	if len(a.last().got(mcp.NoticeCancelled)) != 0 {
		t.Error("a was told as well")
	}
	if c.to.Answer(0, []byte(`{"jsonrpc":"2.0","id":"7","result":{}}`)) == nil {
		t.Error("a late answer was taken")
	}
	a.find(t, mcp.MethodCallTool).answer(`{}`)
	r.result(mine)
	// Again, for what has ended, and malformed: nothing happens (MCP-21, MCP-22).
	for _, params := range []string{`{"requestId":"7"}`, `{"requestId":7}`, `{"requestId":null}`, `{}`, `{"requestId":{}}`} {
		r.notify(mcp.NoticeCancelled, params)
	}
	if n := len(a.last().got(mcp.NoticeCancelled)) + len(b.last().got(mcp.NoticeCancelled)); n != 1 {
		t.Errorf("servers were told %d times", n)
	}
}

// TestAbandonReachesOwner: a closed stream stops its own call, also where other
// exchanges have the same id (MCP-54, MCP-G7).
func TestAbandonReachesOwner(t *testing.T) {
	both(t, func(t *testing.T, modern bool) {
		a, b := &fake{name: "a", caps: allCaps}, &fake{name: "b", caps: allCaps}
		r := start(t, modern, a, b)
		id := "2"
		if modern {
			id = "1"
		}
		mine, _ := r.askExchange("1", mcp.MethodCallTool, `{"name":"a__x"}`)
		theirs, exchange := r.askExchange(id, mcp.MethodCallTool, `{"name":"b__x"}`)
		ca, cb := a.find(t, mcp.MethodCallTool), b.find(t, mcp.MethodCallTool)
		if ca.exchange>>63 == 0 || ca.exchange == cb.exchange {
			t.Error("the members' exchanges could meet those of their own callers")
		}
		r.s.Abandon(exchange, belay.Cancellation{Cause: belay.CauseDisconnect})
		r.dropped(theirs)
		if !cb.abandoned() || ca.abandoned() {
			t.Errorf("abandoned: a %v, b %v", ca.abandoned(), cb.abandoned())
		}
		ca.answer(`{}`)
		r.result(mine)
		r.s.Abandon(exchange, belay.Cancellation{}) // again
		r.s.Abandon(12345, belay.Cancellation{})    // never seen
	})
}

// TestStopList: a list that is stopped is stopped in every server (MCP-G24).
func TestStopList(t *testing.T) {
	both(t, func(t *testing.T, modern bool) {
		a, b := &fake{name: "a", caps: allCaps}, &fake{name: "b", caps: allCaps}
		r := start(t, modern, a, b)
		box, exchange := r.askExchange("1", "tools/list", "")
		ca, cb := a.find(t, "tools/list"), b.find(t, "tools/list")
		if modern {
			r.s.Abandon(exchange, belay.Cancellation{Cause: belay.CauseDisconnect})
		} else {
			r.notify(mcp.NoticeCancelled, `{"requestId":1}`)
		}
		r.dropped(box)
		until(t, "both are told", func() bool { return ca.abandoned() && cb.abandoned() })
	})
}

// TestEarlyCancel: a cancel that overtakes its call stops it on arrival; the
// server never sees it (MCP-G17).
func TestEarlyCancel(t *testing.T) {
	a := &fake{name: "a", caps: allCaps}
	r := begin(t, a)
	r.notify(mcp.NoticeCancelled, `{"requestId":9}`)
	r.dropped(r.ask("9", mcp.MethodCallTool, `{"name":"a__x"}`))
	if len(a.last().got("tools/call")) != 0 {
		t.Error("the call was started")
	}
	box := r.ask("10", mcp.MethodCallTool, `{"name":"a__x"}`)
	a.find(t, mcp.MethodCallTool).answer(`{}`)
	r.result(box)
}

// TestCancelPosted: on modern HTTP a cancel that comes by an exchange of its own
// counts only where the transport vouches for it and one call has the id
// (MCP-G13).
func TestCancelPosted(t *testing.T) {
	a := &fake{name: "a", caps: allCaps}
	r := start(t, true, a)
	one, two := r.ask("1", mcp.MethodCallTool, `{"name":"a__x"}`), r.ask("2", mcp.MethodCallTool, `{"name":"a__x"}`)
	twin := r.ask("2", mcp.MethodCallTool, `{"name":"a__x"}`)
	until(t, "three calls", func() bool { return len(a.last().got("tools/call")) == 3 })
	cancel := func(id string, byExchange bool) {
		m := &mcp.Message{}
		if err := m.Read(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`, id)); err != nil {
			t.Fatal(err)
		}
		r.s.Deliver(mcp.Arrival{Message: m, ByExchange: byExchange})
	}
	cancel("1", false)
	cancel("2", true)
	cancel("1", true)
	r.dropped(one)
	a.last().lock.Lock()
	gone := len(a.last().gone)
	a.last().lock.Unlock()
	if gone != 1 {
		t.Errorf("%d calls were stopped, want 1", gone)
	}
	for _, c := range a.last().calls {
		c.answer(`{}`)
	}
	r.result(two)
	r.result(twin)
}

// TestTwoSessions: equal ids of two callers are strangers.
func TestTwoSessions(t *testing.T) {
	a := &fake{name: "a", caps: allCaps}
	one := begin(t, a)
	two := begin(t, a)
	first := one.ask("1", mcp.MethodCallTool, `{"name":"a__x"}`)
	second := two.ask("1", mcp.MethodCallTool, `{"name":"a__x"}`)
	one.notify(mcp.NoticeCancelled, `{"requestId":1}`)
	one.dropped(first)
	a.find(t, mcp.MethodCallTool).answer(`{}`)
	two.result(second)
}

// TestAsks: members count their requests to the caller from b-1 each; each answer,
// progress and cancel goes to its own (MCP-G8, MCP-G9).
func TestAsks(t *testing.T) {
	a, b := &fake{name: "a", caps: allCaps}, &fake{name: "b", caps: allCaps}
	r := begin(t, a, b)
	call := r.ask("1", mcp.MethodCallTool, `{"name":"b__x"}`)
	c := b.find(t, mcp.MethodCallTool)
	ask := []byte(`{"jsonrpc":"2.0","id":"b-1","method":"sampling/createMessage","params":{"who":1.0,"_meta":{"progressToken":"b-1"}}}`)
	if err := a.last().home.Send(ask); err != nil { // of no call
		t.Fatal(err)
	}
	if err := c.to.Send(ask); err != nil { // on the call's stream
		t.Fatal(err)
	}
	ids := make([]string, 2)
	for i, box := range []*box{r.home, call} {
		m := &mcp.Message{}
		frame := box.heard(t, "sampling/createMessage")
		if err := m.Read([]byte(frame)); err != nil {
			t.Fatal(err)
		}
		ids[i] = m.ID.Raw()
		if m.ProgressToken() != m.ID || !strings.Contains(frame, `"who":1.0`) {
			t.Errorf("the caller got %s", frame)
		}
	}
	if ids[0] == ids[1] {
		t.Fatalf("both have the id %s", ids[0])
	}
	r.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + ids[1] + `,"progress":1}}`)
	r.send(`{"jsonrpc":"2.0","id":` + ids[1] + `,"result":{"model":"for b"}}`)
	r.send(`{"jsonrpc":"2.0","id":` + ids[0] + `,"error":{"code":-1,"message":"for a"}}`)
	if got := b.last().got(`"b-1"`); len(got) != 2 || !strings.Contains(got[0], `"progressToken":"b-1"`) || !strings.Contains(got[1], "for b") {
		t.Errorf("b got %v", got)
	}
	if got := a.last().got(`"b-1"`); len(got) != 1 || !strings.Contains(got[0], "for a") {
		t.Errorf("a got %v", got)
	}
	r.send(`{"jsonrpc":"2.0","id":` + ids[0] + `,"result":{}}`) // a second answer
	r.send(`{"jsonrpc":"2.0","id":"b-99","result":{}}`)         // to nobody
	r.send(`{"jsonrpc":"2.0","id":"b-1\u0000","result":{}}`)    // likewise
	if len(a.last().got(`"b-1"`)) != 1 {
		t.Error("a was answered twice")
	}
	c.answer(`{}`)
	r.result(call)
}

// TestAskCancelled: a member's cancel of its own request reaches the caller under
// the id that the caller knows; so do those of a call that was cancelled, and
// those of a member that died (MCP-G9, MCP-G22).
func TestAskCancelled(t *testing.T) {
	a, b := &fake{name: "a", caps: allCaps}, &fake{name: "b", caps: allCaps}
	r := begin(t, a, b)
	ask := func(to mcp.Outlet, id string) {
		t.Helper()
		if err := to.Send(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%q,"method":"elicitation/create","params":{"n":%q}}`, id, id)); err != nil {
			t.Fatal(err)
		}
	}
	known := func(b *box, n string) string {
		m := &mcp.Message{}
		if err := m.Read([]byte(b.heard(t, `"n":"`+n+`"`))); err != nil {
			t.Fatal(err)
		}
		return m.ID.Raw()
	}
	ask(a.last().home, "b-1")
	ask(b.last().home, "b-2")
	own, others := known(r.home, "b-1"), known(r.home, "b-2")
	for _, id := range []string{"b-2", "b-1"} { // b-2 is none of a's
		if err := a.last().home.Send(mcp.AppendCancelled(nil, jsonrpc.StringID(id), "never mind", mcp.Legacy)); err != nil {
			t.Fatal(err)
		}
	}
	r.home.heard(t, `"requestId":`+own)
	if !r.home.silent(`"requestId":` + others) {
		t.Error("a member cancelled another's question")
	}

	call := r.ask("1", mcp.MethodCallTool, `{"name":"b__x"}`)
	ask(b.find(t, mcp.MethodCallTool).to, "b-3")
	id := known(call, "b-3")
	r.notify(mcp.NoticeCancelled, `{"requestId":1}`)
	r.dropped(call)
	call.heard(t, `"requestId":`+id)

	b.last().die()
	r.home.heard(t, `"requestId":`+others)
	if n := len(r.s.(*session).asks); n != 0 {
		t.Errorf("%d questions are left", n)
	}
}

// TestNotices: what members announce passes, and what belongs to a call goes on
// its own stream as it came (MCP-41, MCP-74).
func TestNotices(t *testing.T) {
	a := &fake{name: "a", caps: allCaps}
	r := newRig(t, false, Config{}, a)
	r.result(r.ask(`"init"`, "initialize", `{"protocolVersion":"2025-11-25"}`))
	early := []byte(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"early":1}}`)
	_ = a.last().home.Send(early)
	r.notify("notifications/initialized", "")
	if !r.home.silent("early") {
		t.Error("a list changed before there was one")
	}
	for _, method := range []string{mcp.NoticeTools, "notifications/resources/updated", mcp.NoticeLog, mcp.NoticeTaskStatus, "vendor/news"} {
		frame := fmt.Sprintf(`{"jsonrpc":"2.0","method":%q,"params":{"uri":"x:1", "n":1.0}}`, method)
		_ = a.last().home.Send([]byte(frame))
		if got := r.home.heard(t, method+`"`); got != frame {
			t.Errorf("got %s", got)
		}
	}
	box := r.ask("1", mcp.MethodCallTool, `{"name":"a__x","_meta":{"progressToken":1.0}}`)
	c := a.find(t, mcp.MethodCallTool)
	at := c.ProgressToken().Raw()
	_ = c.to.Send(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1}}`, at))
	if got := box.heard(t, "progressToken"); !strings.Contains(got, `"progressToken":1.0,`) {
		t.Errorf("got %s", got)
	}
	c.answer(`{}`)
	r.result(box)
	r.notify(mcp.NoticeRoots, "")
	if len(a.last().got(mcp.NoticeRoots)) != 1 || len(a.last().got(mcp.NoticeInitialized)) != 1 {
		t.Errorf("a got %v", a.last().frames)
	}
}

// TestMemberDies: a member that dies costs its own calls; the caller is told that
// lists have changed, and the member is let in again when it is asked for.
func TestMemberDies(t *testing.T) {
	a, b := &fake{name: "a", caps: allCaps}, &fake{name: "b", caps: allCaps}
	r := begin(t, a, b)
	s := r.s.(*session)
	s.mu.Lock()
	s.peers["b"].began = s.peers["b"].began.Add(-2 * joinAgain) // it was there for a while
	s.mu.Unlock()
	mine, theirs := r.ask("1", mcp.MethodCallTool, `{"name":"a__x"}`), r.ask("2", mcp.MethodCallTool, `{"name":"b__x"}`)
	b.find(t, mcp.MethodCallTool)
	first := b.last()
	first.die()
	if got := r.answer(theirs); !strings.Contains(got, "error") {
		t.Errorf("got %s", got)
	}
	r.home.heard(t, mcp.NoticeTools)
	a.find(t, mcp.MethodCallTool).answer(`{}`)
	r.result(mine)
	again := r.ask("3", mcp.MethodCallTool, `{"name":"b__x"}`)
	until(t, "b is let in again", func() bool { return b.last() != first && len(b.last().got("tools/call")) == 1 })
	b.find(t, mcp.MethodCallTool).answer(`{}`)
	r.result(again)
	if len(b.last().got(mcp.NoticeInitialized)) != 1 || len(first.closed) != 1 {
		t.Error("the handshake was not made again, or the old session was left open")
	}
	// One that dies at once is not let in over and over.
	b.last().die()
	until(t, "b is out", func() bool { return s.near("b") == nil })
	if got := r.failure(r.ask("4", mcp.MethodCallTool, `{"name":"b__x"}`)); got != mcp.CodeInternal {
		t.Errorf("got %d", got)
	}
}

// TestManyStops: calls, cancels, abandoned exchanges and answers cross each other;
// every request is settled once, and nothing is left (run with -race).
func TestManyStops(t *testing.T) {
	both(t, func(t *testing.T, modern bool) {
		a, b := &fake{name: "a", caps: allCaps}, &fake{name: "b", caps: allCaps}
		r := start(t, modern, a, b)
		var wg sync.WaitGroup
		for i := range 300 {
			wg.Go(func() {
				method, params := mcp.MethodCallTool, `{"name":"`+"ab"[i%2:i%2+1]+`__x"}`
				if i%5 == 0 {
					method, params = "tools/list", ""
				}
				box, exchange := r.askExchange(fmt.Sprint(i), method, params)
				switch {
				case i%3 == 0 && !modern:
					r.notify(mcp.NoticeCancelled, fmt.Sprintf(`{"requestId":%d}`, i))
				default:
					r.s.Abandon(exchange, belay.Cancellation{Cause: belay.CauseDisconnect})
				}
				<-box.settled
			})
		}
		wg.Wait()
	})
}

var _ httpserver.Session = (*fakeSession)(nil)

// TestPassesCancels: with PassCancels a cancel goes to the server that has the
// call, behind it, and is nobody's business here: the call is answered as the
// server answers it, lists go on, and a cancel of nothing stops no later call
// (ORC-64).
func TestPassesCancels(t *testing.T) {
	a, b := &fake{name: "a", caps: allCaps}, &fake{name: "b", caps: allCaps}
	r := newRig(t, false, Config{PassCancels: true}, a, b)
	r.hello()
	r.notify(mcp.NoticeCancelled, `{"requestId":7}`) // too early
	call := r.ask("7", mcp.MethodCallTool, `{"name":"a__x"}`)
	a.find(t, mcp.MethodCallTool)
	list := r.ask("8", mcp.MethodListTools, "")
	la, lb := a.find(t, mcp.MethodListTools), b.find(t, mcp.MethodListTools)
	r.notify(mcp.NoticeCancelled, `{"requestId":8}`)
	la.answer(`{"tools":[{"name":"x"}]}`)
	lb.answer(`{"tools":[]}`)
	if got := names(t, r.result(list), "tools", "name"); len(got) != 1 {
		t.Errorf("the list is %v", got)
	}
	if n := len(a.last().got(mcp.NoticeCancelled)) + len(b.last().got(mcp.NoticeCancelled)); n != 0 {
		t.Errorf("servers were told %d times of what is not theirs", n)
	}
	r.notify(mcp.NoticeCancelled, `{"requestId":7,"reason":"enough"}`)
	r.dropped(call) // as the fake does on its own when it is told
	if n, m := len(a.last().got("enough")), len(b.last().got("enough")); n != 1 || m != 0 {
		t.Errorf("the servers were told %d and %d times", n, m)
	}
}

// TestPassesCancelsBehind: one that comes while its call's server has still to be
// reached gets there behind the call.
func TestPassesCancelsBehind(t *testing.T) {
	a := &fake{name: "a", caps: allCaps}
	late := &fake{name: "late", caps: allCaps, hang: true}
	r := newRig(t, false, Config{PassCancels: true, OpenWait: 50 * time.Millisecond}, a, late)
	r.hello()
	call := r.ask("7", mcp.MethodCallTool, `{"name":"late__x"}`)
	r.notify(mcp.NoticeCancelled, `{"requestId":7,"reason":"enough"}`)
	if got := late.last().got("tools/call"); len(got) != 0 {
		t.Fatalf("it was reached: %v", got)
	}
	late.find(t, mcp.MethodInitialize).answer(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"late","version":"1"}}`)
	r.dropped(call)
	var order []string
	for _, f := range late.last().got(`"method"`) {
		if strings.Contains(f, "tools/call") || strings.Contains(f, "enough") {
			order = append(order, f)
		}
	}
	if len(order) != 2 || !strings.Contains(order[0], "tools/call") {
		t.Errorf("it got %v", order)
	}
}
