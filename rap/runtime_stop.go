package rap

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/belayhq/belay"
)

// What may be said after a Stop (RAP-93, RAP-94): a server that took the POST was
// told, no more; only its result says that the call has ended, and only the end of
// a process tree that this program started is proof. The steps below add to a
// receipt what came of telling each server; they prove nothing.
const (
	SeenServerTold    belay.EvidenceKind = "server_told"     // a tool server took the cancel
	SeenServerNotTold belay.EvidenceKind = "server_not_told" // it did not, or could not be reached
)

// maxNamed is how many servers have a step of their own in a receipt; of more
// there is a summary.
const maxNamed = 16

var (
	_ belay.Stopper     = (*Pending)(nil)
	_ belay.Planner     = (*Pending)(nil)
	_ belay.Interrupter = forced{}
	_ belay.Terminator  = forced{}
	_ belay.Killer      = forced{}
	_ belay.Gate        = forced{}
)

// Tell implements [belay.Stopper]: every server is told at the same time. It
// returns as soon as one has taken it; what comes of the others is added to the
// receipt. If none takes it the run's verdict stays unreachable.
func (c *Pending) Tell(ctx context.Context, _ *belay.Cancellation) (*belay.Evidence, error) {
	c.th.mu.Lock()
	if !c.sent {
		c.withheld = true
		c.th.mu.Unlock()
		c.th.rt.handedOver(c.told)
		return &belay.Evidence{Kind: belay.SeenNotStarted, Scope: belay.ScopeHandler, Detail: "it was stopped before it was sent"}, nil
	}
	posting := c.posting
	c.th.mu.Unlock()
	if posting != nil {
		order := time.NewTimer(orderWait)
		select {
		case <-posting:
		case <-order.C:
		case <-ctx.Done():
		}
		order.Stop()
	}
	t := c.tellAll(c.observe)
	c.th.rt.handedOver(c.told)
	return nil, t.wait(ctx)
}

// owe notes that a Stop has settled its caller, and is to be handed to the
// deliveries, which told will say.
func (rt *Runtime) owe(told chan struct{}) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	rt.untold[told] = struct{}{}
}

// handedOver says that the Stop is in the hands of the deliveries.
func (rt *Runtime) handedOver(told chan struct{}) {
	close(told)
	rt.mu.Lock()
	defer rt.mu.Unlock()
	delete(rt.untold, told)
}

// orderWait is how long a cancel waits for the acknowledgement of an invocation that
// is just being posted: a tool server that forgets a cancel which comes before its
// call would else run it to the end (R8). Nobody but the deliveries waits for that.
const orderWait = 25 * time.Millisecond

// Plan implements [belay.Planner].
func (c *Pending) Plan(context.Context) belay.Plan {
	n := len(c.th.rt.targetsWith(c.server))
	p := belay.Plan{Tell: fmt.Sprintf("POST %s to %d tool servers at the same time", PathCancel, n)}
	if c.server.Process != nil && c.server.KillProcess {
		p.Force = "SIGINT, SIGTERM and SIGKILL to the process tree of " + c.server.Name + ", when no other call is in flight there"
	}
	return p
}

// observe records evidence about the stop.
func (c *Pending) observe(e belay.Evidence) {
	c.run.Observe(e)
	if c.o.Seen != nil {
		c.o.Seen(e)
	}
}

// tellAll starts the fan-out of a cancel.
func (c *Pending) tellAll(observe func(belay.Evidence)) *telling {
	return c.th.rt.tellAll(c.server, CancelNotice{ThreadID: c.th.id, ToolCallID: c.inv.ID}, observe)
}

// tellAll starts a fan-out; observe, if not nil, gets what came of it.
func (rt *Runtime) tellAll(own *server, n CancelNotice, observe func(belay.Evidence)) *telling {
	list := rt.targetsWith(own)
	t := &telling{left: len(list), all: len(list), observe: observe, done: make(chan struct{}), taken: make(chan struct{})}
	body, err := n.Append(nil)
	if err == nil && len(list) > 0 {
		err = rt.notify.tell(list, body, toCancel, t.report)
	}
	if err != nil || len(list) == 0 {
		t.err = err
		close(t.done)
	}
	return t
}

// telling is one fan-out under way.
type telling struct {
	all     int
	observe func(belay.Evidence)
	done    chan struct{} // closed when all servers have been told, or could not be
	taken   chan struct{} // closed when the first one took it

	mu   sync.Mutex // guards the fields below
	left int
	took int
	lost []string // who was not told, at most maxNamed
	last Told
	err  error
}

// report takes what came of one server.
func (t *telling) report(told Told) {
	if t.observe != nil && t.all <= maxNamed {
		kind := SeenServerTold
		if !told.Taken() {
			kind = SeenServerNotTold
		}
		t.observe(belay.Evidence{Kind: kind, Detail: fmt.Sprintf("%s after %v", told.String(), told.After.Round(time.Millisecond/10))})
	}
	t.mu.Lock()
	t.left--
	if told.Taken() {
		if t.took++; t.took == 1 {
			close(t.taken)
		}
	} else {
		t.last = told
		if len(t.lost) < maxNamed {
			t.lost = append(t.lost, told.Server)
		}
	}
	last := t.left == 0
	t.mu.Unlock()
	if !last {
		return
	}
	if t.observe != nil && t.all > maxNamed {
		t.observe(t.summary())
	}
	close(t.done)
}

// summary is what came of many servers; all of them have been reported.
func (t *telling) summary() belay.Evidence {
	e := belay.Evidence{Kind: SeenServerTold, Detail: fmt.Sprintf("%d of %d tool servers took it", t.took, t.all)}
	if len(t.lost) > 0 {
		e.Detail += "; not: " + strings.Join(t.lost, ", ")
		if more := t.all - t.took - len(t.lost); more > 0 {
			e.Detail += fmt.Sprintf(" and %d more", more)
		}
	}
	if t.took == 0 {
		e.Kind = SeenServerNotTold
	}
	return e
}

// wait returns nil when one server took it, and an error that wraps
// [belay.ErrUnreachable] when none did.
func (t *telling) wait(ctx context.Context) error {
	select {
	case <-t.taken:
		return nil
	case <-t.done:
	case <-ctx.Done():
		return nil // something ended the ladder meanwhile, which says more
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.took > 0:
		return nil
	case t.err != nil:
		return fmt.Errorf("%w: %w", belay.ErrUnreachable, t.err)
	case t.all == 0:
		return fmt.Errorf("%w: there is no tool server to be told", belay.ErrUnreachable)
	}
	return fmt.Errorf("%w: none of %d tool servers took the cancel; %s", belay.ErrUnreachable, t.all, t.last.String())
}

// partialPrefix is how tool servers begin a result that a cancelled call had so
// far (RAP-98).
const partialPrefix = "Cancelled by user. Partial results:\n"

// partialText is the text of a result, without what tool servers write before a
// partial one.
func partialText(r *ToolResult) string {
	var texts []string
	for _, item := range r.Items() {
		if item.Type == ItemText {
			texts = append(texts, item.Text)
		}
	}
	return strings.TrimPrefix(strings.Join(texts, "\n"), partialPrefix)
}

// lateLocked makes a result after the Stop evidence: the call has ended, whether or
// not the cancel did it (RAP-93).
func (c *Pending) lateLocked(r *ToolResult) {
	e := belay.Evidence{Kind: belay.SeenResult, Detail: "the tool server sent a result after the Stop"}
	if Failed(r) {
		e = belay.Evidence{Kind: belay.SeenErrorReply, Detail: "the tool server ended the call with an error after the Stop"}
	} else {
		c.run.Partial(partialText(r))
	}
	c.observe(e)
	if late := c.o.Late; late != nil {
		c.th.enqueueLocked(func() { late(r) })
	}
}

// watch waits for the end of the process tree that the call was sent to. It is
// the one proof there is, for a call that was stopped; for another it is the end.
func (c *Pending) watch(in Instance) {
	final := c.done
	select {
	case <-in.Done():
	case <-final:
		if c.run.Cancellation() == nil {
			return
		}
		// As long as its receipt can be looked at, the end of the tree says more.
		timer := time.NewTimer(KeepCallbacks)
		defer timer.Stop()
		select {
		case <-in.Done():
		case <-timer.C:
			return
		case <-c.th.rt.life.Done():
			select {
			case <-in.Done():
			case <-time.After(endWatch):
				return
			}
		}
	case <-c.th.rt.life.Done():
		return
	}
	if c.run.Cancellation() != nil {
		c.observe(in.Evidence())
		return
	}
	c.refused(fmt.Errorf("%w: its process has ended", belay.ErrUnreachable))
}

// endWatch is how long the end of a process tree is waited for when the program
// ends.
const endWatch = 2 * time.Second

// forced is a call whose server may be ended by force (RAP-95).
type forced struct{ *Pending }

// MayForce implements [belay.Gate]: other people's calls on the same process go
// first (DESIGN 11, 2).
func (f forced) MayForce(ctx context.Context, _ belay.Pressure) error {
	c := f.Pending
	c.th.mu.Lock()
	in := c.instance
	c.th.mu.Unlock()
	if in == nil {
		return &belay.Restraint{Why: "it was not sent to any process", Futile: true}
	}
	limit := time.NewTimer(drainWait)
	defer limit.Stop()
	for {
		others, changed := c.server.others(c)
		if len(others) == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-limit.C:
			return &belay.Restraint{Why: fmt.Sprintf("other calls are in flight on %s: %s", c.server.Name, strings.Join(others[:min(len(others), 4)], ", "))}
		case <-ctx.Done():
			return &belay.Restraint{Why: "nothing was left to stop"}
		}
	}
}

// drainWait is how long force waits for other calls.
const drainWait = 30 * time.Second

// Interrupt implements [belay.Interrupter]: SIGINT.
func (f forced) Interrupt(ctx context.Context, _ *belay.Cancellation) (*belay.Evidence, error) {
	return f.instance.Interrupt(ctx)
}

// Terminate implements [belay.Terminator]: SIGTERM.
func (f forced) Terminate(ctx context.Context, _ *belay.Cancellation) (*belay.Evidence, error) {
	return f.instance.Terminate(ctx)
}

// Kill implements [belay.Killer]: SIGKILL.
func (f forced) Kill(ctx context.Context, _ *belay.Cancellation) (*belay.Evidence, error) {
	return f.instance.Kill(ctx)
}
