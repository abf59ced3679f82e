package belay

import "time"

// memory holds the remembered runs, the one that ended first at its head. It is
// linked through the runs themselves, so that one whose ladder is climbed
// again can leave from the middle. Guarded by tree.mu.
type memory struct {
	oldest, newest *Run
	len            int
	bytes          int // of partial results
}

// keepPartials bounds the partial results of remembered runs: with the largest in
// each they would be 640 MB. Those that ended first lose theirs; the events and the
// ledger have had it.
const keepPartials = 64 << 20

func (l *memory) push(r *Run) {
	r.older = l.newest
	if l.newest != nil {
		l.newest.newer = r
	} else {
		l.oldest = r
	}
	l.newest = r
	l.len++
	l.hold(len(r.partial))
}

// hold counts bytes, and makes room for half of the bound at once, so that the list
// is seldom walked.
func (l *memory) hold(n int) {
	if l.bytes += n; l.bytes <= keepPartials {
		return
	}
	for r := l.oldest; r != nil && l.bytes > keepPartials/2; r = r.newer {
		l.bytes -= len(r.partial)
		r.partial = ""
	}
}

func (l *memory) remove(r *Run) {
	if r.older != nil {
		r.older.newer = r.newer
	} else {
		l.oldest = r.newer
	}
	if r.newer != nil {
		r.newer.older = r.older
	} else {
		l.newest = r.older
	}
	r.older, r.newer = nil, nil
	l.len--
	l.bytes -= len(r.partial)
}

// overLocked notices that a run is over: it wakes who waits for it, lets go of
// what only a living run needs and moves it to the remembered ones. It does so
// again for a run that was over and of which more was seen.
func (t *Tree) overLocked(r *Run) {
	if r.asking > 0 {
		t.withdrawLocked(r)
	}
	if r.done != nil {
		close(r.done)
		r.done = nil
	}
	r.dropClockLocked()
	if r.stop == nil || r.stop.over {
		r.releaseLocked()
	}
	if r.place != inFlight {
		t.emitLocked(EventChanged, r)
		r.unlinkLocked()
		return
	}
	if r.stop == nil {
		r.partial = "" // there is no receipt to show it
	}
	r.place, r.ended = remembered, time.Now()
	t.inFlight--
	t.kept.push(r)
	t.emitLocked(EventEnded, r) // while it is linked, so that who watches a run above sees it
	r.unlinkLocked()
	t.trimLocked(r.ended)
}

// reviveLocked brings back a run whose ladder gave up, because a person
// pressed Stop once more.
func (t *Tree) reviveLocked(r *Run) {
	t.kept.remove(r)
	t.inFlight++
	r.place, r.ended, r.work = inFlight, time.Time{}, Stopping
	r.stop.final, r.stop.ended, r.stop.held = false, time.Time{}, ""
}

// releaseLocked drops what only a run that can still be stopped needs.
func (r *Run) releaseLocked() {
	r.spec.Stopper, r.spec.OnCancel, r.base = nil, nil, nil
}

// trimLocked forgets remembered runs beyond the count and the time. What of
// their stopping still waits for evidence ends here.
func (t *Tree) trimLocked(now time.Time) {
	for r := t.kept.oldest; r != nil; r = t.kept.oldest {
		if t.kept.len <= t.opts.KeepRuns && now.Sub(r.ended) < t.opts.KeepFor {
			return
		}
		t.forgetLocked(r)
	}
}

// forgetLocked forgets a remembered run.
func (t *Tree) forgetLocked(r *Run) {
	t.kept.remove(r)
	delete(t.runs, r.id)
	t.shelves.remove(r)
	r.place = forgotten
	if r.stop != nil {
		r.stop.endLocked()
	}
	r.releaseLocked()
	r.unlinkLocked()
}

// Forget forgets the ended runs of an owner at once, as if their time were over,
// and says how many they were: for owners who are to be erased. Runs in flight stay,
// and so do the receipts of others' runs that the owner has stopped.
func (t *Tree) Forget(owner string) (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for r := t.kept.oldest; r != nil; {
		next := r.newer
		if r.spec.Owner == owner {
			t.forgetLocked(r)
			n++
		}
		r = next
	}
	return n
}
