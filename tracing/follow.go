package tracing

import (
	"time"

	"github.com/belayhq/belay"
)

// follow makes spans of runs that end, until life ends.
func (t *Tracer) follow() {
	events := belay.Follow(t.life, t.opts.Control, belay.Filter{Ended: true}, nil)
	close(t.watching)
	final := make(map[belay.RunID]*belay.Receipt) // of runs that will end at once
	for e, err := range events {
		if err != nil {
			t.opts.Log.Warn("tracing could not follow all runs", "error", err)
			continue
		}
		t.notice(&e, final)
	}
}

// maxFinal bounds the receipts that wait for the end of their runs: it follows at
// once, unless its event is missed.
const maxFinal = 1024

// notice takes one event.
func (t *Tracer) notice(e *belay.Event, final map[belay.RunID]*belay.Receipt) {
	t.mu.Lock()
	t.events++
	t.stats.Missed += e.Lost
	t.mu.Unlock()
	switch e.Type {
	case belay.EventFinal:
		if len(final) >= maxFinal {
			clear(final)
		}
		final[e.Run.ID] = e.Receipt
	case belay.EventEnded:
		receipt := final[e.Run.ID]
		delete(final, e.Run.ID)
		t.finish(&e.Run, receipt)
	}
}

// finish makes the span of a run that is over, if it is one to be kept.
func (t *Tracer) finish(i *belay.Info, r *belay.Receipt) {
	p := t.places.of(t.life, i)
	if !t.opts.Config.Sampler.keeps(&p) {
		return
	}
	if r == nil && i.Cancellation != nil {
		if d, err := t.opts.Control.Get(t.life, i.ID); err == nil {
			r = d.Receipt
		}
	}
	t.put(spanOf(i, r, p))
}

// put queues a span, or drops it where there is no room.
func (t *Tracer) put(s *span) {
	t.mu.Lock()
	if len(t.queue) >= t.opts.Config.Queue {
		t.mu.Unlock()
		t.dropped(1, "the queue is full")
		return
	}
	t.queue = append(t.queue, s)
	full := len(t.queue) >= t.opts.Config.Batch
	t.mu.Unlock()
	if full {
		ring(t.bell)
	}
}

// dropped counts spans that were given up, and says so once a minute.
func (t *Tracer) dropped(n int, why string) {
	t.mu.Lock()
	t.stats.Dropped += uint64(n)
	all, now := t.stats.Dropped, time.Now()
	quiet := now.Sub(t.moaned) < time.Minute
	if !quiet {
		t.moaned = now
	}
	t.mu.Unlock()
	if !quiet {
		t.opts.Log.Warn("spans were dropped", "why", why, "dropped", all)
	}
}
