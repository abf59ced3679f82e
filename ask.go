package belay

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
)

var _ Approvals = (*Tree)(nil)

// inquiry is a question on its way. Guarded by tree.mu.
type inquiry struct {
	Approval
	run    *Run // nil once it is decided
	glance *glance
	open   context.Context // ends when it is decided
	end    context.CancelCauseFunc
}

// questions are those of a tree. Guarded by tree.mu.
type questions struct {
	known   map[ApprovalID]*inquiry // open, and decided ones that are remembered
	open    []*inquiry              // oldest first
	decided []*inquiry              // the first decided first; at most maxDecided
}

// Ask puts a question to whoever looks at the tree's [Approvals] and waits for
// the answer. Meanwhile the run's work is waiting, and the clock of its deadline
// stands still; afterwards it goes on,
// whatever the answer was: an answer that is not [ChoiceApproved] is no error, and a
// run that ends because of it is to end with [Declined] (AT-62). Work that was
// not started before stays so: Start follows.
//
// On an error there is no answer, and none can come: the run is cancelled (the
// error wraps its *Cancellation, whoever closes the tree too), it is over
// ([ErrEnded]), ctx has ended (its cause), too much is asked at once
// ([ErrTooMany]), or the question is no good ([ErrBadRequest]).
func (r *Run) Ask(ctx context.Context, q Question) (Decision, error) {
	if err := q.own(r.spec.Name); err != nil {
		return Decision{}, fmt.Errorf("ask: %w", err)
	}
	if ctx.Err() != nil {
		return Decision{}, fmt.Errorf("ask: %w", context.Cause(ctx))
	}
	show := q.Show
	q.Show = nil
	a, shown, err := r.put(q)
	if err != nil {
		return Decision{}, err
	}
	defer r.tree.decide(a, Decision{Choice: ChoiceWithdrawn, Via: "belay"}) // only if Show panics
	if show != nil {
		show(shown)
	}
	var late <-chan time.Time
	if !a.Expires.IsZero() {
		timer := time.NewTimer(time.Until(a.Expires))
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-a.open.Done():
	case <-late:
		r.tree.decide(a, Decision{Choice: ChoiceExpired, Via: "belay", Reason: "nobody answered in time"})
	case <-ctx.Done():
		r.tree.decide(a, Decision{Choice: ChoiceWithdrawn, Via: "belay", Reason: CleanReason(context.Cause(ctx).Error())})
	}
	return r.answer(ctx, a)
}

// put makes the question known.
func (r *Run) put(q Question) (*inquiry, Approval, error) {
	t := r.tree
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case r.stop != nil:
		return nil, Approval{}, fmt.Errorf("ask: %w", r.stop.first.cause)
	case r.place != inFlight:
		return nil, Approval{}, fmt.Errorf("ask for %s: %w", r.id, ErrEnded)
	case r.asking >= maxAsking:
		return nil, Approval{}, fmt.Errorf("ask: %w: %d questions of this run are open", ErrTooMany, r.asking)
	case len(t.asked.open) >= t.opts.MaxQuestions:
		return nil, Approval{}, fmt.Errorf("ask: %w: %d questions are open, which is the bound", ErrTooMany, len(t.asked.open))
	case !t.roomLocked(r.spec.Owner):
		return nil, Approval{}, fmt.Errorf("ask: %w: too many of your questions are open", ErrTooMany)
	}
	now := time.Now()
	a := &inquiry{Approval: Approval{ID: ApprovalID(mint(now)), Question: q, Asked: now}, run: r}
	a.open, a.end = context.WithCancelCause(context.Background())
	if q.Timeout > 0 {
		a.Expires = now.Add(q.Timeout)
	}
	if t.asked.known == nil {
		t.asked.known = make(map[ApprovalID]*inquiry)
	}
	t.asked.known[a.ID] = a
	t.asked.open = append(t.asked.open, a)
	r.asking++
	r.haltClockLocked(now)
	if r.work == Running {
		r.work, r.paused, r.halted = Waiting, true, true
		t.emitLocked(EventChanged, r)
	}
	t.emitAskLocked(EventAsked, r, a)
	return a, a.copyLocked(), nil
}

// roomLocked reports whether an owner may ask once more: whoever has a name may have
// as many questions open as there is room left. Nobody fills it, so that the calls of
// others are not refused unasked.
func (t *Tree) roomLocked(owner string) bool {
	if owner == "" {
		return true
	}
	own, room := 0, t.opts.MaxQuestions-len(t.asked.open)
	for _, a := range t.asked.open {
		if a.run.spec.Owner == owner {
			own++
		}
	}
	return own < room
}

// decide decides the question, unless that was done before.
func (t *Tree) decide(a *inquiry, d Decision) {
	t.mu.Lock()
	defer t.mu.Unlock()
	d.At = time.Now()
	t.decideLocked(a, &d)
}

// answer is what Ask returns for a decided question.
func (r *Run) answer(ctx context.Context, a *inquiry) (Decision, error) {
	t := r.tree
	t.mu.Lock()
	defer t.mu.Unlock()
	d := *a.Decision
	switch {
	case d.Choice != ChoiceWithdrawn:
		return d, nil
	case r.stop != nil:
		return d, fmt.Errorf("ask: %w", r.stop.first.cause)
	case ctx.Err() != nil:
		return d, fmt.Errorf("ask: %w", context.Cause(ctx))
	}
	return d, fmt.Errorf("ask for %s: %w", r.id, ErrEnded)
}

// decideLocked is the one place where a question gets its decision. The run's
// work goes on with its last question.
func (t *Tree) decideLocked(a *inquiry, d *Decision) {
	r, q := a.run, &t.asked
	if a.Decision != nil {
		return
	}
	a.Decision, a.Question.Look = d, nil
	q.open = slices.DeleteFunc(q.open, func(b *inquiry) bool { return a == b })
	q.decided = append(q.decided, a)
	for len(q.decided) > maxDecided {
		q.forgetLocked()
	}
	if r.asking--; r.asking == 0 {
		r.goOnLocked()
	}
	a.Run, a.run = r.infoLocked(), nil
	t.emitAskLocked(EventDecided, r, a)
	a.end(ErrDecided)
}

// goOnLocked has the work go on as it was before the run asked.
func (r *Run) goOnLocked() {
	r.goOnClockLocked(time.Now())
	if !r.halted {
		return
	}
	r.halted = false
	if r.work == Waiting && r.paused {
		r.work, r.paused = Running, false
		r.tree.emitLocked(EventChanged, r)
	}
}

func (q *questions) forgetLocked() {
	delete(q.known, q.decided[0].ID)
	q.decided[0] = nil
	q.decided = q.decided[1:]
}

// trimLocked forgets what was decided long ago.
func (q *questions) trimLocked(before time.Time) {
	for len(q.decided) > 0 && q.decided[0].Decision.At.Before(before) {
		q.forgetLocked()
	}
}

// withdrawLocked takes back the questions of a run that has been stopped or is
// over: nobody waits for the answers.
func (t *Tree) withdrawLocked(r *Run) {
	d := Decision{Choice: ChoiceWithdrawn, Via: "belay", Reason: "the run is over", At: time.Now()}
	if r.stop != nil {
		c := r.stop.first.cause
		d.By, d.Via, d.Reason = c.By, c.Via, c.Reason
	}
	for _, a := range slices.Clone(t.asked.open) {
		if a.run == r {
			t.decideLocked(a, &d)
		}
	}
}

// Approvals implements [Approvals].
func (t *Tree) Approvals(_ context.Context, f Filter) ([]Approval, error) {
	match := t.matcher(&f)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.trimLocked(time.Now())
	var list []Approval
	for _, a := range t.asked.open {
		if f.Limit > 0 && len(list) >= f.Limit {
			break
		}
		if (len(f.IDs) == 0 || slices.Contains(f.IDs, a.run.id)) && match(a.run) {
			list = append(list, a.copyLocked())
		}
	}
	return list, nil
}

// Approval returns one question, also one that was decided and is remembered. An
// unknown one is [ErrNotFound].
func (t *Tree) Approval(_ context.Context, id ApprovalID) (Approval, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asked.trimLocked(time.Now().Add(-t.opts.KeepFor))
	if a := t.asked.known[id]; a != nil {
		return a.copyLocked(), nil
	}
	return Approval{}, fmt.Errorf("%w: %s", errNoQuestion, id)
}

// Decide implements [Approvals].
func (t *Tree) Decide(_ context.Context, id ApprovalID, d Decision) (Approval, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	t.asked.trimLocked(now.Add(-t.opts.KeepFor))
	a, err := t.openLocked(id, now)
	switch {
	case a == nil:
		return Approval{}, fmt.Errorf("decide: %w", err)
	case err != nil:
		return a.copyLocked(), fmt.Errorf("decide: %w", err)
	}
	if err := d.own(&a.Question, now); err != nil {
		return a.copyLocked(), fmt.Errorf("decide: %w", err)
	}
	t.decideLocked(a, &d)
	return a.copyLocked(), nil
}

// openLocked is the question with this id. One that is not open any more comes with
// the error that says so.
func (t *Tree) openLocked(id ApprovalID, now time.Time) (*inquiry, error) {
	a := t.asked.known[id]
	if a == nil {
		return nil, fmt.Errorf("%w: %s", errNoQuestion, id)
	}
	if a.Decision == nil && !a.Expires.IsZero() && !now.Before(a.Expires) {
		t.decideLocked(a, &Decision{Choice: ChoiceExpired, Via: "belay", Reason: "nobody answered in time", At: now})
	}
	switch d := a.Decision; {
	case d == nil:
		return a, nil
	case d.Choice == ChoiceWithdrawn:
		return a, fmt.Errorf("%w: %s was withdrawn", errNoQuestion, id)
	default:
		return a, fmt.Errorf("%w: %s is %s", ErrDecided, id, d.Choice)
	}
}

// copyLocked is the approval for others to keep.
func (a *inquiry) copyLocked() Approval {
	c := a.Approval
	c.Question.Look = nil // it is the tree's to call
	if a.run != nil {
		c.Run = a.run.infoLocked()
	} else {
		c.Run.Labels = maps.Clone(c.Run.Labels)
	}
	if a.Decision != nil {
		d := *a.Decision
		c.Decision = &d
	}
	return c
}
