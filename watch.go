package belay

import (
	"context"
	"iter"
	"time"
)

// watchBuffer is how many events a watcher may lag behind before it loses some.
const watchBuffer = 1024

type watcher struct {
	filter Filter
	events chan Event
	lost   uint64 // guarded by tree.mu
}

// Watch implements [Control].
func (t *Tree) Watch(ctx context.Context, f Filter) iter.Seq2[Event, error] {
	f.Ended = true // a watcher sees runs end
	return func(yield func(Event, error) bool) {
		w := &watcher{filter: f, events: make(chan Event, watchBuffer)}
		t.mu.Lock()
		t.watchers[w] = struct{}{}
		t.mu.Unlock()
		defer func() {
			t.mu.Lock()
			delete(t.watchers, w)
			t.mu.Unlock()
		}()
		for {
			select {
			case e := <-w.events:
				if !yield(e, nil) {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}
}

// emitLocked hands an event to every watcher that wants it, without waiting.
func (t *Tree) emitLocked(kind EventType, r *Run) {
	if len(t.watchers) == 0 {
		return
	}
	t.seq++
	e := Event{Seq: t.seq, At: time.Now(), Type: kind, Run: r.infoLocked()}
	if kind == EventStep || kind == EventFinal {
		e.Receipt = r.receiptLocked()
	}
	for w := range t.watchers {
		if !w.filter.Match(&e.Run) || !t.underLocked(r, w.filter.Under) {
			continue
		}
		e.Lost = w.lost
		select {
		case w.events <- e:
			w.lost = 0
		default:
			w.lost++
		}
	}
}

// underLocked reports whether r is the run id or lies below it.
func (t *Tree) underLocked(r *Run, id RunID) bool {
	if id.IsZero() || r.id == id {
		return true
	}
	for depth := 0; r != nil && depth < 1000; depth++ {
		if r.spec.ParentID == id {
			return true
		}
		r = t.runs[r.spec.ParentID]
	}
	return false
}
