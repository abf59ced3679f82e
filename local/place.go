package local

import (
	"context"
	"time"

	"github.com/belayhq/belay"
)

// A run of the parent has turns, say, and a process below it serves them all:
// each call of it belongs to the turn that runs at that moment. The parent knows
// that moment, so it is asked, by the connection that stands anyway, whenever a
// call begins. A Stop of that turn then arrives over the same connection, with
// the turn as Filter.Under.

// Asked is a call as the parent is asked about it.
type Asked struct {
	Server  string `json:"server,omitempty"`   // that is called
	Tool    string `json:"tool,omitempty"`     // that is called there
	ToolUse string `json:"tool_use,omitempty"` // the id under which a model asked for it
}

// Times and bounds of placing.
const (
	placeWait = 250 * time.Millisecond // for the parent to answer
	deafFor   = 2 * time.Second        // one that did not is not asked again so long
	maxText   = 256                    // bytes of each text of a question
	maxBelow  = 1024                   // runs whose Stops are remembered
)

// Place asks below which run of the parent's process a call that begins now
// hangs. From then on Stops of that run arrive, and [Parent.StopOf] knows
// whether there was one. It takes some ten microseconds; a parent that does not
// answer within a quarter of a second, or that does not place calls, or is gone,
// leaves them at [Parent.Run]. Zero for a nil Parent.
//
// It must not be called with a lock held that onCancel takes: the answer comes
// behind a call of that.
func (p *Parent) Place(ctx context.Context, call Asked) belay.RunID {
	if p == nil {
		return belay.RunID{}
	}
	seq, answer := p.ask()
	if answer == nil {
		return p.Run()
	}
	defer p.forget(seq)
	call.Server, call.Tool, call.ToolUse = bounded(call.Server), bounded(call.Tool), bounded(call.ToolUse)
	if p.wire.send(said{Where: &where{Seq: seq, Asked: call}}) != nil {
		p.notHeard()
		return p.Run()
	}
	limit := time.NewTimer(placeWait)
	defer limit.Stop()
	select {
	case a := <-answer:
		return a.Run
	case <-p.done:
	case <-ctx.Done():
	case <-limit.C:
		p.notHeard()
	}
	return p.Run()
}

// Places reports whether the parent's process says where calls hang; false for a
// nil Parent. It does not change.
func (p *Parent) Places() bool { return p != nil && p.places }

// bounded leaves out what is too long to be somebody's name.
func bounded(text string) string {
	if len(text) > maxText {
		return ""
	}
	return text
}

// ask makes a question; nil: none is to be asked.
func (p *Parent) ask() (seq uint64, answer <-chan placed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.places || time.Now().Before(p.deaf) {
		return 0, nil
	}
	p.asked++
	c := make(chan placed, 1)
	p.asks[p.asked] = c
	return p.asked, c
}

func (p *Parent) forget(seq uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.asks, seq)
}

func (p *Parent) notHeard() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deaf = time.Now().Add(deafFor)
}

// answered hands an answer to who asked. A run that is stopped is remembered
// first.
func (p *Parent) answered(a *placed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case a.Stop == nil:
	case a.Run != p.runs[0]:
		p.below.put(a.Run, a.Stop)
	case p.stopped == nil:
		p.stopped = a.Stop
	}
	if c := p.asks[a.Seq]; c != nil {
		delete(p.asks, a.Seq)
		c <- *a // capacity 1, one answer
	}
}

// StopOf is the Stop of a run that calls were placed below, or nil. It is known
// here before onCancel hears of it: who registers a call first and asks then
// misses none.
func (p *Parent) StopOf(run belay.RunID) *belay.Cancellation {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if run == p.runs[0] {
		return p.stopped
	}
	return p.below.of[run]
}

// memory keeps the first Stop of each of the last maxBelow runs.
type memory struct {
	of    map[belay.RunID]*belay.Cancellation
	order []belay.RunID
}

func (m *memory) put(run belay.RunID, c *belay.Cancellation) {
	if m.of == nil {
		m.of = make(map[belay.RunID]*belay.Cancellation)
	}
	if m.of[run] != nil {
		return
	}
	if len(m.order) == maxBelow {
		delete(m.of, m.order[0])
		m.order = append(m.order[:0], m.order[1:]...)
	}
	m.of[run] = c
	m.order = append(m.order, run)
}
