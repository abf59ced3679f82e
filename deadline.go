package belay

import "time"

// clock is that of a run's deadline. It counts the time in which the run can get on:
// while a person is asked ([Run.Ask]) it stands still, and with the last answer it
// goes on with what was left. A question has a bound of its own, and the minute that
// a person takes is none of the work's. The deadline of a run above goes on all the
// same: it bounds whatever happens below. Guarded by tree.mu.
type clock struct {
	timer *time.Timer
	end   time.Time // by the monotonic clock, which nobody sets back
	still time.Time // since when it stands still; zero: it goes on
}

// setClockLocked has the run end at its deadline.
func (r *Run) setClockLocked(now time.Time) {
	if r.spec.Deadline.IsZero() {
		return
	}
	left := r.spec.Deadline.Sub(now)
	r.clock = &clock{timer: time.AfterFunc(left, r.expire), end: now.Add(left)}
}

// haltClockLocked has the clock stand still, unless the time is up already.
func (r *Run) haltClockLocked(now time.Time) {
	c := r.clock
	if c == nil || !c.still.IsZero() || !now.Before(c.end) {
		return
	}
	c.timer.Stop() // too late: expire sees that the clock stands still
	c.still = now
}

// goOnClockLocked has it go on, and moves the deadline by the time it stood still.
func (r *Run) goOnClockLocked(now time.Time) {
	c := r.clock
	if c == nil || c.still.IsZero() {
		return
	}
	stood := now.Sub(c.still)
	r.spec.Deadline, c.end, c.still = r.spec.Deadline.Add(stood), c.end.Add(stood), time.Time{}
	c.timer.Reset(c.end.Sub(now))
}

// dropClockLocked ends the clock of a run that is stopped or over.
func (r *Run) dropClockLocked() {
	if r.clock == nil {
		return
	}
	r.spec.Deadline = r.deadlineLocked()
	r.clock.timer.Stop()
	r.clock = nil
}

// deadlineLocked is when the run ends if everything stays as it is; while a person is
// asked, if the answer came now.
func (r *Run) deadlineLocked() time.Time {
	if c := r.clock; c != nil && !c.still.IsZero() {
		return r.spec.Deadline.Add(time.Since(c.still))
	}
	return r.spec.Deadline
}

// expire is called by the timer.
func (r *Run) expire() {
	if r.timeIsUp() {
		r.Cancel(Cancellation{Cause: CauseDeadline, Via: "deadline", Reason: "its time was up"})
	}
}

// timeIsUp reports whether the timer has not been overtaken by a question.
func (r *Run) timeIsUp() bool {
	r.tree.mu.Lock()
	defer r.tree.mu.Unlock()
	c := r.clock
	return c != nil && c.still.IsZero() && !time.Now().Before(c.end)
}
