package local

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/calm"
)

// placing is a parent with a session's run, whose calls go where at says.
type placing struct {
	*Server
	tree    *belay.Tree
	session *belay.Run
	at      func(Asked) []belay.RunID
	p       *Parent
	got     chan belay.CancelRequest
}

func newPlacing(t *testing.T) *placing {
	t.Helper()
	f := &placing{got: make(chan belay.CancelRequest, 16)}
	f.Server, f.tree = serve(t, Options{Place: func(ticket belay.RunID, call Asked) []belay.RunID {
		if ticket != f.session.ID() {
			t.Errorf("asked for a ticket of %s", ticket)
		}
		return f.at(call)
	}})
	f.session = f.run(t, "session")
	var err error
	f.p, err = Attach(t.Context(), f.Ticket(f.session.ID()), func(req belay.CancelRequest) { f.got <- req })
	must(t, err)
	t.Cleanup(func() { must(t, f.p.Close()) })
	return f
}

func (f *placing) run(t *testing.T, name string) *belay.Run {
	t.Helper()
	run, err := f.tree.Register(belay.Spec{Kind: belay.KindTurn, Name: name, Parent: f.session})
	must(t, err)
	return run
}

// The parent says where a call hangs, and a Stop of that run arrives as a Stop of
// what hangs there: no other run's, and not a second time (ACP-B11).
func TestACP_B11_CallsArePlaced(t *testing.T) {
	f := newPlacing(t)
	one, two := f.run(t, "turn 1"), f.run(t, "turn 2")
	var asked Asked
	f.at = func(a Asked) []belay.RunID { asked = a; return []belay.RunID{one.ID()} }
	call := Asked{Server: "files", Tool: "read", ToolUse: "toolu_1"}
	if at := f.p.Place(t.Context(), call); at != one.ID() || asked != call {
		t.Fatalf("placed at %s, asked %+v", at, asked)
	}
	f.at = func(Asked) []belay.RunID { return []belay.RunID{two.ID()} }
	for range 3 {
		if at := f.p.Place(t.Context(), call); at != two.ID() {
			t.Fatalf("placed at %s", at)
		}
	}
	one.Cancel(belay.Cancellation{Cause: belay.CauseUser, By: "ann"})
	req := <-f.got
	if req.Filter.Under != one.ID() || req.Cancellation.Cause != belay.CauseParent || req.Cancellation.Origin != one.ID() || req.Cancellation.By != "ann" {
		t.Errorf("got %+v", req)
	}
	if c := f.p.StopOf(one.ID()); c == nil || c.Stop != req.Cancellation.Stop {
		t.Errorf("StopOf = %+v", c)
	}
	if f.p.StopOf(two.ID()) != nil || f.p.Stopped() != nil {
		t.Error("another run counts as stopped")
	}
	f.session.Cancel(belay.Cancellation{Cause: belay.CauseUser})
	all := map[belay.RunID]bool{}
	for range 2 { // of the session, and of the turn below it that is in flight
		all[(<-f.got).Filter.Under] = true
	}
	if !all[belay.RunID{}] || !all[two.ID()] {
		t.Errorf("Stops of %v", all)
	}
	select {
	case req := <-f.got:
		t.Errorf("and then %+v", req)
	default:
	}
}

// A call that is placed below a run that is stopped already finds that out before
// it starts; one whose run is over hangs where its process does.
func TestACP_B11_PlacedBelowTheStopped(t *testing.T) {
	f := newPlacing(t)
	stopped, over := f.run(t, "stopped"), f.run(t, "over")
	stopped.Cancel(belay.Cancellation{Cause: belay.CauseUser})
	over.Finish(belay.Completed)
	f.at = func(Asked) []belay.RunID { return []belay.RunID{over.ID(), belay.NewRunID(), stopped.ID()} }
	if at := f.p.Place(t.Context(), Asked{}); at != stopped.ID() || f.p.StopOf(at) == nil {
		t.Errorf("placed at %s, StopOf %v", at, f.p.StopOf(at))
	}
	f.at = func(Asked) []belay.RunID { return []belay.RunID{over.ID()} }
	if at := f.p.Place(t.Context(), Asked{}); at != f.session.ID() || f.p.StopOf(at) != nil {
		t.Errorf("placed at %s, StopOf %v", at, f.p.StopOf(at))
	}
	f.session.Cancel(belay.Cancellation{Cause: belay.CauseUser})
	if at := f.p.Place(t.Context(), Asked{}); at != f.session.ID() || f.p.StopOf(at) == nil {
		t.Errorf("below a stopped session: at %s, StopOf %v", at, f.p.StopOf(at))
	}
}

// A parent that does not answer, or is gone, holds nobody up for long, and the
// call hangs where its process does.
func TestPlaceIsBounded(t *testing.T) {
	f := newPlacing(t)
	open := make(chan struct{})
	f.at = func(Asked) []belay.RunID { <-open; return nil }
	w, begin := calm.Start(t), time.Now()
	if at := f.p.Place(t.Context(), Asked{}); at != f.session.ID() {
		t.Errorf("placed at %s", at)
	}
	if d := time.Since(begin); d < placeWait {
		t.Errorf("that took %v", d)
	}
	w.Within(t, time.Since(begin), placeWait+5*time.Second, "the place")
	begin = time.Now()
	for range 100 {
		f.p.Place(t.Context(), Asked{}) // not asked
	}
	w.Within(t, time.Since(begin), placeWait, "a hundred places below a parent known not to answer")
	close(open)
	ctx, end := context.WithCancel(t.Context())
	end()
	f.p.Place(ctx, Asked{})
	must(t, f.Close())
	<-f.p.Done()
	if at := f.p.Place(t.Context(), Asked{}); at != f.session.ID() {
		t.Errorf("without a parent: %s", at)
	}
	var none *Parent
	if none.Places() || !f.p.Places() || !none.Place(t.Context(), Asked{}).IsZero() || none.StopOf(f.session.ID()) != nil {
		t.Error("a nil Parent places")
	}
}

// One child's calls hang below a bounded number of runs; those that are over make
// room.
func TestPlacesAreBounded(t *testing.T) {
	f := newPlacing(t)
	var at belay.RunID
	f.at = func(Asked) []belay.RunID { return []belay.RunID{at} }
	runs := make([]*belay.Run, maxHooks)
	for i := range runs {
		runs[i] = f.run(t, "turn")
		at = runs[i].ID()
		if got := f.p.Place(t.Context(), Asked{}); got != at {
			t.Fatalf("%d: placed at %s", i, got)
		}
	}
	at = f.run(t, "one more").ID()
	if got := f.p.Place(t.Context(), Asked{}); got != f.session.ID() {
		t.Errorf("over the bound: %s", got)
	}
	runs[7].Finish(belay.Completed)
	if got := f.p.Place(t.Context(), Asked{}); got != at {
		t.Errorf("with room: %s", got)
	}
	for range maxBelow + 10 {
		f.p.below.put(belay.NewRunID(), &belay.Cancellation{})
	}
	if len(f.p.below.of) != maxBelow || len(f.p.below.order) != maxBelow {
		t.Errorf("%d Stops are remembered", len(f.p.below.of))
	}
}

// Children are known, waited for, and can be told to end while their run goes on
// (ACP-B32).
func TestACP_B32_ChildrenAreDismissed(t *testing.T) {
	f := newPlacing(t)
	id := f.session.ID()
	if pids := f.Children(id); !slices.Equal(pids, []int{os.Getpid()}) || !slices.Equal(f.Children(belay.RunID{}), pids) || f.Children(belay.NewRunID()) != nil {
		t.Errorf("children: %v", pids)
	}
	ctx, end := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, errTooSlow)
	defer end()
	if err := f.AwaitChildren(ctx, id); !errors.Is(err, errTooSlow) {
		t.Errorf("AwaitChildren: %v", err)
	}
	f.Dismiss(id, belay.Cancellation{Cause: belay.CauseShutdown, Reason: "the session was closed"})
	if req := <-f.got; !req.Filter.Under.IsZero() || req.Cancellation.Reason != "the session was closed" || req.Cancellation.Stop.IsZero() {
		t.Errorf("got %+v", req)
	}
	if f.session.Cancellation() != nil {
		t.Error("the run was stopped")
	}
	must(t, f.p.Close(), f.AwaitChildren(t.Context(), id))
	if f.Children(id) != nil {
		t.Error("it is still a child")
	}
}

// However Stops and the beginnings of calls cross, each call below a stopped run is
// stopped, and none elsewhere (ACP-B11).
func TestACP_B11_StopsCrossCalls(t *testing.T) {
	f := newPlacing(t)
	must(t, f.p.Close())
	var current atomic.Pointer[belay.Run]
	f.at = func(Asked) []belay.RunID { return []belay.RunID{current.Load().ID()} }
	theirs := belay.NewTree(belay.Options{KeepRuns: 100_000})
	p, err := Attach(t.Context(), f.Ticket(f.session.ID()), func(req belay.CancelRequest) {
		_, err := theirs.Cancel(context.Background(), req)
		if err != nil {
			t.Error(err)
		}
	})
	must(t, err)
	const turns = 150
	stopped := make(map[belay.RunID]bool)
	current.Store(f.run(t, "turn"))
	over := make(chan struct{})
	go func() {
		defer close(over)
		for i := range turns {
			turn := current.Load()
			time.Sleep(time.Duration(i%7) * 50 * time.Microsecond)
			if i%3 != 0 {
				stopped[turn.ID()] = true
				turn.Cancel(belay.Cancellation{Cause: belay.CauseUser})
			}
			next, err := f.tree.Register(belay.Spec{Kind: belay.KindTurn, Name: "turn", Parent: f.session})
			if err != nil {
				t.Error(err)
				return
			}
			current.Store(next)
		}
	}()
	var calls []*belay.Run
	for n, going := 0, true; going && n < 50_000; n++ {
		select {
		case <-over:
			going = false
		default:
		}
		at := p.Place(t.Context(), Asked{})
		run, err := theirs.Register(belay.Spec{Kind: belay.KindCall, Name: "call", ParentID: at})
		must(t, err)
		if c := p.StopOf(at); c != nil { // as the gateway does
			run.Cancel(*c)
		}
		calls = append(calls, run)
	}
	<-over
	for _, run := range calls {
		at := run.Info().Parent
		if stopped[at] {
			until(t, "a call below a stopped run is stopped", func() bool { return run.Cancellation() != nil })
		} else if run.Cancellation() != nil {
			t.Errorf("a call below %s was stopped", at)
		}
	}
	t.Logf("%d calls below %d turns", len(calls), turns)
	must(t, p.Close())
	ctx, end := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer end()
	_ = theirs.Close(ctx)
}

// A parent that has no time at first is asked again.
func TestFromEnvTriesAgain(t *testing.T) {
	s, tree := serve(t, Options{})
	run := startRun(tree, "deaf", belay.RunID{}, "")
	busy := filepath.Join(privateDir(t), filepath.Base(s.Path()))
	l, err := net.Listen("unix", busy)
	must(t, err)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer l.Close()
	wg.Go(func() {
		for n := 0; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			if n == 0 {
				continue // says nothing
			}
			to, err := net.Dial("unix", s.Path())
			if err != nil {
				t.Error(err)
				return
			}
			defer to.Close()
			wg.Go(func() { _, _ = io.Copy(to, c) })
			wg.Go(func() { _, _ = io.Copy(c, to) })
		}
	})
	ticket := strings.Replace(s.Ticket(run.ID()), s.Path(), busy, 1)
	p := FromEnv(t.Context(), func(string) string { return ticket }, func(belay.CancelRequest) {}, func(text string) { t.Error(text) })
	if p.Run() != run.ID() {
		t.Errorf("attached below %s", p.Run())
	}
	must(t, p.Close())
}

// BenchmarkPlace is what asking the parent adds to a call of a wrap below an
// editor's session.
func BenchmarkPlace(b *testing.B) {
	tree := belay.NewTree(belay.Options{})
	session, err := tree.Register(belay.Spec{Kind: belay.KindSession, Name: "session"})
	if err != nil {
		b.Fatal(err)
	}
	turn, err := tree.Register(belay.Spec{Kind: belay.KindTurn, Name: "turn", Parent: session})
	if err != nil {
		b.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "belay")
	if err != nil {
		b.Fatal(err)
	}
	defer os.RemoveAll(dir)
	s, err := Listen(b.Context(), Options{Dir: dir, Control: tree, Place: func(belay.RunID, Asked) []belay.RunID { return []belay.RunID{turn.ID()} }})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	p, err := Attach(b.Context(), s.Ticket(session.ID()), func(belay.CancelRequest) {})
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	for b.Loop() {
		if p.Place(b.Context(), Asked{Server: "files", Tool: "read", ToolUse: "toolu_1"}) != turn.ID() {
			b.Fatal("placed elsewhere")
		}
	}
}
