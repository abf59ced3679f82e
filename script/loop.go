package script

import (
	"sync"
	"time"
)

// loop is the event loop of one call. Jobs are run one after the other by the
// goroutine that owns the virtual machine; everybody else only adds to them.
//
// The loop counts what may still bring a job (a timer, a request under way): when
// nothing is left that could, a promise that has not settled never will (AT-87).
type loop struct {
	wake chan struct{} // has room for one; filled when there is a job, or less to wait for

	mu       sync.Mutex
	jobs     []func() error
	awaited  int // what may still add a job
	timers   map[int64]*timer
	lastID   int64
	timeless bool // timers are not taken any more
	finished bool // nothing is
}

// timer is one setTimeout or setInterval.
type timer struct {
	clock *time.Timer
	every time.Duration // of an interval; 0: once
}

func newLoop() *loop {
	return &loop{wake: make(chan struct{}, 1), timers: make(map[int64]*timer)}
}

// add puts a job at the end. After finish it is dropped.
func (l *loop) add(job func() error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.finished {
		return
	}
	l.jobs = append(l.jobs, job)
	l.stir()
}

// next takes the first job. idle says that there is none and none can come.
func (l *loop) next() (job func() error, idle bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.jobs) == 0 {
		return nil, l.awaited == 0
	}
	job = l.jobs[0]
	l.jobs[0] = nil
	l.jobs = l.jobs[1:]
	return job, false
}

// await says that one more job may come; the returned function adds it, once. With
// nil it will not come.
func (l *loop) await() (done func(job func() error)) {
	l.mu.Lock()
	l.awaited++
	l.mu.Unlock()
	var once sync.Once
	return func(job func() error) {
		once.Do(func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.awaited--
			if job != nil && !l.finished {
				l.jobs = append(l.jobs, job)
			}
			l.stir()
		})
	}
}

// MaxTimers bounds the timers that one call has open.
const MaxTimers = 10_000

// after runs a job when the time has come, and again and again if every is set. It
// returns a number for stop, negative when there are too many.
func (l *loop) after(wait, every time.Duration, job func() error) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.timers) >= MaxTimers {
		return -1
	}
	l.lastID++
	id := l.lastID
	if l.finished || l.timeless {
		return id
	}
	l.awaited++
	t := &timer{every: every}
	l.timers[id] = t
	t.clock = time.AfterFunc(wait, func() { l.fire(id, job) })
	return id
}

func (l *loop) fire(id int64, job func() error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.timers[id]; !ok || l.finished {
		return
	}
	l.jobs = append(l.jobs, func() error {
		if !l.due(id) {
			return nil
		}
		return job()
	})
	l.stir()
}

// due reports whether the timer still counts when its job's turn has come, and
// winds an interval up again. A timer that is cleared between its time and its
// turn does not run.
func (l *loop) due(id int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	t, ok := l.timers[id]
	switch {
	case !ok:
		return false
	case t.every > 0:
		t.clock.Reset(t.every)
	default:
		delete(l.timers, id)
		l.awaited--
	}
	return true
}

// stop clears a timer; of an unknown number nothing happens.
func (l *loop) stop(id int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopLocked(id)
}

func (l *loop) stopLocked(id int64) {
	if t, ok := l.timers[id]; ok {
		t.clock.Stop()
		delete(l.timers, id)
		l.awaited--
		l.stir()
	}
}

// dropTimers clears all timers, and takes no more: a timer that is set later never
// comes (AT-33, AT-87).
func (l *loop) dropTimers() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timeless = true
	for id := range l.timers {
		l.stopLocked(id)
	}
}

// finish drops everything; nothing is taken afterwards.
func (l *loop) finish() {
	l.dropTimers()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.finished, l.jobs = true, nil
}

func (l *loop) stir() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}
