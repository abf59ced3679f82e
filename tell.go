package belay

import (
	"sync/atomic"
	"time"
)

// task is what is owed to one newly cancelled run, and then what came of it.
type task struct {
	run     *Run
	stop    *stop // the run's; it, its order and its context never change once they are set
	order   *order
	end     func(error)               // of the run's context; nil: not in use
	settle  func(*Run, *Cancellation) // nil: nobody is waiting for an answer
	stopper Stopper
	idle    bool // nothing was started

	after    time.Duration // from the Stop until it was told
	err      string
	evidence *Evidence // nil: none
	next     *task     // in a tellBox
}

func (j *task) settleCaller() {
	if j.end != nil {
		j.end(j.order.cause)
	}
	if j.settle != nil {
		j.settle(j.run, j.order.cause)
	}
}

// tell tells the first backend, after it has sent a goroutine on its way for
// the next one in its lane: whoever blocks delays nobody, and where nobody
// blocks 100,000 tells need only a few goroutines at a time.
func (t *Tree) tell(jobs []task, lanes int) {
	defer t.wg.Done()
	if len(jobs) > lanes {
		go t.tell(jobs[lanes:], lanes)
	}
	j := &jobs[0]
	e, err := j.stopper.Tell(&j.stop.ctx, j.order.cause)
	j.after, j.evidence = time.Since(j.order.begun), e
	if err != nil {
		j.err = err.Error() // here, since what it does is not ours to know
	}
	t.report(j)
}

// tellByContext writes down the tell of a run without a stopper, which is the
// end of its context.
func (t *Tree) tellByContext(j *task) {
	detail := "its context was ended"
	if j.end == nil {
		detail, j.err = "", "nobody listens: the run has neither a stopper nor a context in use"
	}
	j.after = time.Since(j.order.begun)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.toldLocked(j, detail)
}

// tellBox holds the results of tells that are not written down yet, so that
// 100,000 tellers do not queue for the tree's lock, each with a stack.
type tellBox struct{ newest atomic.Pointer[task] }

// report leaves the result in the box. Who finds the box empty writes down all
// that is in it by the time he has the lock; the others leave theirs and go.
func (t *Tree) report(j *task) {
	for {
		j.next = t.tells.newest.Load()
		if t.tells.newest.CompareAndSwap(j.next, j) {
			break
		}
	}
	if j.next != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	const few = 64 // some tens of microseconds
	for n, j := 1, t.tells.newest.Swap(nil); j != nil; n, j = n+1, j.next {
		t.toldLocked(j, "")
		if n%few == 0 {
			t.mu.Unlock()
			t.mu.Lock()
		}
	}
}

func (t *Tree) toldLocked(j *task, detail string) {
	if j.err == "" {
		j.stop.raise(Signalled)
	}
	t.stepLocked(j.run, j.stop, Step{At: j.order.begun.Add(j.after), Step: StepTold, Detail: detail, Error: j.err})
	if j.evidence != nil {
		t.observeLocked(j.run, *j.evidence)
	}
}
