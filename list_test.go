package belay

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// closeNow ends a tree without waiting for evidence of what is left in it.
func closeNow(tree *Tree) {
	over, end := context.WithCancel(context.Background())
	end()
	_ = tree.Close(over)
}

// some draws nothing or one of few values, so that filters and runs meet.
func some(t *rapid.T, what string) string {
	return rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, what)
}

func someLabels(t *rapid.T) map[string]string {
	return rapid.MapOfN(rapid.SampledFrom([]string{"k", "l", "m"}), rapid.SampledFrom([]string{"", "1", "2"}), 0, 2).Draw(t, "labels")
}

func someAddress(t *rapid.T) string {
	return rapid.SampledFrom([]string{"", "7", `"7"`, `"\u0037"`, `"a\nb"`, `"`, `"7`, "task-7", `""`, "-1.5", `"a"b"`, `"\u"`}).Draw(t, "address")
}

// lifeOf makes a tree with runs in all states, some of them forgotten.
func lifeOf(t *rapid.T) *Tree {
	tree := NewTree(Options{KeepRuns: rapid.IntRange(1, 40).Draw(t, "keep")})
	var runs []*Run
	for range rapid.IntRange(0, 60).Draw(t, "runs") {
		spec := Spec{
			Kind: rapid.SampledFrom([]Kind{KindCall, KindTask}).Draw(t, "kind"), Name: "run", Owner: some(t, "owner"), Server: some(t, "server"),
			Labels: someLabels(t), Address: someAddress(t), Queued: rapid.Bool().Draw(t, "queued"),
		}
		if len(runs) > 0 && rapid.Bool().Draw(t, "below") {
			spec.Parent = rapid.SampledFrom(runs).Draw(t, "parent")
		}
		r, err := tree.Register(spec)
		if err != nil {
			continue // the one above is over
		}
		runs = append(runs, r)
		switch rapid.IntRange(0, 3).Draw(t, "end") {
		case 0:
			rapid.SampledFrom(runs).Draw(t, "finished").Finish(Completed)
		case 1:
			rapid.SampledFrom(runs).Draw(t, "settled").Settle(Completed)
		}
		if rapid.IntRange(0, 9).Draw(t, "cancel") == 0 {
			rapid.SampledFrom(runs).Draw(t, "cancelled").Cancel(byUser())
		}
	}
	return tree
}

// Every list is what a look at each run with [Filter.Match] finds.
func TestListsAgainstALookAtEachRun(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			tree := lifeOf(t)
			synctest.Wait()
			all, err := tree.List(t.Context(), Filter{Ended: true})
			if err != nil || len(all) != len(tree.runs) || !slices.IsSortedFunc(all, func(a, b Info) int { return bytes.Compare(a.ID[:], b.ID[:]) }) {
				t.Fatalf("%d of %d runs, oldest first (%v)", len(all), len(tree.runs), err)
			}
			for range 10 {
				checkLists(t, tree, all)
			}
			closeNow(tree)
		})
	})
}

func checkLists(t *rapid.T, tree *Tree, all []Info) {
	at := time.Now()
	if len(all) > 0 {
		at = all[len(all)/2].Started
	}
	f := Filter{
		Owner: some(t, "of"), Server: some(t, "at"), Labels: someLabels(t), Ended: rapid.Bool().Draw(t, "ended"),
		Kinds: rapid.SampledFrom([][]Kind{nil, {KindCall}, {KindTask, KindCall}}).Draw(t, "kinds"),
		Works: rapid.SampledFrom([][]Work{nil, {Running}, {Waiting, Stopped}}).Draw(t, "works"),
		Since: rapid.SampledFrom([]time.Time{{}, at.Add(-time.Minute), at, at.Add(time.Minute)}).Draw(t, "since"),
		Until: rapid.SampledFrom([]time.Time{{}, at.Add(-time.Minute), at, at.Add(time.Minute)}).Draw(t, "until"),
		Ends:  rapid.SampledFrom([][]Outcome{nil, {Pending}, {Completed, Cancelled}}).Draw(t, "ends"),
	}
	ids := func(list []Info) (ids []RunID) {
		for _, i := range list {
			ids = append(ids, i.ID)
		}
		return ids
	}
	if len(all) > 0 && rapid.IntRange(0, 3).Draw(t, "by id") == 0 {
		f.IDs = rapid.SliceOfN(rapid.SampledFrom(ids(all)), 1, 5).Draw(t, "ids")
	}
	if len(all) > 0 && rapid.IntRange(0, 3).Draw(t, "below one") == 0 {
		f.Under = rapid.SampledFrom(ids(all)).Draw(t, "under")
	}
	match := func(i Info) bool {
		return f.Match(&i) && tree.underLocked(tree.runs[i.ID], f.Under)
	}
	text := rapid.SampledFrom([]string{"7", "", "a\nb", `"`, `"7`, "task-7", "-1.5", "x", `a"b`, `"a"b"`, `"\u"`}).Draw(t, "text")
	var want, asked []Info
	for _, i := range all {
		if match(i) {
			want = append(want, i)
		}
		if i.Address != "" && textOf(i.Address) == text && (f.Owner == "" || f.Owner == i.Owner) && (f.Ended || !i.Over()) {
			asked = append(asked, i)
		}
	}
	limit := rapid.IntRange(0, 5).Draw(t, "limit")
	first := func(list []Info) []Info {
		if limit > 0 && len(list) > limit {
			return list[:limit]
		}
		return list
	}
	f.Limit = limit
	if got, err := tree.List(t.Context(), f); err != nil || !slices.Equal(ids(got), ids(first(want))) {
		t.Fatalf("List(%+v): %v, want %v (%v)", f, ids(got), ids(first(want)), err)
	}
	before := RunID{}
	if len(all) > 0 && rapid.Bool().Draw(t, "page") {
		before = rapid.SampledFrom(ids(all)).Draw(t, "before")
		before[15] += byte(rapid.IntRange(0, 2).Draw(t, "beside")) // an id that nobody has, too
		want = slices.DeleteFunc(want, func(i Info) bool { return bytes.Compare(i.ID[:], before[:]) >= 0 })
	}
	slices.Reverse(want)
	if got, err := tree.ListBefore(t.Context(), f, before, limit); err != nil || !slices.Equal(ids(got), ids(first(want))) {
		t.Fatalf("ListBefore(%+v, %v): %v, want %v (%v)", f, before, ids(got), ids(first(want)), err)
	}
	slices.Reverse(asked)
	if got, err := tree.FindRequest(t.Context(), text, f.Owner, f.Ended); err != nil || !slices.Equal(ids(got), ids(asked)) {
		t.Fatalf("FindRequest(%q, %q, %t): %v, want %v (%v)", text, f.Owner, f.Ended, ids(got), ids(asked), err)
	}
}

// textOf is ORC-70 in the plainest words.
func textOf(address string) string {
	var s string
	if address[0] == '"' && json.Unmarshal([]byte(address), &s) == nil {
		return s
	}
	return address
}

// The shelves against a plain list of runs, with looks from and below anything.
func TestShelvesAgainstAList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l shelves
		var plain []*Run
		nr, head := uint64(0), uint64(0)
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				for range rapid.IntRange(1, 3*shelfSize).Draw(t, "n") {
					nr++
					r := &Run{nr: nr, id: NewRunID()}
					head = r.id.follow(head)
					l.push(r, sign(nr%2))
					plain = append(plain, r)
				}
			},
			"remove some": func(t *rapid.T) {
				keep := rapid.IntRange(1, 200).Draw(t, "one of")
				plain = slices.DeleteFunc(plain, func(r *Run) bool {
					gone := int(r.nr)%keep != 0
					if gone {
						l.remove(r)
					}
					return gone
				})
			},
			"remove one": func(t *rapid.T) {
				if len(plain) > 0 {
					i := rapid.IntRange(0, len(plain)-1).Draw(t, "i")
					l.remove(plain[i])
					plain = slices.Delete(plain, i, i+1)
				}
			},
			"": func(t *rapid.T) { checkShelves(t, &l, plain, nr) },
		})
	})
}

func checkShelves(t *rapid.T, l *shelves, plain []*Run, nr uint64) {
	from, below := rapid.Uint64Range(0, nr+1).Draw(t, "from"), rapid.Uint64Range(0, nr+1).Draw(t, "below")
	w := rapid.SampledFrom([]want{{}, {1, 1}, {1, 0}}).Draw(t, "want")
	var got, wanted []*Run
	live, places := 0, 0
	for i, s := range l.list {
		got = s.pick(w, from, below, got)
		live += s.live
		places += len(s.runs)
		if len(s.runs) != len(s.signs) || s.live == 0 && i < len(l.list)-1 || i > 0 && l.list[i-1].first >= s.first {
			t.Fatalf("shelf %d of %d is broken: %d places, %d live", i, len(l.list), len(s.runs), s.live)
		}
	}
	for _, r := range plain {
		if r.nr >= from && r.nr < below && w.fits(sign(r.nr%2)) {
			wanted = append(wanted, r)
		}
		if b := l.bound(r.id); b <= l.list[l.at(r.nr)].first && r.nr > b {
			t.Fatalf("nothing below %v has a number from %d on, but it is %d itself", r.id, b, r.nr)
		}
	}
	if !slices.Equal(got, wanted) || live != len(plain) || places > 4*live+shelfSize || len(l.list) > 2+live/(sparseLimit/4) {
		t.Fatalf("from %d below %d: %d runs, want %d; %d live on %d places of %d shelves, want %d live", from, below, len(got), len(wanted), live, places, len(l.list), len(plain))
	}
}

// Ids rise in the order of registration, within a millisecond and when the
// clock was set back.
func TestIdsRiseInTheOrderOfRegistration(t *testing.T) {
	head := uint64(0)
	var last RunID
	now := time.Now()
	for i := range 200_000 {
		id := RunID(mint(now.Add(-time.Duration(i/70_000) * time.Hour)))
		head = id.follow(head)
		if bytes.Compare(id[:], last[:]) <= 0 {
			t.Fatalf("%v comes after %v", id, last)
		}
		last = id
	}
	if ahead := last.Time().Sub(now); ahead > 20*time.Millisecond {
		t.Errorf("200,000 ids of one millisecond run %v ahead of the clock", ahead)
	}
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		before := register(t, tree, Spec{})
		after := register(t, tree, Spec{})
		if a, b := before.ID(), after.ID(); bytes.Compare(a[:], b[:]) >= 0 || time.Until(b.Time()) > time.Millisecond {
			t.Errorf("%v, then %v in the same millisecond", a, b)
		}
	})
}

// A page is complete while runs come and go: none that was there all the time
// is missing, and none comes twice.
func TestListsWhileRunsComeAndGo(t *testing.T) {
	tree := NewTree(Options{KeepRuns: 100})
	defer closeNow(tree)
	var stay []RunID
	for i := range 5000 {
		r := register(t, tree, Spec{Owner: strconv.Itoa(i % 7), Address: `"here"`})
		if i%10 == 0 {
			stay = append(stay, r.ID())
			continue
		}
		defer r.Finish(Completed)
	}
	end := make(chan struct{})
	var busy sync.WaitGroup
	for range 2 {
		busy.Go(func() {
			for {
				select {
				case <-end:
					return
				default:
					r, err := tree.Register(Spec{Kind: KindCall, Name: "passing"})
					if err != nil {
						t.Error(err)
						return
					}
					r.Finish(Completed)
				}
			}
		})
	}
	for range 8 {
		up, _ := tree.List(t.Context(), Filter{})
		down, _ := tree.ListBefore(t.Context(), Filter{}, RunID{}, 0)
		found, _ := tree.FindRequest(t.Context(), "here", "", false)
		slices.Reverse(down)
		slices.Reverse(found)
		for what, list := range map[string][]Info{"List": up, "ListBefore": down, "FindRequest": found} {
			seen := make(map[RunID]int, len(list))
			for _, i := range list {
				seen[i.ID]++
			}
			for _, id := range stay {
				if seen[id] != 1 {
					t.Fatalf("%s has %v %d times", what, id, seen[id])
				}
			}
			if !slices.IsSortedFunc(list, func(a, b Info) int { return cmp.Compare(string(a.ID[:]), string(b.ID[:])) }) {
				t.Fatalf("%s is out of order", what)
			}
		}
	}
	close(end)
	busy.Wait()
}

// What a list holds is the reader's own, and one whose reader has gone ends.
func TestListsAreTheReadersOwn(t *testing.T) {
	tree := NewTree(Options{})
	defer closeNow(tree)
	r := register(t, tree, Spec{Labels: map[string]string{"k": "v"}})
	for range 3 * lookMax / lookRun {
		register(t, tree, Spec{Kind: KindTask, Name: "other"}).Finish(Completed)
	}
	list, _ := tree.ListBefore(t.Context(), Filter{Kinds: []Kind{KindCall}}, RunID{}, 1)
	list[0].Labels["k"] = "changed"
	if got := r.Info().Labels; !maps.Equal(got, map[string]string{"k": "v"}) {
		t.Errorf("a reader changed the labels of a run: %v", got)
	}
	gone := fmt.Errorf("gone")
	ctx, end := context.WithCancelCause(t.Context())
	end(gone)
	if _, err := tree.List(ctx, Filter{Ended: true}); err != gone {
		t.Errorf("a list for a reader who has gone: %v", err)
	}
}
