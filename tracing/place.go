package tracing

import (
	"context"

	"github.com/belayhq/belay"
)

const (
	maxAbove  = 100  // how far up a trace is looked for
	maxPlaces = 4096 // runs above others whose traces are remembered
)

// places finds out where runs belong. One goroutine uses it.
type places struct {
	control belay.Control
	known   map[belay.RunID]above // of runs that had runs below them
}

// above is what a run passes on to those below it.
type above struct {
	place
	found bool // somebody knows the run
}

func newPlaces(c belay.Control) *places {
	return &places{control: c, known: make(map[belay.RunID]above)}
}

// of is the place of a run, by the same rule as the gateway's: its label, else
// the nearest label above, else the topmost run that is known here.
func (p *places) of(ctx context.Context, i *belay.Info) place {
	return p.find(ctx, i, maxAbove)
}

func (p *places) find(ctx context.Context, i *belay.Info, left int) place {
	own, named := labelled(i.Labels)
	if named && own.foreign {
		return own
	}
	if up := p.above(ctx, i.Parent, left); up.found && (!named || up.trace == own.trace) {
		// The spans of one tree are kept or dropped together, as the caller said.
		return place{trace: up.trace, parent: SpanID(i.Parent), unsampled: up.unsampled, foreign: up.foreign}
	}
	if !named {
		own.trace = TraceID(i.ID)
	}
	return own
}

// above is the place of the run above; not found where there is none, or where
// only another process knows it.
func (p *places) above(ctx context.Context, id belay.RunID, left int) above {
	if id.IsZero() || left == 0 {
		return above{}
	}
	if up, ok := p.known[id]; ok {
		return up
	}
	var up above
	if d, err := p.control.Get(ctx, id); err == nil {
		up = above{place: p.find(ctx, &d.Info, left-1), found: true}
	}
	if len(p.known) >= maxPlaces {
		clear(p.known) // they are found again
	}
	p.known[id] = up
	return up
}
