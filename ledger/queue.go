package ledger

import (
	"sync"

	"github.com/belayhq/belay"
)

// entry is one run as it is to be written.
type entry struct {
	info    belay.Info
	receipt *belay.Receipt
	note    string
	waiters []chan error // capacity 1 each; told once
	refused error        // what became of it, where the file did not take it
}

func (e *entry) tell(err error) {
	for _, c := range e.waiters {
		c <- err
	}
	e.waiters = nil
}

// take makes e say what both say, where newer is what came later. News can
// overtake each other (a caller commits what the event stream has yet to bring),
// so that the one that is further on wins.
func (e *entry) take(newer *entry) {
	if progress(&newer.info) >= progress(&e.info) {
		e.info = newer.info
	}
	if newer.receipt != nil && (e.receipt == nil || size(newer.receipt) >= size(e.receipt)) {
		e.receipt = newer.receipt
	}
	if newer.note != "" {
		e.note = newer.note
	}
	e.waiters = append(e.waiters, newer.waiters...)
}

// over reports whether nothing more is expected of the run. One that is only
// kept for a second Stop counts, for after a restart nobody can press it.
func over(i *belay.Info) bool { return i.Over() || !i.Ended.IsZero() }

// progress rises while a run goes its way.
func progress(i *belay.Info) int {
	p := rank(i.Verdict)
	if i.Outcome.Terminal() {
		p += 10
	}
	if i.Cancellation != nil {
		p += 20
	}
	if over(i) {
		p += 100
	}
	if !i.Ended.IsZero() {
		p += 50
	}
	return p
}

// size of a receipt never falls while it grows.
func size(r *belay.Receipt) int { return len(r.Steps) + r.Dropped + r.Late }

func rank(v belay.Verdict) int {
	switch v {
	case belay.Confirmed:
		return 4
	case belay.Acknowledged:
		return 3
	case belay.Signalled:
		return 2
	case belay.Unreachable:
		return 1
	}
	return 0
}

// queue holds what waits to be written, in the order in which the runs came.
// News about a run that waits already are merged into it, so that its length is
// a number of runs.
type queue struct {
	limit int
	bell  chan struct{} // capacity 1: there is something
	haste chan struct{} // capacity 1: somebody waits, or there is a receipt

	mu      sync.Mutex
	byID    map[belay.RunID]*entry
	order   []*entry
	dropped uint64
	behind  bool // something was dropped since the last catching up
	shut    bool
}

func newQueue(limit int) *queue {
	return &queue{
		limit: limit, byID: map[belay.RunID]*entry{},
		bell: make(chan struct{}, 1), haste: make(chan struct{}, 1),
	}
}

func ring(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // it rings already
	}
}

// put adds an entry. It is false if the queue is full or closed; an entry that
// somebody waits for is let in for as long as it is open.
func (q *queue) put(e *entry) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.shut {
		return false
	}
	if len(e.waiters) > 0 || e.receipt != nil { // what became of a Stop is asked for soon
		ring(q.haste)
	}
	if known := q.byID[e.info.ID]; known != nil {
		known.take(e)
		return true
	}
	if len(q.order) >= q.limit && len(e.waiters) == 0 {
		q.dropped++
		q.behind = true
		return false
	}
	q.byID[e.info.ID] = e
	q.order = append(q.order, e)
	ring(q.bell)
	return true
}

// waits reports whether news about the run are waiting.
func (q *queue) waits(id belay.RunID) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.byID[id] != nil
}

// roomy reports whether at most half of the queue is in use.
func (q *queue) roomy() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.order) <= q.limit/2
}

// fellBehind reports, once, that something was dropped.
func (q *queue) fellBehind() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	was := q.behind
	q.behind = false
	return was
}

// look is how many runs wait, and how many records were dropped.
func (q *queue) look() (waiting int, dropped uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.order), q.dropped
}

// next takes up to n entries out.
func (q *queue) next(n int) []*entry {
	q.mu.Lock()
	defer q.mu.Unlock()
	batch := q.order[:min(n, len(q.order))]
	if q.order = q.order[len(batch):]; len(q.order) == 0 {
		q.order = nil
	}
	for _, e := range batch {
		delete(q.byID, e.info.ID)
	}
	return batch
}

// back puts a batch that could not be written at the head again, under what
// has come since. It may exceed the bound by that batch.
func (q *queue) back(batch []*entry) {
	q.mu.Lock()
	defer q.mu.Unlock()
	order := make([]*entry, 0, len(batch)+len(q.order))
	for _, e := range batch {
		if newer := q.byID[e.info.ID]; newer != nil {
			e.take(newer)
			*newer = *e
			continue
		}
		q.byID[e.info.ID] = e
		order = append(order, e)
	}
	q.order = append(order, q.order...)
	if len(q.order) > 0 {
		ring(q.bell)
	}
}

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.shut = true
}

// abandon forgets what is left and tells who waits for it.
func (q *queue) abandon(err error) {
	for _, e := range q.next(1 << 62) {
		e.tell(err)
	}
}
