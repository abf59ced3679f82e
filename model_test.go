package belay

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// model is what the tree should be like, kept in the plainest way: a list of
// runs that know the one above. It says which runs are cancelled, by what, and
// what their callers were told; how far a ladder has come is left to the tests
// of the ladder, and only its legal moves are checked here.
type model struct {
	t    *rapid.T
	tree *Tree
	runs []*modelRun
}

type modelRun struct {
	run      *Run
	ctx      context.Context // nil: not in use
	above    *modelRun
	deadline time.Time
	outcome  Outcome
	finished bool // the work ended by itself
	cause    Cause
	origin   *modelRun
	proved   bool // evidence ended the ladder
	work     Work // as it was after the step before
	settled  int  // how often OnCancel was called
}

// A random life of a tree against the model, with its inside checked after
// each step.
func TestTreeAgainstAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { rapid.SyncTest(t, liveAgainstModel) })
}

func liveAgainstModel(t *rapid.T) {
	m := &model{t: t, tree: NewTree(Options{KeepRuns: rapid.IntRange(1, 6).Draw(t, "keep"), KeepFor: 30 * time.Second})}
	t.Repeat(map[string]func(*rapid.T){
		"register": m.register,
		"start":    m.start,
		"finish":   m.finish,
		"settle":   m.settle,
		"cancel":   m.cancel,
		"press":    m.press,
		"observe":  m.observe,
		"pass":     m.pass,
		"":         m.check,
	})
	if err := m.tree.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, r := range m.runs {
		if r.run.parent != nil && r.run.spentLocked() {
			t.Errorf("a run with which a Stop has nothing to do is linked")
		}
	}
	if m.tree.inFlight != 0 {
		t.Errorf("%d in flight after Close", m.tree.inFlight)
	}
}

// any draws one of the runs; nil if there is none.
func (m *model) any(t *rapid.T) *modelRun {
	if len(m.runs) == 0 {
		return nil
	}
	return m.runs[rapid.IntRange(0, len(m.runs)-1).Draw(t, "run")]
}

func (r *modelRun) cancelled() bool { return r.cause != "" }

func (m *model) stopper(t *rapid.T) Stopper {
	tool := &script{on: map[Means]method{}, gate: func(_ context.Context, p Pressure) error {
		if p.Again {
			return nil
		}
		return quiet
	}}
	if at := rapid.SampledFrom([]Means{"", "", StepTold, StepTerminate, StepKill}).Draw(t, "seen at"); at != "" {
		tool.on[at] = saw(gone)
	}
	return rapid.SampledFrom([]Stopper{nil, teller{tool}, killer{teller{tool}}, gated{killer{teller{tool}}}}).Draw(t, "stopper")
}

func (m *model) register(t *rapid.T) {
	r := &modelRun{outcome: Pending, work: Running}
	spec := Spec{Kind: KindCall, Name: "run", OnCancel: func(*Run, *Cancellation) { r.settled++ }}
	if len(m.runs) > 0 && rapid.Bool().Draw(t, "below") {
		r.above = m.any(t)
		spec.Parent = r.above.run
	}
	if spec.Queued = rapid.IntRange(0, 3).Draw(t, "queued") == 0; spec.Queued {
		r.work = Waiting
	}
	if rapid.IntRange(0, 3).Draw(t, "limited") == 0 {
		r.deadline = time.Now().Add(time.Duration(rapid.IntRange(1, 20).Draw(t, "deadline"))*time.Second + time.Duration(len(m.runs))*time.Microsecond)
		spec.Deadline = r.deadline
	}
	spec.Stopper = m.stopper(t)
	run, err := m.tree.Register(spec)
	switch {
	case r.above != nil && r.above.cancelled():
		if !errors.Is(err, ErrCancelled) {
			t.Fatalf("below a cancelled run: %v", err)
		}
		return
	case r.above != nil && r.above.finished:
		if !errors.Is(err, ErrEnded) {
			t.Fatalf("below a run that is over: %v", err)
		}
		return
	case err != nil:
		t.Fatal(err)
	}
	r.run = run
	if rapid.Bool().Draw(t, "context") {
		r.ctx = run.Context()
	}
	m.runs = append(m.runs, r)
}

func (m *model) start(t *rapid.T) {
	if r := m.any(t); r != nil {
		if got, want := r.run.Start(), !r.cancelled() && !r.finished; got != want {
			t.Fatalf("Start is %t, want %t", got, want)
		}
	}
}

func (m *model) finish(t *rapid.T) {
	r := m.any(t)
	if r == nil {
		return
	}
	o := rapid.SampledFrom([]Outcome{Completed, Failed, Declined, Lost}).Draw(t, "outcome")
	m.tell(t, r, o, r.run.Finish(o))
	if !r.cancelled() {
		r.finished = true
	}
}

func (m *model) settle(t *rapid.T) {
	if r := m.any(t); r != nil {
		m.tell(t, r, Completed, r.run.Settle(Completed))
	}
}

func (m *model) tell(t *rapid.T, r *modelRun, o Outcome, got bool) {
	if want := r.outcome == Pending; got != want {
		t.Fatalf("settled: %t, want %t", got, want)
	}
	if got {
		r.outcome = o
	}
}

// below reports whether r is top or hangs below it.
func (r *modelRun) below(top *modelRun) bool {
	for ; r != nil; r = r.above {
		if r == top {
			return true
		}
	}
	return false
}

// stop is what a Stop does to the model; true if something was stopped.
func (m *model) stop(top *modelRun, cause Cause) (touched bool) {
	for _, r := range m.runs {
		if !r.below(top) || r.cancelled() || r.finished {
			continue
		}
		touched = true
		r.cause = cause
		if r != top {
			r.cause, r.origin = CauseParent, top
		}
		if r.outcome == Pending {
			r.outcome = Cancelled
		}
		if r.work == Waiting {
			r.proved = true
		}
	}
	return touched
}

func (m *model) cancel(t *rapid.T) {
	if r := m.any(t); r != nil {
		m.look() // whether it waits in the queue decides what a Stop proves
		got := r.run.Cancel(Cancellation{Cause: CauseDisconnect})
		if want := m.stop(r, CauseDisconnect); got != want {
			t.Fatalf("cancel: %t, want %t", got, want)
		}
	}
}

func (m *model) press(t *rapid.T) {
	r := m.any(t)
	if r == nil {
		return
	}
	m.look()
	known := m.tree.runs[r.run.id] != nil
	req := CancelRequest{Filter: Filter{IDs: []RunID{r.run.ID()}}, Cancellation: byUser(), Escalate: true, Now: rapid.Bool().Draw(t, "now")}
	results, err := m.tree.Cancel(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if _, gone := m.tree.Run(r.run.ID()); gone != nil && len(results) == 0 || !known {
		return // it was forgotten, and nobody can name it any more
	}
	m.stop(r, CauseUser)
}

func (m *model) observe(t *rapid.T) {
	if r := m.any(t); r != nil {
		e := rapid.SampledFrom([]Evidence{returned, gone, {Kind: SeenStillActive}, {Kind: SeenErrorReply, Open: true}}).Draw(t, "evidence")
		r.run.Observe(e)
		if r.cancelled() && e.ends() {
			r.proved = true
		}
	}
}

// pass lets time pass: deadlines come, one after the other, and ladders climb.
func (m *model) pass(t *rapid.T) {
	m.look()
	time.Sleep(time.Duration(rapid.IntRange(1, 15_000).Draw(t, "ms")) * time.Millisecond)
	synctest.Wait()
	due := slices.Clone(m.runs)
	due = slices.DeleteFunc(due, func(r *modelRun) bool {
		return r.deadline.IsZero() || r.deadline.After(time.Now()) || r.cancelled() || r.finished
	})
	slices.SortFunc(due, func(a, b *modelRun) int { return a.deadline.Compare(b.deadline) })
	for _, r := range due {
		if !r.cancelled() {
			m.stop(r, CauseDeadline)
		}
	}
}

// look takes down the state of the work without judging it.
func (m *model) look() {
	synctest.Wait()
	for _, r := range m.runs {
		r.work = r.run.Info().Work
	}
}

// legal are the moves of the work within one step of the model.
var legal = map[Work][]Work{
	Waiting:     {Waiting, Running, Stopped},
	Running:     {Running, Stopping, Stopped, Unconfirmed},
	Stopping:    {Stopping, Stopped, Unconfirmed},
	Unconfirmed: {Unconfirmed, Stopping, Stopped},
	Stopped:     {Stopped},
}

func (m *model) check(t *rapid.T) {
	synctest.Wait()
	inFlight := 0
	for i, r := range m.runs {
		info, receipt := r.run.Info(), r.run.Receipt()
		if info.Outcome != r.outcome {
			t.Fatalf("run %d: outcome %s, want %s", i, info.Outcome, r.outcome)
		}
		if !slices.Contains(legal[r.work], info.Work) {
			t.Fatalf("run %d: work went from %s to %s", i, r.work, info.Work)
		}
		r.work = info.Work
		if r.finished && info.Work != Stopped || r.proved && (info.Work != Stopped || receipt.Verdict != Confirmed) {
			t.Fatalf("run %d: it is over, and its work is %s", i, info.Work)
		}
		if want := r.outcome == Cancelled; (r.settled == 1) != want || r.settled > 1 {
			t.Fatalf("run %d: OnCancel was called %d times, outcome %s", i, r.settled, r.outcome)
		}
		m.checkCause(t, i, r, info.Cancellation)
		over := r.outcome.Terminal() && (info.Work == Stopped || info.Work == Unconfirmed)
		if receipt != nil && receipt.Final != over {
			t.Fatalf("run %d: final is %t, over %t", i, receipt.Final, over)
		}
		if !over {
			inFlight++
		}
		if over != (r.run.place != inFlightPlace) {
			t.Fatalf("run %d: over is %t, and its place is %d", i, over, r.run.place)
		}
	}
	if got := m.tree.InFlight(); got != inFlight {
		t.Fatalf("%d in flight, want %d", got, inFlight)
	}
	m.checkLinks(t)
}

const inFlightPlace = inFlight // the name is a local's above

func (m *model) checkCause(t *rapid.T, i int, r *modelRun, c *Cancellation) {
	if (c != nil) != r.cancelled() {
		t.Fatalf("run %d: cancellation %+v, want cause %q", i, c, r.cause)
	}
	if r.ctx != nil && (r.ctx.Err() != nil) != r.cancelled() {
		t.Fatalf("run %d: its context ended: %v", i, r.ctx.Err())
	}
	if c == nil {
		return
	}
	var origin RunID
	if r.origin != nil {
		origin = r.origin.run.id
	}
	if c.Cause != r.cause || c.Origin != origin {
		t.Fatalf("run %d: %+v, want cause %s and origin %s", i, c, r.cause, origin)
	}
	if r.ctx != nil && context.Cause(r.ctx) != error(c) {
		t.Fatalf("run %d: the cause of its context is %v", i, context.Cause(r.ctx))
	}
}

// checkLinks looks at the maps and lists of the tree.
func (m *model) checkLinks(t *rapid.T) {
	tree := m.tree
	tree.mu.Lock()
	defer tree.mu.Unlock()
	if len(tree.runs) != tree.inFlight+tree.kept.len {
		t.Fatalf("%d known, %d in flight, %d remembered", len(tree.runs), tree.inFlight, tree.kept.len)
	}
	placed := 0
	for _, shelf := range tree.shelves.list {
		for _, r := range shelf.runs {
			if r != nil {
				placed++
			}
			if r != nil && tree.runs[r.id] != r {
				t.Fatal("a run that is forgotten stands on a shelf")
			}
		}
	}
	if placed != len(tree.runs) {
		t.Fatalf("%d runs stand on shelves, %d are known", placed, len(tree.runs))
	}
	n, last := 0, (*Run)(nil)
	for r := tree.kept.oldest; r != nil; last, r = r, r.newer {
		if n++; r.older != last || r.place != remembered || tree.runs[r.id] != r || last != nil && r.ended.Before(last.ended) {
			t.Fatalf("the list of remembered runs is broken at %d", n)
		}
	}
	if n != tree.kept.len || n > tree.opts.KeepRuns || tree.kept.newest != last {
		t.Fatalf("%d remembered, counted %d, bound %d", n, tree.kept.len, tree.opts.KeepRuns)
	}
	for i, r := range m.runs {
		if (tree.runs[r.run.id] == r.run) != (r.run.place != forgotten) {
			t.Fatalf("run %d: known is %t, place %d", i, tree.runs[r.run.id] == r.run, r.run.place)
		}
		if r.above == nil {
			continue
		}
		if linked := r.run.parent != nil; linked == r.run.spentLocked() || linked && r.run.parent != r.above.run {
			t.Fatalf("run %d: linked is %t, spent %t", i, linked, r.run.spentLocked())
		}
		if r.run.place == forgotten && r.run.stop != nil && r.run.stop.ctx.Err() == nil {
			t.Fatalf("run %d is forgotten, and its stopper's context is alive", i)
		}
	}
	for _, r := range m.runs {
		var before *Run
		for c := r.run.first; c != nil; before, c = c, c.next {
			if c.parent != r.run || c.prev != before {
				t.Fatal("the list of children is broken")
			}
		}
	}
}
