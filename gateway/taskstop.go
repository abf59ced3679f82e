package gateway

import (
	"context"
	"fmt"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
	"github.com/belayhq/belay/supervise"
)

// What a server says about a stopped task is its record, not its work: it has to
// write down "cancelled" before it answers, and may go on (MCP-48, MCP-49). So
// its word makes a Stop acknowledged, but where force may be used on its process
// it does not end the ladder: signs of life are looked for once more.

// onCancel is call.onCancel without a caller: nobody waits for an answer. Who
// waits for the task's result gets what the server sends (A11).
func (t *task) onCancel(*belay.Run, *belay.Cancellation) {
	s := t.s
	s.mu.Lock()
	defer s.mu.Unlock()
	t.answered = true
	if t.hostLocked() != nil && !t.byTask {
		t.up.owesLocked(t.call)
	}
	t.stopLocked()
	for _, c := range s.calls {
		if c.ref == t.taskID && c.up != nil {
			c.up.uncountLocked(c)
		}
	}
}

// Tell sends tasks/cancel, unless the caller's own is on its way (MCP-44,
// MCP-80). It returns when the request was written, or the server has answered.
func (t *task) Tell(ctx context.Context, cause *belay.Cancellation) (*belay.Evidence, error) {
	s := t.s
	s.mu.Lock()
	up, told := t.up, t.byTask
	if up.dead {
		s.mu.Unlock()
		return nil, errGone
	}
	var wait func(context.Context) error
	var done <-chan error
	var err error
	if !told {
		wait, done, err = up.postTaskCancelLocked(t.call, t.raw)
	}
	s.mu.Unlock()
	defer up.toldOne(t.call)
	t.tellHooks(cause)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errGone, err)
	case told:
		return nil, nil
	case wait != nil:
		if err := wait(ctx); err != nil && ctx.Err() == nil {
			return nil, fmt.Errorf("%w: %w", errGone, err)
		}
		return nil, nil
	}
	limit := time.NewTimer(t.policy.Ladder.WithDefaults().Grace)
	defer limit.Stop()
	select {
	case err = <-done:
	case <-limit.C: // it holds its answer back
	case <-ctx.Done():
	}
	return nil, err
}

// Plan implements [belay.Planner].
func (t *task) Plan(ctx context.Context) belay.Plan {
	plan := t.call.Plan(ctx)
	plan.Tell = "server " + t.s.cfg.Name + ", by tasks/cancel"
	return plan
}

// taskCancel is a tasks/cancel of ours that was not answered yet.
type taskCancel struct {
	of   *call
	raw  []byte
	done chan error // capacity 1: nil if it was answered
}

// postTaskCancelLocked sends tasks/cancel under an id of ours, ahead of what is
// queued. Where the wire cannot say when it was written wait is nil, and done
// says when it was answered or came to nothing.
func (u *upstream) postTaskCancelLocked(c *call, raw []byte) (wait func(context.Context) error, done <-chan error, err error) {
	id := u.ids.Next()
	tc := &taskCancel{of: c, raw: raw, done: make(chan error, 1)}
	if u.taskCancels == nil {
		u.taskCancels = make(map[string]*taskCancel)
	}
	if len(u.taskCancels) < maxTasks {
		u.taskCancels[id.Key()] = tc
	}
	wait, err = u.wire.urge(mcp.AppendCancelTask(nil, id, raw, c.era))
	if err != nil {
		delete(u.taskCancels, id.Key())
	}
	return wait, tc.done, err
}

// cancelTaskLocked has the server cancel the task that a stopped call became:
// the request was answered, the work only begins (A5, A6).
func (c *call) cancelTaskLocked(m *mcp.Message, raw []byte) {
	if news := m.CreatedTask(); news.ID != "" {
		c.s.cfg.Tasks.bind(news, c.s, c.up)
	}
	if _, _, err := c.up.postTaskCancelLocked(c, append([]byte(nil), raw...)); err != nil {
		c.s.log.Warn("a task could not be cancelled", "run", c.run.ID(), "error", err)
	}
	c.askedLocked()
}

// askedLocked ends the waiting of Tell for the id of the task.
func (c *call) askedLocked() {
	if c.task && !c.told {
		c.told = true
		close(c.asked)
	}
}

// taskCancelAnsweredLocked takes the answer to a tasks/cancel of ours; false if
// key is none.
func (u *upstream) taskCancelAnsweredLocked(key string, m *mcp.Message) bool {
	tc := u.taskCancels[key]
	if tc == nil {
		return false
	}
	delete(u.taskCancels, key)
	tc.done <- nil
	c := tc.of
	if m.IsError() {
		c.refusedLocked(errorCode(m))
		return true
	}
	if c.work != nil {
		c.work.heard = time.Now()
	}
	c.saidLocked(m.TaskNews())
	c.askLocked(tc.raw)
	return true
}

// taskCancelLostLocked is the end of a tasks/cancel of ours that gets no answer;
// false if key is none.
func (u *upstream) taskCancelLostLocked(key string, err error) bool {
	tc := u.taskCancels[key]
	if tc == nil {
		return false
	}
	delete(u.taskCancels, key)
	tc.done <- fmt.Errorf("%w: %w", belay.ErrUnreachable, err)
	return true
}

// errorCode is the code of an error response.
func errorCode(m *mcp.Message) int {
	code, ok := m.ErrorCode()
	if !ok || code == 0 {
		return mcp.CodeInternal
	}
	return code
}

// refusedLocked takes the server's refusal to cancel a task: that it is unknown
// or over says something about it, any other error nothing.
func (c *call) refusedLocked(code int) {
	if code != mcp.CodeInvalidParams {
		c.s.log.Warn("the server refused to cancel a task", "run", c.run.ID(), "code", code)
		return
	}
	c.wordLocked(belay.SeenErrorReply, "the server says that the task is over or unknown")
}

// saidLocked takes what the server says about the task of a stopped call, or
// about a stopped task.
func (c *call) saidLocked(n mcp.TaskNews) {
	switch n.Status {
	case mcp.TaskCancelled:
		c.wordLocked(belay.SeenTaskCancelled, "the server says that the task is cancelled")
	case mcp.TaskCompleted, mcp.TaskFailed: // it ended before, or in spite of, the Stop: its effects stand (MCP-17)
		if c.replied != belay.SeenResult {
			c.replied = belay.SeenResult
			c.judgeLocked(belay.Evidence{Kind: belay.SeenResult, Detail: "the server says that the task is " + string(n.Status)})
		}
	}
}

// wordLocked records the server's word that a stopped task is over, once.
func (c *call) wordLocked(kind belay.EvidenceKind, detail string) {
	if c.replied != "" {
		return
	}
	c.replied = belay.SeenTaskCancelled
	c.run.Observe(belay.Evidence{Kind: kind, Detail: detail, Open: c.forcible()})
}

// forcible reports whether force may follow without a person's second Stop.
func (c *call) forcible() bool {
	p := c.policy
	switch {
	case c.up == nil || c.up.tree == nil || p.Observe || p.Enforce == EnforceNever:
		return false
	}
	return p.Enforce == EnforceAuto || p.Enforce == EnforceStrict || c.s.cfg.RestartSafe || c.up.worker
}

// afterWord is how long signs of life are looked for: not for long when the
// server says that the task is over.
func (c *call) afterWord(giveUp time.Time) time.Time {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if soon := time.Now().Add(3 * supervise.LifeWindow / 2); c.replied == belay.SeenTaskCancelled && soon.Before(giveUp) {
		return soon
	}
	return giveUp
}

// askLocked has the server asked what became of a stopped task if it did not say
// so by itself: the extension's answer to tasks/cancel says nothing (MCP-81). It
// is asked until the time for evidence is over, even if the ladder has given up:
// its word then upgrades the receipt.
func (c *call) askLocked(raw []byte) {
	if c.replied != "" || c.polled {
		return
	}
	c.polled = true
	c.s.goLocked(func() { c.pollTask(raw) })
}

// The pace of the questions what became of a stopped task.
const (
	firstPoll = 100 * time.Millisecond
	lastPoll  = 2 * time.Second
)

func (c *call) pollTask(raw []byte) {
	s := c.s
	giveUp := c.run.Cancellation().At.Add(c.policy.Ladder.WithDefaults().ConfirmAfter)
	ctx, end := context.WithDeadlineCause(s.life, giveUp, errStepOver)
	defer end()
	for wait := firstPoll; time.Until(giveUp) > wait && s.pause(wait); wait = min(2*wait, lastPoll) {
		m, err := c.up.askWith(ctx, func(id jsonrpc.ID) []byte { return mcp.AppendGetTask(nil, id, raw, c.era) })
		if err != nil {
			return
		}
		s.mu.Lock()
		if m.IsError() {
			c.refusedLocked(errorCode(m))
		} else {
			c.saidLocked(m.TaskNews())
		}
		known := c.replied != "" || m.IsError()
		s.mu.Unlock()
		if known {
			return
		}
	}
}

// cancelByTaskLocked takes a tasks/cancel of the caller as its Stop of that
// task, before it is passed on: no second one is sent.
func (s *Session) cancelByTaskLocked(m *mcp.Message) {
	if m.Method != mcp.MethodCancelTask || s.cfg.PassCancels || s.closing || s.failure != nil {
		return
	}
	id := m.TaskRef()
	b, foreign := s.cfg.Tasks.find(id, s.cfg.Owner)
	if foreign || b.s == nil {
		return
	}
	s.mu.Unlock()
	defer s.mu.Lock()
	of := b.s
	of.mu.Lock()
	t := of.tasks[id]
	first := t != nil && t.run.Cancellation() == nil
	if first {
		t.byTask = true
	}
	of.mu.Unlock()
	if first && t.run.Cancel(s.byCaller("")) {
		s.log.Info("the caller cancelled a task", "run", t.run.ID(), "tool", t.title())
	}
}
