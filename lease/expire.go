package lease

import (
	"time"

	"github.com/belayhq/belay"
)

// viaLease is the door's name in cancellations of runs whose lease ran out.
const viaLease = "lease"

// idle is the longest time between two looks, and gap the shortest.
const (
	idle = time.Minute
	gap  = 100 * time.Millisecond
)

// watch is the registry's goroutine: it finds leases that have run out.
func (r *Registry) watch() {
	timer := time.NewTimer(idle)
	defer timer.Stop()
	for {
		next := r.sweep(time.Now())
		timer.Reset(min(max(time.Until(next), gap), idle))
		select {
		case <-r.ctx.Done():
			return
		case <-r.wake:
		case <-timer.C:
		}
	}
}

// ring makes the goroutine look again.
func (r *Registry) ring() {
	select {
	case r.wake <- struct{}{}:
	default: // it will look anyway
	}
}

// sweep ends the leases that have run out, forgets old ones, and returns when to
// look again.
func (r *Registry) sweep(now time.Time) (next time.Time) {
	next = now.Add(idle)
	var out []*lease
	r.mu.Lock()
	for _, l := range r.leases {
		switch {
		case l.ended:
		case !now.Before(l.until):
			out = append(out, l)
		case l.until.Before(next):
			next = l.until
		}
	}
	r.forgetLocked(now)
	r.mu.Unlock()
	for _, l := range out {
		r.expire(l, now)
	}
	return next
}

// expire is the end of a lease that ran out: the run is lost, unless it was
// stopped before, which its receipt will be about.
func (r *Registry) expire(l *lease, now time.Time) {
	r.mu.Lock()
	if l.ended || now.Before(l.until) { // a report or a heartbeat came in between
		r.mu.Unlock()
		return
	}
	l.lost = true
	r.endLocked(l, now)
	r.mu.Unlock()
	info := l.run.Info()
	if info.Cancellation != nil || info.Over() {
		return
	}
	if !info.Outcome.Terminal() { // a report may have said how it ended, and that work goes on
		l.run.Settle(belay.Lost)
	}
	// What happened is that nobody is there any more, which is no deadline. Runs
	// below get cause parent.
	l.run.Cancel(belay.Cancellation{
		Cause: belay.CauseDisconnect, Via: viaLease,
		Reason: "the lease ran out: its runtime sent no heartbeat",
	})
	r.o.Logger.Warn("a run of another runtime is lost: its lease ran out", "run", l.run.ID(), "owner", l.owner)
}

// endLocked frees the lease's place; it stays for late reports.
func (r *Registry) endLocked(l *lease, now time.Time) {
	if l.ended {
		return
	}
	l.ended, l.since = true, now
	r.releaseLocked(l.owner)
	r.ended = append(r.ended, l)
}

// forgetLocked drops ended leases that are old, or too many.
func (r *Registry) forgetLocked(now time.Time) {
	n := 0
	for n < len(r.ended) && (len(r.ended)-n > r.o.Total || now.Sub(r.ended[n].since) >= keepEnded) {
		delete(r.leases, r.ended[n].run.ID())
		n++
	}
	if n > 0 {
		r.ended = append([]*lease(nil), r.ended[n:]...)
	}
}
