package metrics

import (
	"time"

	"github.com/belayhq/belay"
)

// entry is what is remembered of one run in flight: twelve bytes, for there may be
// a million of them.
type entry struct {
	server     uint16
	late       uint16 // late answers that were counted
	kind, work uint8
	steps      uint8 // of the receipt that were counted; a receipt has at most 64

	cancelled, told, sealed bool // were counted: the cancel, the time to told, the final verdict
	again                   bool // its end was counted, and then a person stopped it once more
}

// cell is what runs in flight are counted by.
type cell struct{ kind, work uint8 }

// book is the state that one goroutine keeps while it follows events; the
// methods need Metrics.mu.
type book struct {
	words   words
	servers *servers
	count   *counters
	runs    map[belay.RunID]entry
	flight  map[cell]int

	// buried are the runs that the last look found over. Their events may still
	// be on the way and were counted by then.
	buried map[belay.RunID]struct{}
}

func newBook(o *Options, c *counters) *book {
	return &book{
		words: allWords(), servers: newServers(o.Known), count: c,
		runs: make(map[belay.RunID]entry), flight: make(map[cell]int),
	}
}

// take counts one event.
func (b *book) take(e *belay.Event) {
	id := e.Run.ID
	if _, ok := b.buried[id]; ok {
		return
	}
	en, known := b.runs[id]
	switch {
	case !known && e.Run.Over() && e.Type != belay.EventEnded:
		b.afterwards(e)
		return
	case !known && e.Run.Over():
		return // it was registered within a gap and has ended before anybody looked
	case !known && pressed(e):
		en = b.reopen(&e.Run, e.Receipt)
	case !known:
		en = b.begin(&e.Run)
	}
	if e.Receipt != nil {
		b.read(&en, e.Receipt)
	}
	b.move(id, en, &e.Run)
	if e.Type == belay.EventEnded {
		b.end(id, &e.Run)
	}
}

// pressed reports whether a person's second Stop brought back a run that was
// given up.
func pressed(e *belay.Event) bool {
	if e.Type != belay.EventStep || e.Receipt == nil {
		return false
	}
	n := len(e.Receipt.Steps)
	return n > 0 && e.Receipt.Steps[n-1].Step == belay.StepEscalated
}

// reopen takes a run into the book that was in it before. All of its receipt but
// the last step was counted then.
func (b *book) reopen(i *belay.Info, r *belay.Receipt) entry {
	en := b.open(i)
	en.cancelled, en.told, en.sealed, en.again = true, true, true, true
	en.steps, en.late = uint8(len(r.Steps)-1), uint16(min(r.Late, 1<<16-1))
	return en
}

// begin counts a run that was not seen before.
func (b *book) begin(i *belay.Info) entry {
	en := b.open(i)
	b.count.started.WithLabelValues(b.words.kinds.name(en.kind), b.servers.name(en.server)).Inc()
	return en
}

// open takes a run into the book.
func (b *book) open(i *belay.Info) entry {
	en := entry{server: b.servers.id(i.Server), kind: b.words.kinds.id(i.Kind), work: b.words.works.id(i.Work)}
	b.runs[i.ID] = en
	b.flight[cell{en.kind, en.work}]++
	return en
}

// move writes the entry back, in the state that the run is in now.
func (b *book) move(id belay.RunID, en entry, i *belay.Info) {
	if i.Cancellation != nil && !en.cancelled {
		en.cancelled = true
		b.count.cancelled.WithLabelValues(b.words.kinds.name(en.kind), b.cause(i.Cancellation)).Inc()
	}
	if work := b.words.works.id(i.Work); work != en.work {
		b.flight[cell{en.kind, en.work}]--
		b.flight[cell{en.kind, work}]++
		en.work = work
	}
	b.runs[id] = en
}

// end counts a run that is over, and forgets it.
func (b *book) end(id belay.RunID, i *belay.Info) {
	en := b.drop(id)
	if en.again {
		return
	}
	kind, outcome := b.words.kinds.name(en.kind), b.words.outcomes.label(i.Outcome)
	b.count.ended.WithLabelValues(kind, b.servers.name(en.server), outcome).Inc()
	if i.Kind != belay.KindSession && !i.Ended.IsZero() {
		b.count.took.WithLabelValues(kind, outcome).Observe(seconds(i.Ended.Sub(i.Started)))
	}
}

func (b *book) drop(id belay.RunID) entry {
	en := b.runs[id]
	b.flight[cell{en.kind, en.work}]--
	delete(b.runs, id)
	return en
}

// read counts what is new in a receipt. Steps whose events were missed stand in
// the next one.
func (b *book) read(en *entry, r *belay.Receipt) {
	for i := int(en.steps); i < len(r.Steps); i++ {
		b.step(en, r, &r.Steps[i])
	}
	en.steps = uint8(min(len(r.Steps), 255))
	if late := uint16(min(r.Late, 1<<16-1)); late > en.late {
		b.count.late.Add(float64(late - en.late))
		en.late = late
	}
	if r.Final && !en.sealed {
		en.sealed = true
		b.seal(r)
	}
}

// step counts one step of a receipt.
func (b *book) step(en *entry, r *belay.Receipt, s *belay.Step) {
	result := "ok"
	if s.Error != "" {
		result = "error"
	}
	b.count.steps.WithLabelValues(b.words.steps.label(s.Step), result).Inc()
	switch {
	case s.Step == belay.StepEscalated:
		b.count.escalations.Inc()
	case s.Step == belay.StepTold && s.Error == "" && !en.told && r.Cancellation != nil:
		en.told = true
		b.count.told.Observe(seconds(s.At.Sub(r.Cancellation.At)))
	case s.Step == belay.StepEvidence && s.Evidence != nil:
		b.count.evidence.WithLabelValues(b.words.evidence.label(s.Evidence.Kind), b.scope(s.Evidence.Scope)).Inc()
	}
}

// seal counts a verdict that has become final.
func (b *book) seal(r *belay.Receipt) {
	verdict := b.words.verdicts.label(r.Verdict)
	b.count.verdicts.WithLabelValues(b.cause(r.Cancellation), verdict).Inc()
	b.count.final.WithLabelValues(verdict).Observe(seconds(r.Took()))
	if n := len(r.Survivors); n > 0 {
		b.count.alive.Inc()
		b.count.survivors.Add(float64(n))
	}
}

// afterwards counts what is seen of a run that is over: evidence and answers
// that came late. Of such a run nothing is remembered, so that the last step
// of the receipt is taken for the news.
func (b *book) afterwards(e *belay.Event) {
	if e.Type != belay.EventStep || e.Receipt == nil || len(e.Receipt.Steps) == 0 {
		return
	}
	r, past := e.Receipt, entry{told: true}
	last := &r.Steps[len(r.Steps)-1]
	b.step(&past, r, last)
	switch last.Step {
	case belay.StepLate:
		b.count.late.Inc()
	case belay.StepEvidence:
		b.count.lateEvidence.WithLabelValues(b.words.verdicts.label(r.Verdict)).Inc()
	}
}

func (b *book) cause(c *belay.Cancellation) string {
	if c == nil {
		return other
	}
	return b.words.causes.label(c.Cause)
}

func (b *book) scope(s belay.Scope) string {
	if s == "" {
		s = "none"
	}
	return b.words.scopes.label(s)
}

// seconds is a duration for a histogram; clocks that were set back give none.
func seconds(d time.Duration) float64 { return max(d, 0).Seconds() }
