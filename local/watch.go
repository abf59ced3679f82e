package local

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/belayhq/belay"
)

const (
	scanEvery  = 500 * time.Millisecond // how often a watching Mesh looks for new processes
	maxParents = 200_000                // remembered to tell what lies under a run
)

// watcher is one call of Mesh.Watch.
type watcher struct {
	mesh   *Mesh
	filter belay.Filter
	out    chan notice // from the streams to the yielding goroutine

	wg      sync.WaitGroup // the streams
	streams map[string]bool
	passed  map[string]bool // sockets that are no use; not tried again while they are there

	parents map[belay.RunID]belay.RunID // only with Filter.Under
	seq     uint64
}

type notice struct {
	event  belay.Event
	err    error
	socket string // a stream that has ended, if this is not empty
	bad    bool   // and that is not to be tried again
}

func (m *Mesh) watch(ctx context.Context, f belay.Filter, yield func(belay.Event, error) bool) {
	ctx, end := context.WithCancelCause(ctx)
	w := &watcher{
		mesh: m, filter: f, out: make(chan notice, 64),
		streams: make(map[string]bool), passed: make(map[string]bool),
	}
	defer w.wg.Wait()
	defer end(errHungUp)
	tick := time.NewTicker(scanEvery)
	defer tick.Stop()
	if !f.Under.IsZero() {
		w.learn(ctx)
	}
	if err := w.scan(ctx); err != nil && !yield(belay.Event{}, err) {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_ = w.scan(ctx) // a bad directory was told the first time
		case n := <-w.out:
			if !w.pass(ctx, &n, yield) {
				return
			}
		}
	}
}

// scan opens a stream to each socket that has none.
func (w *watcher) scan(ctx context.Context) error {
	paths, err := w.mesh.sockets()
	maps.DeleteFunc(w.passed, func(path string, _ bool) bool { return !slices.Contains(paths, path) })
	for _, path := range paths {
		if w.streams[path] || w.passed[path] {
			continue
		}
		w.streams[path] = true
		w.wg.Go(func() { w.stream(ctx, path) })
	}
	return err
}

// stream passes the events of one process on until it or ctx ends.
func (w *watcher) stream(ctx context.Context, path string) {
	send := func(n notice) {
		select {
		case w.out <- n:
		case <-ctx.Done():
		}
	}
	f := w.filter
	f.Under, f.Limit = belay.RunID{}, 0
	r, err := w.mesh.ask(ctx, path, &request{Op: opWatch, Filter: f}, func(a *answer) {
		if a.Event != nil {
			send(notice{event: *a.Event})
		}
	})
	switch {
	case errors.Is(err, errStale):
		send(notice{socket: path})
	case err != nil:
		send(notice{socket: path, bad: !errors.Is(err, errGone), err: err})
	default:
		send(notice{socket: path, bad: r.err != nil, err: r.err})
	}
}

// pass hands one notice to the reader; false means that it wants no more.
func (w *watcher) pass(ctx context.Context, n *notice, yield func(belay.Event, error) bool) bool {
	if n.socket != "" {
		delete(w.streams, n.socket)
		if n.bad {
			w.passed[n.socket] = true
		}
		return n.err == nil || yield(belay.Event{}, n.err)
	}
	e := n.event
	if w.parents != nil {
		w.parents[e.Run.ID] = e.Run.Parent
		if len(w.parents) > maxParents {
			w.learn(ctx)
		}
		if !w.under(e.Run.ID) {
			return true
		}
	}
	w.seq++
	e.Seq = w.seq + e.Lost
	w.seq = e.Seq
	return yield(e, nil)
}

// learn asks who is whose parent.
func (w *watcher) learn(ctx context.Context) {
	list, _ := w.mesh.collect(ctx, belay.Filter{Ended: true}) // who cannot be asked is told by scan
	w.parents = make(map[belay.RunID]belay.RunID, len(list))
	for _, r := range list {
		w.parents[r.ID] = r.Parent
	}
}

func (w *watcher) under(id belay.RunID) bool {
	for depth := 0; depth < maxDepth && !id.IsZero(); depth++ {
		if id == w.filter.Under {
			return true
		}
		id = w.parents[id]
	}
	return false
}
