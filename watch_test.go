package belay

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// follow reads events into a slice until stop is called.
func follow(t *testing.T, tree *Tree, f Filter) (stop func() []Event) {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	seq := tree.Watch(ctx, f)
	var events []Event
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e, err := range seq {
			if err != nil {
				t.Error(err)
			}
			events = append(events, e)
		}
	}()
	return func() []Event {
		synctest.Wait()
		end()
		<-done
		return events
	}
}

func types(events []Event) []string {
	var list []string
	for _, e := range events {
		list = append(list, fmt.Sprintf("%s %s", e.Run.Name, e.Type))
	}
	return list
}

// A watcher sees everything that happens to a run, in order.
func TestWatchShowsALifeInOrder(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		stop := follow(t, tree, Filter{})
		r := register(t, tree, Spec{Name: "r", Queued: true, Stopper: teller{&script{on: map[Means]method{StepTold: saw(gone)}}}})
		r.Start()
		r.Cancel(byUser())
		fine := register(t, tree, Spec{Name: "fine"})
		fine.Settle(Completed)
		synctest.Wait()
		fine.Finish(Completed)
		events := stop()
		var ofR, ofFine []string
		for i, e := range events {
			if e.Lost != 0 || i > 0 && e.Seq != events[i-1].Seq+1 {
				t.Errorf("event %d: seq %d, lost %d", i, e.Seq, e.Lost)
			}
			if e.Run.Name == "r" {
				ofR = append(ofR, string(e.Type))
			} else {
				ofFine = append(ofFine, string(e.Type))
			}
		}
		if want := []string{"run.registered", "run.changed", "run.cancelled", "receipt.step", "receipt.step", "receipt.step", "receipt.final", "run.ended"}; !slices.Equal(ofR, want) {
			t.Errorf("%q, want %q", ofR, want)
		}
		if want := []string{"run.registered", "run.changed", "run.ended"}; !slices.Equal(ofFine, want) {
			t.Errorf("%q, want %q", ofFine, want)
		}
		for _, e := range events {
			if e.Type == EventFinal && (e.Receipt == nil || e.Receipt.Verdict != Confirmed || !e.Receipt.Final) {
				t.Errorf("final: %+v", e.Receipt)
			}
		}
	})
}

// The watch begins with the call, so that a List after it leaves no gap, and
// is let go of when ctx ends, read or not.
func TestWatchBeginsWithTheCall(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		ctx, end := context.WithCancel(t.Context())
		seq := tree.Watch(ctx, Filter{})
		tree.Watch(ctx, Filter{}) // nobody reads this one
		register(t, tree, Spec{Name: "r"})
		for e := range seq {
			if e.Run.Name != "r" || e.Type != EventRegistered {
				t.Errorf("event %+v", e)
			}
			break
		}
		if n := len(tree.watchers); n != 1 {
			t.Errorf("%d watchers after the loop was left, want the one that nobody reads", n)
		}
		end()
		synctest.Wait()
		if n := len(tree.watchers); n != 0 {
			t.Errorf("%d watchers after the end", n)
		}
		for range tree.Watch(ctx, Filter{}) {
			t.Error("an event after the end of ctx")
		}
	})
}

// Only what matches is shown, also when the tree has forgotten what lies
// between.
func TestWatchFilters(t *testing.T) {
	bubble(t, Options{KeepRuns: 1}, func(t *testing.T, tree *Tree) {
		top := register(t, tree, Spec{Name: "top"})
		mid := register(t, tree, Spec{Name: "mid", Parent: top})
		leaf := register(t, tree, Spec{Name: "leaf", Parent: mid, Server: "git"})
		mid.Finish(Completed)
		register(t, tree, Spec{}).Finish(Completed)
		under, git, one := follow(t, tree, Filter{Under: top.ID()}), follow(t, tree, Filter{Server: "git"}), follow(t, tree, Filter{IDs: []RunID{top.ID()}})
		leaf.Finish(Completed)
		register(t, tree, Spec{Name: "other"}).Finish(Completed)
		top.Finish(Completed)
		if got, want := types(under()), []string{"leaf run.ended", "top run.ended"}; !slices.Equal(got, want) {
			t.Errorf("under the top: %q", got)
		}
		if got, want := types(git()), []string{"leaf run.ended"}; !slices.Equal(got, want) {
			t.Errorf("by server: %q", got)
		}
		if got, want := types(one()), []string{"top run.ended"}; !slices.Equal(got, want) {
			t.Errorf("by id: %q", got)
		}
	})
}

// A slow watcher slows nobody: it loses events, and the next one says how many.
func TestASlowWatcherLosesEventsAndIsTold(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		start := time.Now()
		next := make(chan struct{})
		var events []Event
		ctx, end := context.WithCancel(t.Context())
		seq := tree.Watch(ctx, Filter{})
		go func() {
			for e := range seq {
				events = append(events, e)
				<-next
			}
		}()
		register(t, tree, Spec{}).Finish(Completed)
		synctest.Wait() // it has got the first one, and hangs
		const more = 5000
		for range more {
			register(t, tree, Spec{}).Finish(Completed)
		}
		close(next)
		synctest.Wait()
		register(t, tree, Spec{}).Finish(Completed)
		synctest.Wait()
		end()
		synctest.Wait()
		var lost uint64
		for i, e := range events {
			lost += e.Lost
			if i > 0 && e.Seq != events[i-1].Seq+1+e.Lost {
				t.Fatalf("event %d: seq %d after %d, lost %d", i, e.Seq, events[i-1].Seq, e.Lost)
			}
		}
		if total := uint64(len(events)) + lost; total != 2*(more+2) || lost == 0 || len(events) > 2*watchBuffer {
			t.Errorf("%d seen and %d lost of %d", len(events), lost, 2*(more+2))
		}
		if time.Since(start) != 0 {
			t.Error("the tree waited for the watcher")
		}
	})
}
