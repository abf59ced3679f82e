package local

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/belayhq/belay"
)

// attachment is a process that is attached below a run.
type attachment struct {
	s     *Server
	w     *wire
	pid   int           // 0: not known
	run   belay.RunID   // of its ticket
	ready chan struct{} // closed when it knows that it is attached
	gone  chan struct{} // closed when it has hung up

	// The runs below which calls of it were placed, the oldest first. Only the
	// goroutine that serves it touches them.
	hooks []hooked
}

// hooked is a run whose Stops are passed on to a child.
type hooked struct {
	run    belay.RunID
	detach func()
}

// maxHooks bounds the runs below which one child's calls hang at a time. Over
// it those that are over go first; where none is, calls hang where the child
// does.
const maxHooks = 256

// attach holds a child below the run of its ticket: every Stop of that run, or
// of one above it, is passed on until the child hangs up or the server closes.
// A child that does not read is not waited for longer than writeTime.
func (s *Server) attach(ctx context.Context, w *wire, p peer, text string, asks <-chan *where) error {
	if s.attacher == nil {
		return fmt.Errorf("%w: nothing can be attached to this process", belay.ErrUnsupported)
	}
	id, err := s.key.admit(text)
	if err != nil {
		return err
	}
	done, err := s.last()
	if err != nil {
		return err
	}
	defer done()
	above, err := s.above(ctx, id)
	if err != nil {
		return err
	}
	c := &attachment{s: s, w: w, pid: p.pid, run: id, ready: make(chan struct{}), gone: make(chan struct{})}
	detach, err := s.attacher.Attach(id, func(req belay.CancelRequest) { c.pass(ctx, req, belay.Filter{}) })
	if err != nil {
		return fmt.Errorf("attach below %s: %w", id, err)
	}
	defer detach()
	s.join(c)
	defer s.part(c)
	if err := w.send(answer{Attached: &attached{Runs: above, Places: s.opts.Place != nil}}); err != nil {
		return err
	}
	close(c.ready)
	defer c.unhook()
	for {
		select {
		case ask := <-asks:
			if err := c.place(ctx, ask); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		case <-s.ctx.Done():
			return nil
		}
	}
}

// hear reads what an attached child says, until it hangs up.
func hear(ctx context.Context, w *wire, asks chan<- *where) {
	for {
		var in said
		switch err := w.receive(&in, maxSaid, 0); {
		case err != nil:
			return
		case in.Where == nil:
			continue // of a newer Belay
		}
		select {
		case asks <- in.Where:
		case <-ctx.Done():
			return
		}
	}
}

// pass passes a Stop on: of everything, or of what hangs below a run.
func (c *attachment) pass(ctx context.Context, req belay.CancelRequest, what belay.Filter) {
	select {
	case <-c.ready:
	case <-ctx.Done():
		return
	}
	above := c.run
	if !what.Under.IsZero() {
		above = what.Under
	}
	req.Filter, req.Wait, req.DryRun = what, 0, false
	req.Cancellation.Cause = belay.CauseParent
	if req.Cancellation.Origin.IsZero() {
		req.Cancellation.Origin = above
	}
	if err := c.w.send(answer{Stop: &req}); err != nil {
		c.s.log.Warn("local socket: a child could not be told to stop", "run", above, "error", err)
	}
}

// place answers where a call hangs. Before the child hears of a run, Stops of it
// are passed on.
func (c *attachment) place(ctx context.Context, ask *where) error {
	a := placed{Seq: ask.Seq, Run: c.run}
	if c.s.opts.Place != nil {
		for _, id := range c.s.opts.Place(c.run, ask.Asked) {
			if id == c.run {
				break
			}
			if c.hook(ctx, id) {
				a.Run = id
				break
			}
		}
	}
	// A Stop that the hook passes on may arrive after this answer.
	if d, err := c.s.control.Get(ctx, a.Run); err == nil && d.Cancellation != nil {
		a.Stop = d.Cancellation
	}
	return c.w.send(answer{Placed: &a})
}

// hook passes Stops of a run on from now on; false if that is not possible,
// because the run is over, say.
func (c *attachment) hook(ctx context.Context, id belay.RunID) bool {
	if slices.ContainsFunc(c.hooks, func(h hooked) bool { return h.run == id }) {
		return true
	}
	if len(c.hooks) >= maxHooks && !c.makeRoom(ctx) {
		return false
	}
	detach, err := c.s.attacher.Attach(id, func(req belay.CancelRequest) { c.pass(ctx, req, belay.Filter{Under: id}) })
	if err != nil {
		return false
	}
	c.hooks = append(c.hooks, hooked{id, detach})
	return true
}

// makeRoom lets the oldest run go that is over.
func (c *attachment) makeRoom(ctx context.Context) bool {
	for i, h := range c.hooks {
		if d, err := c.s.control.Get(ctx, h.run); errors.Is(err, belay.ErrNotFound) || err == nil && d.Over() {
			h.detach()
			c.hooks = slices.Delete(c.hooks, i, i+1)
			return true
		}
	}
	return false
}

func (c *attachment) unhook() {
	for _, h := range c.hooks {
		h.detach()
	}
}

func (s *Server) join(c *attachment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.children[c] = struct{}{}
}

func (s *Server) part(c *attachment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.children, c)
	close(c.gone)
}

// below are the children that were given a ticket of run; of any, if it is zero.
func (s *Server) below(run belay.RunID) []*attachment {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []*attachment
	for c := range s.children {
		if run.IsZero() || c.run == run {
			list = append(list, c)
		}
	}
	return list
}

// Children lists the processes that are attached with a ticket of run, or with
// any if run is zero.
func (s *Server) Children(run belay.RunID) []int {
	var pids []int
	for _, c := range s.below(run) {
		if c.pid > 0 {
			pids = append(pids, c.pid)
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids)
}

// AwaitChildren returns when no process is attached with a ticket of run any
// more, or with the cause of ctx.
func (s *Server) AwaitChildren(ctx context.Context, run belay.RunID) error {
	for _, c := range s.below(run) {
		select {
		case <-c.gone:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// Dismiss stops everything that the processes do that are attached with a ticket
// of run, although the run itself goes on or is over. It does not wait for them.
func (s *Server) Dismiss(run belay.RunID, why belay.Cancellation) {
	if why.Stop.IsZero() {
		why.Stop = belay.NewStopID()
	}
	for _, c := range s.below(run) {
		s.mu.Lock()
		if !s.closed { // Close waits for what was begun before
			s.wg.Go(func() { c.pass(s.ctx, belay.CancelRequest{Cancellation: why}, belay.Filter{}) })
		}
		s.mu.Unlock()
	}
}
