package gateway

import (
	"context"
	"slices"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/hook"
	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
	"github.com/belayhq/belay/proc"
	"github.com/belayhq/belay/supervise"
)

// call is one request of the caller, from its arrival until neither the caller
// nor the work waits for it. It is its run's Stopper. Session.mu guards what
// changes.
type call struct {
	s      *Session
	id     jsonrpc.ID // the caller's, echoed exactly (MCP-G7)
	key    string     // of id
	method string
	name   string     // the tool or prompt; "" for others
	token  jsonrpc.ID // the caller's progress token; zero: it gave none
	to     mcp.Outlet // takes what concerns it; nil: the session's own
	params []mcp.HeaderParam
	pass   uint64 // the HTTP exchange that brought it; 0: none
	policy *Policy
	era    mcp.Era
	first  bool // a list request without cursor
	task   bool // it asks a server that has tasks to become one (2025-11-25)
	batch  *batch
	ref    string     // the task that the request is about; "" none
	work   *task      // that it stands for, in place of the request that became one; else nil
	args   []byte     // of a tool that has stop hooks
	run    *belay.Run // nil for a handshake, which nobody can cancel
	names  *names     // what its caller calls it; nil: nothing
	frame  []byte     // a copy, of standing requests only: they are sent again to a fresh process

	up     *upstream // nil while it waits for one
	upID   jsonrpc.ID
	seq    uint64     // of its frame in up's writer
	began  proc.Stamp // when it was dispatched
	until  proc.Stamp // when the next tool call was dispatched to the process; 0: none was
	others bool       // other tool calls were in flight when it was dispatched

	owed        bool   // the server, being no process, must be told before the session ends
	ack, ackFor string // tokens of the stop-ack extension: ours, and the caller's; "" none
	hooks       *hook.Stop
	byHooks     bool // force is used by the hooks
	byProcess   bool // and on the process as well: a person pressed again
	counted     bool // in up.busy
	byCaller    bool // the caller cancelled it: no answer, ever
	stopped     bool // its run is cancelled: nothing of it is forwarded any more
	answered    bool
	dropped     bool               // was stopped while it waited for a process
	withdrawn   bool               // was stopped before a byte of it was written
	blamed      bool               // its process is named as its survivor
	asked       chan struct{}      // of a task: closed when tasks/cancel was sent, or is not needed
	told        bool               // asked is closed
	elicits     bool               // its modern caller takes questions between two legs
	apart       bool               // between two legs as well, while the call goes on: a script has asked its caller; see scriptask.go
	dialog      *dialog            // what its caller is asked then
	held        []byte             // the answer that came then
	parked      bool               // between input rounds: the server is done with one leg, the caller has not sent the next
	unlinked    bool               // a retry that nothing ties to its earlier rounds
	polled      bool               // the server is asked what became of the task
	replied     belay.EvidenceKind // what the server sent after the Stop; "" nothing
	judged      chan struct{}      // made with replied; closed when that has become evidence
	partial     *string            // what a late success result said, until it was used
	waiting     *time.Timer        // for a partial result
	sign        time.Time          // when the last sign of life came after the Stop; zero: none did
	alive       chan struct{}      // capacity 1: another sign of life
}

func (s *Session) newCall(a *mcp.Arrival, b *batch) *call {
	m := a.Message
	c := &call{
		s: s, id: m.ID, key: m.ID.Key(), method: m.Method, name: m.ToolName(), token: m.ProgressToken(),
		era: m.Era(), batch: b, to: a.To, params: a.Params, pass: a.Exchange,
	}
	if a.ByExchange {
		c.key = exchangeKey(a.Exchange)
	}
	c.elicits = s.cfg.Asks && c.era == mcp.Modern && m.Elicits()
	c.policy = s.cfg.policy(c)
	c.keepArguments(m)
	c.ref = m.TaskRef()
	if m.Task.Ok() && s.hand.Capability("tasks") {
		c.task, c.asked = true, make(chan struct{})
	}
	if b != nil {
		b.pending++
	}
	if m.Method == mcp.MethodListTools {
		_, paged, _ := jsonrpc.Member(m.Frame, m.Params, "cursor")
		c.first = !paged
	}
	return c
}

func (c *call) title() string {
	if c.name != "" {
		return c.name
	}
	return c.method
}

// register makes the call a run. A handshake is none (MCP-G14). Where the run
// above was stopped before, the call is stopped before it starts.
func (c *call) register(queued bool, before *stopBefore) error {
	if mcp.Handshaking(c.method) {
		return nil
	}
	if c.run != nil {
		return nil // it goes on with another leg
	}
	spec := c.runSpec(belay.KindCall, c.id.Raw())
	spec.Queued, spec.Stopper, spec.OnCancel = queued, c, c.onCancel
	if c.policy.Deadline > 0 && c.method == mcp.MethodCallTool && !c.s.cfg.PassCancels {
		spec.Deadline = time.Now().Add(c.policy.Deadline) // absolute even when progress arrives (MCP-G23)
	}
	run, err := c.s.tree.Register(spec)
	if err != nil && c.outside() {
		run, err = c.registerStopped(&spec, err, before)
	}
	c.run = run
	return err
}

// mayStart reports whether a registered call was not stopped before it is
// dispatched. leg is what arrived.
func (c *call) mayStart(leg *call) bool {
	if c != leg {
		return c.run.Start()
	}
	return c.s.cfg.Gate == nil && c.s.cfg.Placer == nil || c.run == nil || c.run.Cancellation() == nil
}

// standing reports whether the call is a subscription, which does no work.
func (c *call) standing() bool { return mcp.Standing(c.method) }

// onCancel settles the caller (MCP-G24, MCP-G25). After the caller's own cancel
// it gets nothing; after anybody else's exactly one answer, which waits a
// moment for a partial result where there can be one.
func (c *call) onCancel(_ *belay.Run, cause *belay.Cancellation) {
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.up != nil {
		c.up.owesLocked(c)
	}
	c.stopLocked()
	c.sayUnlinkedLocked()
	switch {
	case c.byCaller:
		c.silenceLocked()
	case c.partial != nil:
		c.answerLocked()
	case c.up == nil || c.method != mcp.MethodCallTool || cause.Cause == belay.CauseShutdown || cause.Cause == belay.CauseDisconnect:
		c.answerLocked()
	default:
		c.waiting = time.AfterFunc(s.cfg.PartialWait, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			c.answerLocked()
		})
	}
}

// stopLocked takes what was stopped out of what somebody waits for.
func (c *call) stopLocked() {
	c.stopped = true
	c.alive = make(chan struct{}, 1)
	if c.up == nil {
		c.dropped = true
		return
	}
	c.up.stopping = append(c.up.stopping, c)
	c.s.doubtLocked(c)
	c.up.uncountLocked(c)
	c.up.purgeLocked()
	c.s.cancelAsksLocked(c)
	if c.doomedLocked() {
		c.up.drains++
		c.up.undrainAfterLocked(c)
	}
}

// answerLocked gives a caller whose call somebody else stopped its one answer.
func (c *call) answerLocked() {
	s := c.s
	if c.answered {
		return
	}
	if c.byCaller {
		c.silenceLocked()
		return
	}
	s.forgetLocked(c)
	c.answered = true
	if c.waiting != nil {
		c.waiting.Stop()
	}
	frame := c.stoppedAnswer(c.id, c.run.Cancellation())
	if c.partial != nil {
		c.run.Partial(*c.partial)
	}
	s.leaveBatchLocked(c)
	s.settleLocked(s.outlet(c), frame)
	c.to = nil // a stopped call is remembered for a while, its stream is not
}

// stoppedAnswer is what a caller gets whose call somebody else stopped: what the
// tool had, if it had something, under the id of the leg that waits.
func (c *call) stoppedAnswer(id jsonrpc.ID, cause *belay.Cancellation) []byte {
	if c.partial == nil {
		return mcp.AppendStopped(nil, id, c.run.ID(), cause, c.parked || c.provenLocked())
	}
	frame := mcp.AppendPartial(nil, id, cause, *c.partial, c.era)
	if c.s.cfg.NameRuns {
		frame = mcp.NameRun(frame, c.run.ID())
	}
	return frame
}

// silenceLocked settles a call that its caller cancelled: no answer (MCP-G24).
func (c *call) silenceLocked() {
	c.s.leaveBatchLocked(c)
	if !c.answered {
		c.answered = true
		c.s.outlet(c).Drop()
		c.to = nil
	}
}

// provenLocked reports whether the work is known to be over.
func (c *call) provenLocked() bool {
	r := c.run.Receipt()
	return c.dropped || r != nil && r.Verdict == belay.Confirmed
}

// forgetLocked takes the call out of the caller's table, so that its id may be
// used again, and remembers the id.
func (s *Session) forgetLocked(c *call) {
	if s.calls[c.key] == c {
		delete(s.calls, c.key)
		delete(s.passes, c.pass)
		if c.pass == 0 || c.key != exchangeKey(c.pass) { // exchanges are never used again
			s.seen.add(c.key)
		}
	}
}

// failLocked settles a call that could not be carried out.
func (c *call) failLocked(code int, message string) { c.failWithLocked(code, message, nil) }

// failWithLocked is failLocked with the data of the error, as JSON.
func (c *call) failWithLocked(code int, message string, data []byte) {
	if c.run != nil && !c.run.Finish(belay.Failed) {
		return
	}
	c.s.forgetLocked(c)
	if c.byCaller { // its own cancel came first: it is told nothing (MCP-G24)
		c.silenceLocked()
		return
	}
	c.answered = true
	c.s.replyLocked(c, jsonrpc.AppendError(nil, c.id, code, message, data))
}

// Tell withdraws the request if it was not yet written, else sends the cancel
// on its own way to the wire (MCP-G16, MCP-G19, MCP-G20). It returns when the
// bytes were written.
func (c *call) Tell(ctx context.Context, cause *belay.Cancellation) (*belay.Evidence, error) {
	s := c.s
	s.mu.Lock()
	up := c.up
	s.mu.Unlock()
	if up == nil {
		return c.notRunning(), nil
	}
	defer up.toldOne(c)
	if up.wire.withdraw(c) {
		c.withdraw()
		return &belay.Evidence{Kind: belay.SeenNotStarted, Scope: belay.ScopeHandler, Detail: "its request was taken back before a byte of it was written"}, nil
	}
	c.tellHooks(cause)
	if c.task { // ended by tasks/cancel only, as soon as its id is known (MCP-44, A5)
		select {
		case <-c.asked:
		case <-ctx.Done():
		}
		return nil, nil
	}
	e, err := up.wire.tell(ctx, c, reasonFor(cause))
	if e != nil && e.Kind == belay.SeenNotStarted {
		c.withdraw()
		return e, err
	}
	if c.ack != "" {
		c.awaitAckUnlessSent()
	}
	return e, err
}

// withdraw notes that the server never got the call.
func (c *call) withdraw() {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.up.removeLocked(c)
	c.withdrawn = true
	c.up.releaseLocked(c)
}

// reasonFor is the reason as the server gets it: the caller's own words, or who
// stopped it and why (MCP-G21).
func reasonFor(c *belay.Cancellation) string {
	switch {
	case c.Cause == belay.CauseUser && c.Via == "mcp":
		return c.Reason
	case c.Reason == "" && (c.Cause == belay.CauseUser || c.Cause == belay.CauseOperator):
		return "" // a person gave none (ORC-44)
	}
	text := "stopped by " + string(c.Cause)
	if c.Reason != "" {
		text += ": " + c.Reason
	}
	return text
}

// signLag is how long after the Stop a message may still have been on its way,
// sent by a server that had not read the cancel. It is no sign of life then.
const signLag = 100 * time.Millisecond

// signLocked notes that the server is still at work on a stopped call.
func (c *call) signLocked(what string) {
	now := time.Now()
	if now.Sub(c.run.Cancellation().At) < signLag {
		return
	}
	if c.sign.IsZero() {
		c.run.Observe(belay.Evidence{Kind: belay.SeenStillActive, Detail: what + " came after the Stop"})
	}
	c.sign = now
	select {
	case c.alive <- struct{}{}:
	default:
	}
}

// lateLocked takes a response to a stopped call: a partial result if it is in
// time, evidence in any case.
func (c *call) lateLocked(m *mcp.Message) {
	if c.replied != "" {
		return // a second answer to one request proves nothing more
	}
	if task := m.TaskID(); task != nil {
		c.cancelTaskLocked(m, task)
		return // that it became a task proves nothing
	}
	c.askedLocked()
	kind := belay.SeenResult
	if m.IsError() {
		kind = belay.SeenErrorReply
	}
	c.replied = kind
	if text, ok := mcp.PartialText(m); ok && !c.s.cfg.Asks { // a script hands back by its onCancel, and by nothing else (AT-6)
		c.partialLocked(text)
	}
	c.judgeLocked(belay.Evidence{
		Kind: kind, Detail: "the server answered after the Stop", Open: kind == belay.SeenErrorReply && (c.strict() || c.ack != ""), // a stop-ack says more
	})
}

// judgeLocked has somebody find out what the server's word that it is done with
// the call is worth.
func (c *call) judgeLocked(e belay.Evidence) {
	judged := make(chan struct{})
	c.judged = judged
	if !c.s.goLocked(func() { c.follow(e, judged) }) {
		c.run.Observe(e)
		close(judged)
	}
}

// follow turns the server's word into evidence: it ends the ladder unless
// processes born during the call are alive, or it is an error reply that may
// come from a server whose worker runs on (MCP-G33).
func (c *call) follow(said belay.Evidence, judged chan<- struct{}) {
	children := c.children(0) // what was born before the answer is seen
	e, open := said, said.Open
	c.s.mu.Lock()
	blamed := c.blamed && len(children) == 0
	c.s.mu.Unlock()
	switch {
	case len(children) > 0:
		e.Open, e.Survivors = true, supervise.Processes(children)
	case blamed: // the server is done with the call after all, which its process survives by right
		c.run.Observe(belay.Evidence{Kind: belay.SeenSurvivors, Detail: "nothing of the call is left; its process works for other calls"})
	}
	c.run.Observe(e)
	close(judged)
	for len(children) > 0 {
		if !c.s.pause(childPoll) {
			return
		}
		if r := c.run.Receipt(); r == nil || r.Final {
			return
		}
		children = c.children(childPoll)
	}
	if e.Survivors != nil {
		c.run.Observe(belay.Evidence{Kind: belay.SeenSurvivors, Detail: "no process born during the call is left"})
		said.Detail += "; the processes born during the call have ended"
		c.run.Observe(said)
	}
	if !open {
		c.s.mu.Lock()
		c.up.removeLocked(c)
		c.up.releaseLocked(c) // a server that obeys the protocol answers it no more
		c.up.retireSupersededLocked()
		c.s.mu.Unlock()
	}
}

// childPoll is how often processes that outlived their call are looked at.
const childPoll = 25 * time.Millisecond

// pause waits; false when the session ends meanwhile.
func (s *Session) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.life.Done():
		return false
	}
}

// children lists the living processes that were born during the call, while
// no other tool call was in flight. Where several ran at the same time nobody
// can tell whose they are: none. The list is at most so old.
func (c *call) children(maxAge time.Duration) []proc.Process {
	c.s.mu.Lock()
	up, began, until, others := c.up, c.began, c.until, c.others
	c.s.mu.Unlock()
	if up == nil || others || began == 0 {
		return nil
	}
	list := up.bornSince(began, maxAge)
	if until != 0 {
		list = slices.DeleteFunc(list, func(p proc.Process) bool { return p.Start/bornUnit >= until/bornUnit })
	}
	return list
}
