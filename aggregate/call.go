package aggregate

import (
	"bytes"
	"context"
	"fmt"
	"strconv"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
	"github.com/belayhq/belay/mcp/httpserver"
)

// call is one request of the caller, from its arrival until it is answered or
// dropped. It is the Outlet of the member that serves it alone.
type call struct {
	s      *session
	id     jsonrpc.ID
	key    string // of id, or of the exchange where ids of several clients meet
	pass   uint64 // the exchange that brought it; 0: none
	method string
	tasks  bool // its answer may be that it became a task
	to     mcp.Outlet
	ctx    context.Context // of what is done for it here
	end    context.CancelCauseFunc

	// Guarded by s.mu.
	name   string             // of the member that serves it; "" while there is none
	on     httpserver.Session // the member's session that it was, or is being, given to
	theirs uint64             // its exchange there
	gone   *belay.Cancellation
	handed bool   // the member has got it
	behind []byte // with PassCancels: the cancel, which goes to the member behind the call
	done   bool   // answered or dropped
}

var _ mcp.Outlet = (*call)(nil)

// finish takes the call out of the tables. It is true once: whoever gets true
// answers or drops the call.
func (c *call) finish() bool {
	s := c.s
	s.mu.Lock()
	done := c.done
	c.done = true
	if !done {
		delete(s.calls, c.key)
		if c.pass != 0 {
			delete(s.passes, c.pass)
		}
		if s.era == mcp.Legacy {
			s.seen.put(c.key, struct{}{})
		}
		s.open.Add(-1)
	}
	s.mu.Unlock()
	if !done {
		c.end(nil)
	}
	return !done
}

// Send implements [mcp.Outlet] for the member that serves the call.
func (c *call) Send(frame []byte, edits ...jsonrpc.Edit) error {
	c.s.mu.Lock()
	name, on, done := c.name, c.on, c.done
	c.s.mu.Unlock()
	if !done {
		return c.s.said(name, on, c, c.to, frame, edits)
	}
	var e jsonrpc.Envelope
	if jsonrpc.Parse(frame, &e) == nil && e.Method == mcp.NoticeCancelled { // of a question that is still open
		return c.s.askCancelled(on, frame, edits)
	}
	return errOver
}

// Answer implements [mcp.Outlet].
func (c *call) Answer(status int, frame []byte, edits ...jsonrpc.Edit) error {
	if !c.finish() {
		return errOver
	}
	if c.tasks && bytes.Contains(frame, []byte("taskId")) {
		c.s.learnTask(c.name, frame)
	}
	return c.to.Answer(status, frame, edits...)
}

// Drop implements [mcp.Outlet].
func (c *call) Drop() {
	if c.finish() {
		c.s.dropAsks("the call was cancelled", func(a *ask) bool { return a.of == c })
		c.to.Drop()
	}
}

// answer answers the call from here.
func (c *call) answer(frame []byte) {
	if c.finish() {
		_ = c.to.Answer(0, frame) // a caller that is gone is noticed by its transport
	}
}

func (c *call) failf(code int, format string, args ...any) {
	c.answer(jsonrpc.AppendError(nil, c.id, code, fmt.Sprintf(format, args...), nil))
}

// stopped settles a call whose context has ended: in silence after its caller's
// own cancel (MCP-G24), else with what stopped it (MCP-G25).
func (c *call) stopped() {
	c.s.mu.Lock()
	gone := c.gone != nil
	c.s.mu.Unlock()
	if gone {
		c.Drop()
		return
	}
	c.answer(mcp.AppendStopped(nil, c.id, belay.RunID{}, cancellation(c.ctx), true))
}

// cancellation is why a context ended.
func cancellation(ctx context.Context) *belay.Cancellation {
	if c := belay.CancellationOf(ctx); c != nil {
		return c
	}
	reason := ""
	if err := context.Cause(ctx); err != nil {
		reason = err.Error()
	}
	return &belay.Cancellation{Cause: belay.CauseShutdown, Via: "belay", Reason: reason}
}

// abandon stops a call for its caller: what is done here ends, and the member
// that has it is told by the exchange.
func (c *call) abandon(why belay.Cancellation) {
	c.s.mu.Lock()
	if c.done {
		c.s.mu.Unlock()
		return
	}
	if c.gone == nil {
		c.gone = &why
	}
	on, theirs := c.on, c.theirs
	c.s.mu.Unlock()
	c.end(&why)
	if on != nil {
		on.Abandon(theirs, why)
	}
}

// hand gives the call to the member's session, with all that is known of its
// arrival. It must not be called with a lock held.
func (c *call) hand(name string, on httpserver.Session, a mcp.Arrival) {
	c.s.mu.Lock()
	if c.done || c.gone != nil {
		c.s.mu.Unlock()
		c.Drop()
		return
	}
	c.name, c.on = name, on
	a.To, a.ByExchange = c, c.s.era == mcp.Modern
	if c.pass != 0 || a.ByExchange {
		c.theirs = nextExchange()
	}
	a.Exchange = c.theirs
	c.s.mu.Unlock()
	on.Deliver(a)
	// The caller may have gone while its call was on the way, too early for the
	// member to know it.
	c.s.mu.Lock()
	gone, behind := c.gone, c.behind
	c.handed, c.behind = true, nil
	c.s.mu.Unlock()
	if behind != nil {
		deliver(on, behind)
	}
	if gone != nil {
		on.Abandon(c.theirs, *gone)
	}
}

// exchangeKey is the key of a call that is known by its exchange alone. No id
// has it: those begin with a character of JSON (MCP-G7).
func exchangeKey(n uint64) string { return "\x00" + strconv.FormatUint(n, 36) }
