package belay

import (
	"bytes"
	"slices"
	"sort"
)

// shelves hold all runs that a tree knows in the order of their registration,
// which is that of their ids. A place on them costs a pointer and a sign, so
// that runs are looked through without touching those that cannot match, and
// one can go on behind any number after the lock was let go. Guarded by tree.mu.
type shelves struct {
	list []*shelf // none of them empty, but perhaps the last
}

// shelf holds the runs of one stretch of numbers. It is dense, one place for
// each number, until few are left; then those move together.
type shelf struct {
	first uint64 // no run here has a smaller number
	id    RunID  // nor a smaller id
	dense bool   // place i is that of the number first+i
	live  int
	runs  []*Run // nil: it has left
	signs []sign
}

const (
	shelfSize   = 256
	sparseLimit = shelfSize / 2 // places on a shelf that is not dense
)

// push adds a run whose number and id are greater than all others'.
func (l *shelves) push(r *Run, s sign) {
	var last *shelf
	if n := len(l.list); n > 0 {
		last = l.list[n-1]
	}
	if last == nil || !last.dense || len(last.runs) == shelfSize || r.nr != last.first+uint64(len(last.runs)) {
		l.tidy(len(l.list) - 1)
		last = &shelf{first: r.nr, id: r.id, dense: true, runs: make([]*Run, 0, shelfSize), signs: make([]sign, 0, shelfSize)}
		l.list = append(l.list, last)
	}
	last.runs, last.signs = append(last.runs, r), append(last.signs, s)
	last.live++
}

// remove takes a run off, and makes room where few are left.
func (l *shelves) remove(r *Run) {
	i := l.at(r.nr)
	s := l.list[i]
	place := int(r.nr - s.first)
	if !s.dense {
		place = slices.Index(s.runs, r)
	}
	s.runs[place] = nil
	s.live--
	if filling := i == len(l.list)-1 && s.dense && len(s.runs) < shelfSize; !filling {
		l.tidy(i)
	}
}

// tidy makes room on shelf i if most of its places are empty.
func (l *shelves) tidy(i int) {
	switch {
	case i < 0 || l.list[i].live*4 > len(l.list[i].runs):
	case l.list[i].live == 0:
		l.list = slices.Delete(l.list, i, i+1)
	default:
		l.list[i].thin()
		l.join(i + 1)
		l.join(i)
	}
}

// thin gives back the empty places.
func (s *shelf) thin() {
	runs, signs := make([]*Run, 0, s.live), make([]sign, 0, s.live)
	for i, r := range s.runs {
		if r != nil {
			runs, signs = append(runs, r), append(signs, s.signs[i])
		}
	}
	s.runs, s.signs, s.dense = runs, signs, false
}

// join moves what is on shelf i to the one before, if there is room, so that
// old runs that live long do not keep a shelf each.
func (l *shelves) join(i int) {
	if i <= 0 || i >= len(l.list) {
		return
	}
	a, b := l.list[i-1], l.list[i]
	if a.dense || b.dense || len(a.runs)+len(b.runs) > sparseLimit {
		return
	}
	a.runs, a.signs = append(a.runs, b.runs...), append(a.signs, b.signs...)
	a.live += b.live
	l.list = slices.Delete(l.list, i, i+1)
}

// at is the index of the shelf on which nr belongs; 0 if it is older than all.
func (l *shelves) at(nr uint64) int {
	return max(0, sort.Search(len(l.list), func(i int) bool { return l.list[i].first > nr })-1)
}

// bound is a number so that the runs with an id before this one have smaller
// numbers; at most a shelf of others has too.
func (l *shelves) bound(before RunID) uint64 {
	i := sort.Search(len(l.list), func(i int) bool { return bytes.Compare(l.list[i].id[:], before[:]) >= 0 })
	if i == len(l.list) {
		return newest
	}
	return l.list[i].first
}

const newest = ^uint64(0) // above all numbers

// pick appends the runs with from <= number < below whose sign fits, oldest first.
func (s *shelf) pick(w want, from, below uint64, found []*Run) []*Run {
	for i, sign := range s.signs {
		if !w.fits(sign) {
			continue
		}
		if r := s.runs[i]; r != nil && r.nr >= from && r.nr < below {
			found = append(found, r)
		}
	}
	return found
}
