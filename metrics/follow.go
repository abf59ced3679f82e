package metrics

import (
	"context"
	"time"

	"github.com/belayhq/belay"
)

// Between two looks at all runs lie at least firstPause, and twice as long after
// each that was needed again at once, up to lastPause: a tree of 100,000 runs
// under more load than can be counted must not be copied every second.
const (
	firstPause = time.Second
	lastPause  = 30 * time.Second
)

// How dear a look is depends on the runs in flight: few can be looked at without
// need, many are only if there is a reason.
const (
	fewRuns  = 1_000
	manyRuns = 20_000
)

// counted is what a Control may say about itself at no cost; *belay.Tree does.
type counted interface{ InFlight() int }

// follow counts events until life ends.
func (m *Metrics) follow() {
	// Before the first look, so that nothing falls between.
	events := belay.Follow(m.life, m.opts.Control, belay.Filter{Ended: true}, func() { m.tear(0) })
	close(m.watching)
	for e, err := range events {
		m.notice(&e, err)
	}
}

func (m *Metrics) notice(e *belay.Event, err error) {
	if err != nil {
		m.opts.Log.Warn("metrics could not follow all runs", "error", err)
		m.tear(0)
		return
	}
	if e.Lost > 0 {
		m.tear(e.Lost)
	}
	m.mu.Lock()
	m.book.take(e)
	m.events++
	m.mu.Unlock()
}

// tear notes that events were missed, and has the runs counted anew.
func (m *Metrics) tear(lost uint64) {
	m.count.missed.Add(float64(lost))
	select {
	case m.resync <- struct{}{}:
	default: // it is on the list already
	}
}

// check counts anew when events were missed, and looks from time to time
// whether that is needed: the loss of the very last events shows nowhere else.
func (m *Metrics) check() {
	tick := time.NewTicker(m.opts.Recheck)
	defer tick.Stop()
	<-m.watching
	m.look()
	pause := firstPause
	for {
		select {
		case <-m.life.Done():
			return
		case <-tick.C:
			if m.plausible() {
				pause = firstPause
				continue
			}
		case <-m.resync:
		}
		m.look()
		select {
		case <-m.life.Done():
			return
		case <-time.After(pause):
			pause = min(2*pause, lastPause)
		}
	}
}

// plausible reports whether a look can be spared.
func (m *Metrics) plausible() bool {
	m.mu.Lock()
	n, quiet := len(m.book.runs), m.events == m.looked
	m.book.buried = nil // what was on the way has long arrived
	m.book.servers.askAgain()
	m.mu.Unlock()
	c, ok := m.opts.Control.(counted)
	switch {
	case ok && c.InFlight() != n:
		return false
	case n <= fewRuns:
		return ok && n == 0
	case ok && n > manyRuns:
		return true
	}
	return quiet
}

// look asks the Control for its runs and sets the book right. Events wait for
// the while: those that are on the way are older than the answer or newer, and
// the book could not tell which.
func (m *Metrics) look() {
	m.mu.Lock()
	defer m.mu.Unlock()
	list, err := m.opts.Control.List(m.life, belay.Filter{Ended: true})
	if err != nil {
		if m.life.Err() == nil {
			m.opts.Log.Warn("metrics could not count the runs in flight", "error", err)
		}
		if len(list) == 0 {
			return
		}
	}
	m.looked = m.events
	m.count.resyncs.Inc()
	m.book.setRight(m.life, m.opts.Control, list, err == nil)
}

// setRight makes the book agree with a list of all runs. Without complete, runs
// that the list lacks stay as they are.
func (b *book) setRight(ctx context.Context, c belay.Control, list []belay.Info, complete bool) {
	b.buried = make(map[belay.RunID]struct{})
	missing := make(map[belay.RunID]struct{}, len(b.runs))
	for id := range b.runs {
		missing[id] = struct{}{}
	}
	for i := range list {
		run := &list[i]
		delete(missing, run.ID)
		en, known := b.runs[run.ID]
		switch {
		case known && run.Over():
			b.readMissed(ctx, c, run, &en)
			b.move(run.ID, en, run)
			b.buried[run.ID] = struct{}{}
			b.end(run.ID, run)
		case known:
			b.move(run.ID, en, run)
		case !run.Over():
			b.move(run.ID, b.begin(run), run)
		}
	}
	if !complete {
		return
	}
	for id := range missing { // over, and forgotten since
		b.buried[id] = struct{}{}
		en := b.drop(id)
		b.count.ended.WithLabelValues(b.words.kinds.name(en.kind), b.servers.name(en.server), other).Inc()
	}
}

// readMissed counts the receipt of a run that ended unseen.
func (b *book) readMissed(ctx context.Context, c belay.Control, i *belay.Info, en *entry) {
	if i.Cancellation == nil {
		return
	}
	if d, err := c.Get(ctx, i.ID); err == nil && d.Receipt != nil {
		b.read(en, d.Receipt)
	}
}
