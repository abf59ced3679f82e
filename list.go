package belay

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"time"
)

// List implements [Control]. A list of many runs is taken in parts, so that
// nobody waits for the tree while it is made: each run is in it as it stood at
// a moment between call and return, and runs that are registered meanwhile are
// not. On an error, the cause of ctx, the list is as far as it came.
func (t *Tree) List(ctx context.Context, f Filter) ([]Info, error) {
	l := lister{tree: t, want: f.want(), under: f.Under, limit: f.Limit, match: t.matcher(&f)}
	if len(f.IDs) > 0 {
		return l.named(f.IDs), nil
	}
	return l.oldestFirst(ctx)
}

// ListBefore lists part of the runs: newest first by id, at most limit (0: all)
// and, unless before is zero, only runs with a smaller id. The filter's own
// Limit does not count. What it costs does not grow with the number of runs
// that do not match by kind, server, owner or labels by more than about a
// nanosecond each, and no one waits for the tree meanwhile; see List.
func (t *Tree) ListBefore(ctx context.Context, f Filter, before RunID, limit int) ([]Info, error) {
	match := t.matcher(&f)
	l := lister{tree: t, want: f.want(), under: f.Under, limit: limit, match: func(r *Run) bool {
		return (before.IsZero() || bytes.Compare(r.id[:], before[:]) < 0) && match(r)
	}}
	if len(f.IDs) == 0 {
		return l.newestFirst(ctx, before)
	}
	l.limit = 0
	list := l.named(f.IDs)
	slices.Reverse(list)
	if limit > 0 && len(list) > limit {
		list = list[:limit]
	}
	return list, nil
}

// FindRequest returns the runs whose protocol id has this text, newest first:
// "7" finds the number 7 and the string "7" (ORC-70). Runs that are over and
// remembered are among them with ended; an empty owner stands for all. It looks
// at hardly any run but those; see ListBefore.
func (t *Tree) FindRequest(ctx context.Context, text, owner string, ended bool) ([]Info, error) {
	f := Filter{Owner: owner, Ended: ended}
	l := lister{tree: t, want: f.want().request(text), match: func(r *Run) bool {
		got, ok := requestText(r.spec.Address)
		return ok && got == text && r.passesLocked(&f)
	}}
	return l.newestFirst(ctx, RunID{})
}

// matcher is the filter's conditions, without Limit, for one run; to be asked
// under the lock.
func (t *Tree) matcher(f *Filter) func(*Run) bool {
	rest := *f
	if len(f.IDs) > 0 {
		rest.IDs, rest.Ended = nil, true
	}
	return func(r *Run) bool { return r.passesLocked(&rest) && t.underLocked(r, f.Under) }
}

// passesLocked is [Filter.Match] without making an [Info], for a filter
// without IDs.
func (r *Run) passesLocked(f *Filter) bool {
	s := &r.spec
	switch {
	case !f.Ended && r.isOverLocked():
		return false
	case f.Owner != "" && f.Owner != s.Owner, f.Server != "" && f.Server != s.Server:
		return false
	case len(f.Kinds) > 0 && !slices.Contains(f.Kinds, s.Kind):
		return false
	case !f.Since.IsZero() && r.started.Before(f.Since), !f.Until.IsZero() && r.started.After(f.Until):
		return false
	case len(f.Works) > 0 && !slices.Contains(f.Works, r.work), len(f.Ends) > 0 && !slices.Contains(f.Ends, r.outcome):
		return false
	}
	return hasLabels(s.Labels, f.Labels)
}

// isOverLocked is [Info.Over].
func (r *Run) isOverLocked() bool {
	return r.outcome.Terminal() && (r.work == Stopped || r.work == Unconfirmed && (r.stop == nil || r.stop.held == ""))
}

func hasLabels(labels, wanted map[string]string) bool {
	for k, v := range wanted {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// A lister holds the lock for so many looks at most, some tens of microseconds.
const (
	lookSign = 1  // what a look at a sign costs
	lookRun  = 16 // and one at a run
	lookMax  = 16 << 10
)

// lister makes one list, a part at a time.
type lister struct {
	tree  *Tree
	want  want
	under RunID
	match func(*Run) bool // under the lock
	limit int             // 0: none
	list  []Info
	part  []Info
}

// full reports whether there are enough with those of this part.
func (l *lister) full() bool { return l.limit > 0 && len(l.list)+len(l.part) >= l.limit }

func (l *lister) takeLocked(r *Run) {
	if l.match(r) {
		l.part = append(l.part, r.viewLocked())
	}
}

// flush moves the part to the list, without the lock.
func (l *lister) flush() {
	for i := range l.part {
		l.part[i].Labels = maps.Clone(l.part[i].Labels)
	}
	l.list = append(l.list, l.part...)
	clear(l.part)
	l.part = l.part[:0]
}

// rounds calls f under the lock until it says that there is no more.
func (l *lister) rounds(ctx context.Context, f func() (more bool)) ([]Info, error) {
	for first := true; ; first = false {
		t := l.tree
		t.mu.Lock()
		if first {
			t.trimLocked(time.Now())
		}
		more := f()
		t.mu.Unlock()
		l.flush()
		if !more {
			return l.list, nil
		}
		if ctx.Err() != nil {
			return l.list, context.Cause(ctx)
		}
	}
}

func (l *lister) oldestFirst(ctx context.Context) ([]Info, error) {
	from, below := uint64(0), uint64(0)
	return l.rounds(ctx, func() bool {
		s := &l.tree.shelves
		if below == 0 {
			from, below = l.tree.eldestLocked(l.under), l.tree.nr+1
		}
		cost, found := 0, make([]*Run, 0, shelfSize)
		for i := s.at(from); i < len(s.list); i++ {
			found = s.list[i].pick(l.want, from, below, found[:0])
			for _, r := range found {
				if l.takeLocked(r); l.full() {
					return false
				}
			}
			cost += len(s.list[i].signs)*lookSign + len(found)*lookRun
			if cost >= lookMax && i+1 < len(s.list) {
				from = s.list[i+1].first
				return from < below
			}
		}
		return false
	})
}

func (l *lister) newestFirst(ctx context.Context, before RunID) ([]Info, error) {
	from, below := uint64(0), newest
	return l.rounds(ctx, func() bool {
		s := &l.tree.shelves
		if below == newest {
			from = l.tree.eldestLocked(l.under)
			if !before.IsZero() {
				below = s.bound(before)
			}
		}
		cost, found := 0, make([]*Run, 0, shelfSize)
		for i := s.at(below - 1); i >= 0 && i < len(s.list); i-- {
			found = s.list[i].pick(l.want, from, below, found[:0])
			for _, r := range slices.Backward(found) {
				if l.takeLocked(r); l.full() {
					return false
				}
			}
			cost += len(s.list[i].signs)*lookSign + len(found)*lookRun
			below = s.list[i].first
			if below <= from || cost >= lookMax {
				return below > from && i > 0
			}
		}
		return false
	})
}

// named lists the runs with these ids, oldest first.
func (l *lister) named(ids []RunID) []Info {
	t := l.tree
	t.mu.Lock()
	t.trimLocked(time.Now())
	for _, r := range t.lookupLocked(ids, l.match) {
		if l.full() {
			break
		}
		l.part = append(l.part, r.viewLocked())
	}
	t.mu.Unlock()
	l.flush()
	return l.list
}

// matchLocked returns the runs that pass the filter, oldest first, so that
// none comes before one above it.
func (t *Tree) matchLocked(f *Filter) []*Run {
	t.trimLocked(time.Now())
	match := t.matcher(f)
	var found []*Run
	if len(f.IDs) > 0 {
		found = t.lookupLocked(f.IDs, match)
	} else {
		found = t.selectLocked(f.want(), t.eldestLocked(f.Under), match)
	}
	if f.Limit > 0 && len(found) > f.Limit {
		found = found[:f.Limit]
	}
	return found
}

// selectLocked returns the runs from this number on that match, oldest first.
func (t *Tree) selectLocked(w want, from uint64, match func(*Run) bool) []*Run {
	var all []*Run
	for _, s := range t.shelves.list[min(t.shelves.at(from), len(t.shelves.list)):] {
		n := len(all)
		all = s.pick(w, from, newest, all)
		fit := slices.DeleteFunc(all[n:], func(r *Run) bool { return !match(r) })
		all = all[:n+len(fit)]
	}
	return all
}

// eldestLocked is the number of the run under which others are looked for: none
// of those is older. 0 if nothing is known of it.
func (t *Tree) eldestLocked(under RunID) uint64 {
	if r := t.runs[under]; r != nil {
		return r.nr
	}
	return 0
}
