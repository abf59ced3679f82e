package belay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func names(list []Info) []string {
	out := []string{}
	for _, i := range list {
		out = append(out, i.Name)
	}
	return out
}

// forest is a tree with some of everything in it.
func forest(t *testing.T, tree *Tree) map[string]*Run {
	runs := map[string]*Run{}
	add := func(name string, spec Spec, parent string) {
		spec.Name, spec.Parent = name, runs[parent]
		runs[name] = register(t, tree, spec)
	}
	add("s1", Spec{Kind: KindSession, Owner: "ana", Labels: map[string]string{"job": "1"}}, "")
	add("t1", Spec{Kind: KindTurn, Owner: "ana", Labels: map[string]string{"job": "1", "x": ""}}, "s1")
	add("c1", Spec{Kind: KindCall, Server: "git", Owner: "ana", Labels: map[string]string{"job": "2"}}, "t1")
	add("c2", Spec{Kind: KindCall, Server: "sql", Owner: "ana"}, "t1")
	add("s2", Spec{Kind: KindSession, Owner: "bob"}, "")
	add("c3", Spec{Kind: KindCall, Server: "git", Owner: "bob", Stopper: plans{killer{teller{&script{}}}}}, "s2")
	add("done", Spec{Kind: KindCall, Server: "git", Owner: "bob"}, "s2")
	runs["done"].Finish(Completed)
	return runs
}

// Each field of a Filter narrows the selection.
func TestFilters(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		runs := forest(t, tree)
		id := func(name string) RunID { return runs[name].ID() }
		for _, c := range []struct {
			filter Filter
			want   []string
		}{
			{Filter{}, []string{"s1", "t1", "c1", "c2", "s2", "c3"}},
			{Filter{Ended: true}, []string{"s1", "t1", "c1", "c2", "s2", "c3", "done"}},
			{Filter{IDs: []RunID{id("done"), id("c1"), id("c1"), NewRunID()}}, []string{"c1", "done"}},
			{Filter{IDs: []RunID{id("done"), id("c1")}, Owner: "bob"}, []string{"done"}},
			{Filter{IDs: []RunID{NewRunID()}}, nil},
			{Filter{Under: id("s1")}, []string{"s1", "t1", "c1", "c2"}},
			{Filter{Under: id("t1"), Server: "git"}, []string{"c1"}},
			{Filter{Under: id("s2"), Ended: true}, []string{"s2", "c3", "done"}},
			{Filter{Under: NewRunID()}, nil},
			{Filter{Labels: map[string]string{"job": "1"}}, []string{"s1", "t1"}},
			{Filter{Labels: map[string]string{"job": "1", "x": ""}}, []string{"t1"}},
			{Filter{Labels: map[string]string{"y": ""}}, nil},
			{Filter{Kinds: []Kind{KindTurn, KindSession}}, []string{"s1", "t1", "s2"}},
			{Filter{Owner: "bob"}, []string{"s2", "c3"}},
			{Filter{Server: "git", Ended: true}, []string{"c1", "c3", "done"}},
			{Filter{Limit: 2}, []string{"s1", "t1"}},
			{Filter{Limit: 100, Owner: "bob"}, []string{"s2", "c3"}},
		} {
			list, err := tree.List(t.Context(), c.filter)
			if err != nil || !slices.Equal(names(list), c.want) && len(list)+len(c.want) > 0 {
				t.Errorf("%+v: %v, want %v (%v)", c.filter, names(list), c.want, err)
			}
		}
	})
}

// Cancel stops what matches with all below, once each, and tells about each in
// the order of List, whatever else was matched.
func TestCancelTellsAboutEachRunOnce(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		runs := forest(t, tree)
		results := ask(t, tree, CancelRequest{}, runs["c2"], runs["t1"], runs["done"])
		var got []string
		for _, r := range results {
			got = append(got, fmt.Sprintf("%s %t %s", r.Run.Name, r.Affected, r.Run.Outcome))
		}
		if want := []string{"t1 true cancelled", "c1 true cancelled", "c2 true cancelled", "done false completed"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		for _, name := range []string{"c1", "c2"} {
			if c := runs[name].Cancellation(); c.Cause != CauseParent || c.Origin != runs["t1"].ID() {
				t.Errorf("%s: %+v", name, c)
			}
		}
		if runs["s1"].Cancellation() != nil || runs["c3"].Cancellation() != nil {
			t.Error("a run that did not match was stopped")
		}
		results, err := tree.Cancel(t.Context(), CancelRequest{Filter: Filter{Owner: "nobody"}, Cancellation: byUser()})
		if err != nil || len(results) != 0 {
			t.Errorf("matching nothing: %v, %v", results, err)
		}
		all, err := tree.Cancel(t.Context(), CancelRequest{Cancellation: byUser()})
		if err != nil || len(all) != 6 {
			t.Fatalf("%d results, %v", len(all), err)
		}
		for _, r := range all {
			if fresh := r.Run.Cancellation.Stop == all[0].Run.Cancellation.Stop; r.Affected != fresh {
				t.Errorf("%s: affected %t", r.Run.Name, r.Affected)
			}
		}
	})
}

// Wait: zero returns at once, a time bounds the wait, a negative one waits for
// the last verdict; the end of the caller's context ends the wait, not the Stop.
func TestCancelWaitsAsLongAsItIsAsked(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		run := func() *Run {
			return register(t, tree, Spec{Stopper: killer{teller{&script{on: map[Means]method{StepKill: saw(gone)}}}}})
		}
		impatient, end := context.WithTimeout(t.Context(), 3*time.Second)
		defer end()
		for _, c := range []struct {
			ctx   context.Context
			wait  time.Duration
			took  time.Duration
			final bool
		}{
			{impatient, -1, 3 * time.Second, false},
			{t.Context(), 0, 0, false},
			{t.Context(), time.Second, time.Second, false},
			{t.Context(), time.Minute, 5 * time.Second, true},
			{t.Context(), -1, 5 * time.Second, true},
		} {
			r, start := run(), time.Now()
			results, err := tree.Cancel(c.ctx, CancelRequest{Filter: Filter{IDs: []RunID{r.ID()}}, Cancellation: byUser(), Wait: c.wait})
			if err != nil || time.Since(start) != c.took || results[0].Receipt.Final != c.final || !results[0].Affected {
				t.Errorf("wait %s: took %s, %+v, %v", c.wait, time.Since(start), results[0], err)
			}
			if receipt := wait(t, r); receipt.Verdict != Confirmed {
				t.Errorf("wait %s: the Stop did not go on: %+v", c.wait, receipt)
			}
		}
	})
}

// --dry-run says what would happen, and nothing happens.
func TestDryRunChangesNothing(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		runs := forest(t, tree)
		runs["queued"] = register(t, tree, Spec{Name: "queued", Queued: true, Parent: runs["s2"]})
		runs["told"] = register(t, tree, Spec{Name: "told", Stopper: teller{&script{}}, Parent: runs["s2"]})
		runs["forced"] = register(t, tree, Spec{Name: "forced", Stopper: killer{teller{&script{}}}, Parent: runs["s2"]})
		before, _ := tree.List(t.Context(), Filter{Ended: true})
		results, err := tree.Cancel(t.Context(), CancelRequest{Filter: Filter{IDs: []RunID{runs["s2"].ID(), runs["done"].ID()}}, Cancellation: byUser(), DryRun: true, Now: true, Wait: -1})
		if err != nil {
			t.Fatal(err)
		}
		plans := map[string]string{}
		for _, r := range results {
			if r.Affected || r.Receipt != nil || r.Plan == nil {
				t.Errorf("result %+v", r)
			}
			plans[r.Run.Name] = r.Plan.Tell + ", " + r.Plan.Force
		}
		for name, want := range map[string]string{
			"s2":     "its context would be ended, none",
			"c3":     "the fake, at once",
			"done":   "nobody: it is over, ",
			"queued": "nobody: it would not be started, none",
			"told":   "its stopper would be told, none",
			"forced": "its stopper would be told, as its ladder says",
		} {
			if plans[name] != want {
				t.Errorf("%s: %q, want %q", name, plans[name], want)
			}
		}
		synctest.Wait()
		after, _ := tree.List(t.Context(), Filter{Ended: true})
		if a, b := asJSON(t, before), asJSON(t, after); a != b || len(plans) != 6 {
			t.Errorf("%d plans; before %s, after %s", len(plans), a, b)
		}
	})
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestGetKnowsEndedRunsForAWhile(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		runs := forest(t, tree)
		if d, err := tree.Get(t.Context(), runs["c1"].ID()); err != nil || d.Name != "c1" || d.Receipt != nil || d.Parent != runs["t1"].ID() {
			t.Errorf("%+v, %v", d, err)
		}
		runs["c1"].Cancel(byUser())
		if d, err := tree.Get(t.Context(), runs["c1"].ID()); err != nil || d.Receipt == nil || d.Cancellation == nil {
			t.Errorf("%+v, %v", d, err)
		}
		if d, err := tree.Get(t.Context(), runs["done"].ID()); err != nil || !d.Over() {
			t.Errorf("%+v, %v", d, err)
		}
		if _, err := tree.Get(t.Context(), NewRunID()); !errors.Is(err, ErrNotFound) {
			t.Errorf("unknown: %v", err)
		}
	})
}

// What crosses a wire comes back the same.
func TestDetailsSurviveJSON(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		r := register(t, tree, Spec{Stopper: killer{teller{&script{on: map[Means]method{StepKill: saw(gone)}}}}})
		r.Partial("half")
		r.Cancel(byUser())
		wait(t, r)
		d, err := tree.Get(t.Context(), r.ID())
		if err != nil {
			t.Fatal(err)
		}
		text := asJSON(t, d)
		var back Detail
		if err := json.Unmarshal([]byte(text), &back); err != nil {
			t.Fatal(err)
		}
		if asJSON(t, back) != text || back.Receipt.Verdict != Confirmed || back.ID != r.ID() || back.Receipt.Took() != 5*time.Second {
			t.Errorf("%s became %s", text, asJSON(t, back))
		}
	})
}
