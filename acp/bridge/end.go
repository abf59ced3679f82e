package bridge

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/acp"
)

// flushWait is how long what is queued for a peer may take to leave at the end.
const flushWait = 500 * time.Millisecond

var errFlush = errors.New("the peer does not read")

// end stops what runs, for the reason for which Serve ends, answers the editor,
// and ends the agent with its tree (ACP-B24, B33, B34, B36).
func (b *Bridge) end(agentRead <-chan struct{}) Result {
	b.mu.Lock()
	why := b.reason
	b.mu.Unlock()
	exit := b.exit(why)
	b.stopAll(why)
	answer := func() {
		b.with(func() { b.answerAll(why, exit) })
	}
	if why != EditorGone {
		answer() // first: the agent may take its time
	}
	seen := b.endAgent(why, agentRead, answer)
	b.lock()
	runs := b.conclusion(why, seen)
	b.unlock()
	for _, f := range runs {
		f()
	}
	b.flush(b.editor)
	r := Result{Reason: why, Agent: b.exit("")}
	if seen != nil {
		r.Living = seen.Survivors
	}
	return r
}

// exit is how the agent's process ended. When its output has ended, it is about to.
func (b *Bridge) exit(why Reason) Exit {
	if b.o.Agent == nil {
		return Exit{}
	}
	if why == AgentGone {
		timer := time.NewTimer(lastWords)
		defer timer.Stop()
		select {
		case <-b.o.Agent.Done():
		case <-timer.C:
		}
	}
	return b.o.Agent.Exit()
}

// String says how a process ended, for people.
func (e Exit) String() string {
	switch {
	case !e.Ended:
		return ""
	case e.Signal != "":
		return "killed by " + e.Signal
	}
	return fmt.Sprintf("exit status %d", e.Code)
}

// stopAll is the Stop of everything. A living agent is told before anything is done
// to it.
func (b *Bridge) stopAll(why Reason) {
	c := belay.Cancellation{Stop: belay.NewStopID(), Via: "acp"}
	switch why {
	case EditorGone:
		c.Cause, c.Reason = belay.CauseDisconnect, "the editor is gone"
	case Shutdown, AgentKilled:
		c.Cause, c.Reason = belay.CauseShutdown, "Belay is ending"
	case AgentGone:
		return // what ran has failed
	}
	b.mu.Lock()
	var runs []*belay.Run
	for _, s := range b.everySession() {
		runs = append(runs, s.run)
		for _, t := range append(s.turns, s.queue...) {
			runs = append(runs, t.run)
		}
	}
	b.mu.Unlock()
	if why == AgentKilled {
		return // the other sessions have nothing that runs
	}
	for _, r := range runs {
		r.Cancel(c)
	}
}

func (b *Bridge) everySession() []*session {
	list := slices.Collect(maps.Values(b.sessions))
	list = slices.AppendSeq(list, maps.Keys(b.unnamed))
	return slices.AppendSeq(list, maps.Keys(b.orphans))
}

// answerAll gives every open request of the editor its answer, and withdraws the
// agent's questions.
func (b *Bridge) answerAll(why Reason, exit Exit) {
	for _, s := range b.everySession() {
		for _, t := range append(s.turns, s.queue...) {
			switch {
			case t.settled:
			case t.stop != nil || t.run.Cancellation() != nil:
				if t.stop == nil {
					t.stop = newStopping(t.run.Cancellation())
				}
				b.settleTurn(t)
			default:
				t.settled = true
				t.run.Settle(belay.Failed)
				if t.prompt != nil {
					t.prompt.fail(acp.CodeInternal, ended(why), gone(why, t.run, exit.String()))
				}
			}
		}
	}
	for _, r := range ordered(b.editor.asked, b.agent.open) {
		if r.from != b.editor {
			continue
		}
		var run *belay.Run
		if r.t != nil {
			run = r.t.run
		} else if r.s != nil {
			run = r.s.run
		}
		r.fail(acp.CodeInternal, ended(why), gone(why, run, exit.String()))
	}
	for _, r := range ordered(b.agent.asked, b.editor.open) {
		if r.from != b.agent || r.settled {
			continue
		}
		if r.to == b.editor && !r.answered && why != EditorGone {
			r.tell()
		}
		b.childOver(r, belay.Cancelled)
		r.settle()
	}
}

// ordered are the requests that were received and those that were passed on, in the
// order of that. An asker that uses an id again has more than one under it.
func ordered(asked, passed map[string]*request) []*request {
	all := slices.AppendSeq(slices.Collect(maps.Values(asked)), maps.Values(passed))
	slices.SortFunc(all, func(a, b *request) int { return a.nr - b.nr })
	return slices.Compact(all)
}

// ended says why a request gets no other answer.
func ended(why Reason) string {
	switch why {
	case AgentGone:
		return "the agent is gone"
	case AgentKilled:
		return "the agent did not stop and was killed"
	case Shutdown:
		return "Belay is ending"
	case EditorGone:
	}
	return "the connection has ended"
}

// endAgent closes the agent's input and sees its tree to the end. It returns what was
// seen last; nil if that is nothing. Until its time is over the agent can answer what
// it was asked before, also when the editor asks no more; then answer is called.
func (b *Bridge) endAgent(why Reason, agentRead <-chan struct{}, answer func()) *belay.Evidence {
	b.flush(b.agent) // closes its input, too
	if b.o.Agent == nil {
		b.waitFor(agentRead, b.set.ExitGrace)
		answer()
		return nil
	}
	limited := func(d time.Duration, do func(context.Context) (*belay.Evidence, error)) *belay.Evidence {
		ctx, end := context.WithTimeoutCause(context.Background(), d, errFlush)
		defer end()
		e, err := do(ctx)
		if err != nil {
			b.log.Warn("the end of the agent's tree", "error", err)
		}
		return e
	}
	switch why {
	case AgentKilled, AgentGone:
	default:
		start := time.Now()
		b.waitFor(b.o.Agent.Done(), b.set.ExitGrace)
		b.waitFor(agentRead, min(lastWords, b.set.ExitGrace-time.Since(start)))
		answer()
		if e := limited(b.set.KillAfter, b.o.Agent.Terminate); e != nil && e.Kind == belay.SeenProcessGone && len(e.Survivors) == 0 {
			return e
		}
	}
	return limited(killWait, b.o.Agent.Kill)
}

// killWait is how long the dead are looked for.
const killWait = 2 * time.Second

func (b *Bridge) waitFor(done <-chan struct{}, most time.Duration) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// flush writes what is queued for a peer, for a while, and closes its input.
func (b *Bridge) flush(h *hop) {
	ctx, end := context.WithTimeoutCause(context.Background(), flushWait, errFlush)
	defer end()
	_ = h.w.Close(ctx)
}

// conclusion ends every run with what was seen. What it returns is to be done
// without the lock.
func (b *Bridge) conclusion(why Reason, seen *belay.Evidence) (after []func()) {
	e := belay.Evidence{Kind: belay.SeenTaskCancelled, Detail: "the agent is gone"}
	if seen != nil {
		e = *seen
	}
	turns := slices.Concat(b.kept, slices.Collect(maps.Keys(b.stopping)))
	b.kept = nil
	for _, s := range b.everySession() {
		turns = append(turns, append(s.turns, s.queue...)...)
		if s.front != nil {
			front := s.front
			after = append(after, func() { b.o.Front.Close(front) })
		}
	}
	for _, t := range turns {
		for _, x := range t.tools {
			if x.run != nil {
				conclude1(x.run, e)
			}
		}
		for _, r := range t.children {
			if r.run != nil {
				conclude1(r.run, e)
			}
		}
		conclude1(t.run, e)
		after = append(after, t.release)
	}
	for _, r := range b.editor.open { // cut off, and the editor has not said what became of it
		if r.run != nil {
			r.run.GiveUp("")
		}
	}
	o := belay.Completed
	if why == AgentGone || why == AgentKilled {
		o = belay.Failed
	}
	for _, r := range b.runs {
		if r.Cancellation() != nil {
			conclude1(r, e)
		} else {
			r.Finish(o)
		}
	}
	return after
}

// conclude1 ends one run: by evidence if it was stopped, else as failed.
func conclude1(r *belay.Run, e belay.Evidence) {
	if r.Cancellation() == nil {
		r.Finish(belay.Failed)
		return
	}
	r.Observe(e)
	if len(e.Survivors) > 0 {
		r.GiveUp("processes of the agent could not be ended")
	}
}
