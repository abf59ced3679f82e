package belay

import (
	"context"
	"iter"
	"time"
)

// watchBuffer is how many events a watcher may lag behind before it loses some.
const watchBuffer = 1024

// watcher is one reader of events. Guarded by tree.mu.
type watcher struct {
	filter Filter
	queue  []Event // at most watchBuffer
	lost   uint64
	bell   chan struct{} // capacity 1: the queue is not empty
}

// Watch implements [Control]. It watches from the call on, so that a List
// after it misses nothing; the sequence is for one range loop. Leaving the loop
// or the end of ctx ends it. Events are shared with other watchers: read only.
func (t *Tree) Watch(ctx context.Context, f Filter) iter.Seq2[Event, error] {
	f.Ended = true // a watcher sees runs end
	w := &watcher{filter: f, bell: make(chan struct{}, 1)}
	t.mu.Lock()
	t.watchers[w] = struct{}{}
	t.mu.Unlock()
	forget := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.watchers, w)
		w.queue = nil
	}
	stop := context.AfterFunc(ctx, forget) // also for a sequence that nobody ranges over
	return func(yield func(Event, error) bool) {
		defer forget()
		defer stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-w.bell:
			}
			for _, e := range t.takeEvents(w) {
				if ctx.Err() != nil || !yield(e, nil) {
					return
				}
			}
		}
	}
}

func (t *Tree) takeEvents(w *watcher) []Event {
	t.mu.Lock()
	defer t.mu.Unlock()
	events := w.queue
	w.queue = nil
	return events
}

// emitLocked hands an event to every watcher that wants it, without waiting.
func (t *Tree) emitLocked(kind EventType, r *Run) {
	if len(t.watchers) > 0 { // apart, so that who tells 100,000 runs without a watcher needs no stack for events
		t.publishLocked(kind, r, nil)
	}
}

func (t *Tree) emitAskLocked(kind EventType, r *Run, a *inquiry) {
	if len(t.watchers) > 0 {
		shown := a.copyLocked()
		t.publishLocked(kind, r, &shown)
	}
}

func (t *Tree) publishLocked(kind EventType, r *Run, a *Approval) {
	t.seq++
	e := Event{Seq: t.seq, At: time.Now(), Type: kind, Run: r.infoLocked(), Approval: a}
	if kind == EventStep || kind == EventFinal {
		e.Receipt = r.receiptLocked()
	}
	for w := range t.watchers {
		if w.filter.Match(&e.Run) && t.underLocked(r, w.filter.Under) {
			w.offerLocked(e)
		}
	}
}

func (w *watcher) offerLocked(e Event) {
	if len(w.queue) >= watchBuffer {
		w.lost++
		return
	}
	e.Lost, w.lost = w.lost, 0
	w.queue = append(w.queue, e)
	select {
	case w.bell <- struct{}{}:
	default: // it was rung and not yet answered
	}
}
