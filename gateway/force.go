package gateway

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
	"github.com/belayhq/belay/proc"
	"github.com/belayhq/belay/supervise"
)

// forcing is the end of one process by force. However many stopped calls ask
// for it, each of its two steps is taken once, and its evidence is that of all.
//
// Once begun it is carried through: a call's ladder may end by other evidence
// (a late result), but a process that was asked to end by force is of no use
// to the session any more and must not stay.
type forcing struct {
	sel    proc.Selection
	ladder belay.Ladder // of the call that began it
	steps  [2]struct {
		once sync.Once
		done chan struct{}
	}
	asked time.Time // when SIGTERM was sent; zero: it was not. Guarded by Session.mu
	kill  bool      // the kill has begun: its evidence counts. Guarded by Session.mu
	bury  sync.Once

	hurried bool               // a person pressed while force was used. Guarded by Session.mu
	hurry   context.CancelFunc // ends the pause for a slow tool; nil: there is none. Guarded by Session.mu
}

const (
	stepTerminate = 0
	stepKill      = 1
)

// Terminate closes the server's stdin and sends SIGTERM: to its leader first,
// to the others half a grace period later (DESIGN 11, 7).
func (c *call) Terminate(ctx context.Context, _ *belay.Cancellation) (*belay.Evidence, error) {
	return c.force(ctx, stepTerminate)
}

// Kill ends the processes of the call without asking.
func (c *call) Kill(ctx context.Context, _ *belay.Cancellation) (*belay.Evidence, error) {
	return c.force(ctx, stepKill)
}

func (c *call) force(ctx context.Context, step int) (*belay.Evidence, error) {
	c.s.mu.Lock()
	byHooks := c.byHooks
	c.s.mu.Unlock()
	if byHooks {
		e, both, err := c.forceByHooks(ctx, step)
		if !both {
			return e, err
		}
	}
	if c.serverDone() {
		return c.endChildren(ctx, step)
	}
	f := c.up.beginForce(c)
	if f == nil {
		return nil, errGone // whoever ends it brings the evidence
	}
	if step == stepKill {
		patience := belay.Patience(ctx)
		defer context.AfterFunc(patience, func() {
			if ctx.Err() == nil { // evidence ends it as well
				c.up.hasten(f)
			}
		})()
		if patience.Err() != nil {
			c.up.hasten(f)
		}
	}
	select {
	case <-c.up.takeOnce(f, step):
	case <-ctx.Done():
	}
	return nil, nil
}

// hasten has the kill wait for nobody.
func (u *upstream) hasten(f *forcing) {
	u.s.mu.Lock()
	f.hurried = true
	end := f.hurry
	u.s.mu.Unlock()
	if end != nil {
		end()
	}
}

// takeOnce starts a step if nobody did, and returns what is closed at its end.
func (u *upstream) takeOnce(f *forcing, step int) <-chan struct{} {
	s := &f.steps[step]
	s.once.Do(func() {
		if !u.s.spare(func() { u.takeStep(f, step); close(s.done) }) {
			close(s.done)
		}
	})
	return s.done
}

// spare is goTracked that says whether it could start.
func (s *Session) spare(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.goLocked(f)
}

// beginForce takes the process away from the session, once. From then on no
// call reaches it, and no other call is on it.
func (u *upstream) beginForce(c *call) *forcing {
	s := u.s
	s.mu.Lock()
	defer s.mu.Unlock()
	u.calls[c.upID.Key()] = c // it may have been purged, and wants the evidence
	if u.force != nil {
		return u.force
	}
	if u.dead {
		return nil
	}
	f := &forcing{sel: u.selectionLocked(c, false), ladder: c.policy.Ladder}
	for i := range f.steps {
		f.steps[i].done = make(chan struct{})
	}
	u.force, u.dead, u.ready, u.expected = f, true, false, true
	if u.worker {
		u.lease = nil
		u.unleaseLocked()
		s.hireLocked()
		return f
	}
	s.noteForcedLocked(c)
	if s.current == u {
		s.current = nil
		if s.cfg.RestartSafe {
			s.spawnLocked()
		}
	}
	return f
}

// takeStep carries out one step and buries the process if nothing is left of it.
func (u *upstream) takeStep(f *forcing, step int) {
	if step == stepTerminate {
		u.terminate(f)
		return
	}
	u.s.mu.Lock()
	f.kill = true
	u.s.mu.Unlock()
	if e := u.letCleanUp(f); e != nil {
		f.bury.Do(func() { u.buried(*e) })
		return
	}
	ctx, end := context.WithTimeoutCause(u.s.life, killLimit, errStepOver)
	defer end()
	e, err := u.tree.Kill(ctx, f.sel)
	switch {
	case e != nil && e.Kind == belay.SeenProcessGone:
		f.bury.Do(func() { u.buried(*e) })
	case e != nil:
		u.s.log.Warn("processes of a stopped call are still alive after the kill", "survivors", len(e.Survivors))
		u.observe(*e)
		f.bury.Do(u.outlived)
	case err != nil:
		u.s.log.Warn("a stopped call's processes could not be ended", "error", err)
		f.bury.Do(u.outlived)
	}
}

// terminate asks by force, and sees to the kill if that has no effect and no
// call's ladder gets so far.
func (u *upstream) terminate(f *forcing) {
	ladder := f.ladder
	u.s.mu.Lock()
	f.asked = time.Now()
	u.s.mu.Unlock()
	ctx, end := context.WithTimeoutCause(u.s.life, ladder.KillAfter+killMargin, errStepOver)
	defer end()
	e, err := u.tree.Terminate(ctx, f.sel, ladder.Grace/2)
	u.s.mu.Lock()
	killing := f.kill
	if err != nil {
		f.asked = time.Time{} // nobody was asked to clean up
	}
	u.s.mu.Unlock()
	switch {
	case killing: // who was killed has not ended because it was asked
		return
	case e != nil && e.Kind == belay.SeenProcessGone:
		f.bury.Do(func() { u.buried(*e) })
		return
	case err != nil:
		u.s.log.Warn("a stopped call's processes could not be asked to end", "error", err)
	}
	u.takeOnce(f, stepKill)
}

const (
	killMargin = 100 * time.Millisecond // after which the kill does not wait for a ladder any more
	killLimit  = 5 * time.Second        // after which what is left counts as surviving
)

// letCleanUp gives a tool that is known to clean up slowly, and was only found
// inside the tree, its ten seconds (DESIGN 11, 7), unless a person presses. It returns
// evidence if all ended by itself meanwhile.
func (u *upstream) letCleanUp(f *forcing) *belay.Evidence {
	u.s.mu.Lock()
	asked, hurried := f.asked, f.hurried
	u.s.mu.Unlock()
	if asked.IsZero() || hurried || u.tree.Signs().Slow == "" {
		return nil
	}
	left := time.Until(asked.Add(supervise.SlowKillAfter))
	ctx, end := context.WithTimeoutCause(u.s.life, max(left, 0), errStepOver)
	defer end()
	u.s.mu.Lock()
	f.hurry, hurried = end, f.hurried
	u.s.mu.Unlock()
	if hurried {
		return nil
	}
	return u.tree.Await(ctx, f.sel)
}

var errStepOver = fmt.Errorf("the time for this step is over")

// buried tells every stopped call that its process is gone and has the session
// go on with a fresh one.
func (u *upstream) buried(e belay.Evidence) {
	end := time.Now()
	if len(e.Spared) == 0 { // nobody is left to hold the pipe open: all that was said can be read
		end = end.Add(lastOutput)
	}
	u.tree.Stdout().SetReadDeadline(end)
	<-u.gone
	u.observe(e)
	u.replace(len(e.Spared) > 0)
}

// outlived has the session go on although something of the process lives on: a
// leader that does not die of SIGKILL does nothing else either.
func (u *upstream) outlived() {
	u.tree.Stdout().SetReadDeadline(time.Now())
	<-u.gone
	u.replace(true)
}

// replace forgets the calls of a process that was ended, and has a fresh one
// made. With left, processes of it live on until Close, or until they end.
func (u *upstream) replace(left bool) {
	s := u.s
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(u.calls)
	s.goLocked(func() { u.forgetWhenGone(left) })
	if !u.worker && s.current == nil {
		s.spawnLocked()
	}
	s.flushLocked()
}

// forgetWhenGone lets go of a process as soon as nothing of it is left.
func (u *upstream) forgetWhenGone(left bool) {
	u.wire.hangUp()
	if left {
		select {
		case <-u.tree.Gone():
		case <-u.s.life.Done():
			return // Close ends it
		}
	}
	if u.tree != nil {
		u.tree.Close(u.s.life)
		u.heard.bury(false)
	}
	u.s.mu.Lock()
	defer u.s.mu.Unlock()
	if u.s.life.Err() == nil {
		u.s.dropLocked(u)
	}
}

// observe gives evidence to every stopped call of the process.
func (u *upstream) observe(e belay.Evidence) {
	u.s.mu.Lock()
	var stopped []*call
	for _, c := range u.calls {
		if c.run != nil {
			stopped = append(stopped, c)
		}
	}
	u.s.mu.Unlock()
	for _, c := range stopped {
		c.run.Observe(c.provenElsewhere(e)) // which means nothing to a call that was not stopped
	}
	if e.Kind != belay.SeenProcessGone {
		return
	}
	u.s.mu.Lock()
	defer u.s.mu.Unlock()
	for _, c := range stopped { // no partial result will come any more
		if c.waiting != nil {
			c.answerLocked()
		}
	}
}

// endChildren ends the processes that were born during a call whose server is
// done with it; the server itself is kept.
func (c *call) endChildren(ctx context.Context, step int) (e *belay.Evidence, err error) {
	sel := c.childSelection()
	if step == stepTerminate {
		e, err = c.up.tree.Terminate(ctx, sel, 0)
	} else {
		e, err = c.up.tree.Kill(ctx, sel)
	}
	if e == nil || len(e.Survivors) > 0 {
		return e, err
	}
	c.run.Observe(*e) // that none of them survived
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return &belay.Evidence{Kind: c.replied, Detail: "the server answered, and the processes born during the call were ended"}, err
}

// ended settles what was in flight when the process said its last word: calls
// that somebody waits for get an error at once (MCP-G28), stopped ones their
// evidence.
func (u *upstream) ended() {
	s := u.s
	s.mu.Lock()
	expected := u.expected || s.closing
	sel := u.selectionLocked(nil, true)
	u.dead, u.ready = true, false
	if s.current == u {
		s.current = nil
	}
	s.mu.Unlock()
	epitaph := ""
	if !expected {
		s.log.Warn("the server ended by itself", "exit", u.settleExit())
		epitaph = u.epitaph()
	}
	s.mu.Lock()
	if u.worker && !u.served {
		s.warm = false // another would end as this one did: not before somebody needs it
	}
	standing := u.failCallsLocked(epitaph)
	u.unleaseLocked()
	u.lease = nil
	s.idle = slices.DeleteFunc(s.idle, func(w *upstream) bool { return w == u })
	s.mu.Unlock()
	if expected {
		return
	}
	u.sweep(sel)
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(u.calls)
	switch {
	case !s.stood:
		s.failLocked(fmt.Errorf("%w (%s)", errNoSession, u.exit()))
		s.failQueueLocked(errNoSession)
	case !u.worker && (standing || len(s.queue) > 0):
		s.spawnLocked()
	}
	s.flushLocked()
}

// settleExit waits for the leader of a process whose output has ended; one that
// lives on without output is of no use and is ended.
func (u *upstream) settleExit() string {
	if u.tree == nil {
		return u.exit()
	}
	wait := lastOutput
	if u.s.cfg.Epitaph != nil { // who answers for it must know how it ended, on a busy machine as well
		wait = deathTime
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-u.tree.Done():
		return u.tree.Exit().String()
	case <-timer.C:
		return "it closed its output and lives on"
	}
}

// failCallsLocked answers every call that somebody waits for, and cancels what
// the server had asked the caller. It reports whether subscriptions are left,
// which need a fresh process. The epitaph is what the callers of tools are told.
func (u *upstream) failCallsLocked(epitaph string) (standing bool) {
	s := u.s
	for _, c := range u.calls {
		switch {
		case c.stopped:
		case c.work != nil:
			standing = c.work.hostGoneLocked() || standing
		case c.method == mcp.MethodPing && u.force != nil: // it held no force up, and must not show it
			u.removeLocked(c)
			if c.run.Finish(belay.Completed) {
				s.forgetLocked(c)
				c.answered = true
				s.replyLocked(c, jsonrpc.AppendResponse(nil, c.id, nil))
			}
		case c.standing() && !s.closing:
			standing = true
			delete(u.calls, c.upID.Key())
		case !s.closing && epitaph != "" && c.method == mcp.MethodCallTool:
			u.removeLocked(c)
			c.failTextLocked(epitaph)
		case !s.closing:
			u.removeLocked(c)
			c.failLocked(mcp.CodeInternal, fmt.Sprintf("server %q ended before it answered (%s)", s.cfg.Name, u.exit()))
		}
	}
	for _, a := range u.asks {
		s.cancelAskLocked(a, mcp.Legacy, "the server ended")
	}
	return standing
}

func (u *upstream) exit() string {
	if u.tree == nil {
		return "the conversation is over"
	}
	select {
	case <-u.tree.Done():
		return u.tree.Exit().String()
	default:
		return "it is being ended"
	}
}

// sweep ends what a server that died left behind of its calls, and brings the
// stopped ones their evidence.
func (u *upstream) sweep(sel proc.Selection) {
	if u.tree == nil {
		u.s.goTracked(func() { u.forgetWhenGone(false) })
		return
	}
	ctx, end := context.WithTimeoutCause(u.s.life, sweepTime, errStepOver)
	defer end()
	soft, stop := context.WithTimeoutCause(ctx, sweepSoft, errStepOver)
	e, _ := u.tree.Terminate(soft, sel, 0)
	stop()
	if e == nil {
		e, _ = u.tree.Kill(ctx, sel)
	}
	if e == nil {
		return
	}
	u.observe(*e)
	u.s.goTracked(func() { u.forgetWhenGone(len(e.Spared)+len(e.Survivors) > 0) })
}

// The end of what a dead server left behind: how long it is asked, and the
// bound of all, which only a process that cannot be killed comes near.
const (
	sweepSoft = 500 * time.Millisecond
	sweepTime = killLimit
)
