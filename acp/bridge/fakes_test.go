package bridge

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/belayhq/belay"
)

// fakeTree is an agent's process tree as a test wants it. It writes down what is
// asked of it, with the time since it was made.
type fakeTree struct {
	start    time.Time
	answered atomic.Int32 // how often a turn was said to be over

	mu     sync.Mutex
	open   []belay.Process // of open tool calls
	others []belay.Process
	deaf   string // "term": ignores SIGTERM; "kill": cannot be killed either
	log    []string
	alone  belay.Stopper
	slow   time.Duration // that a snapshot takes
	done   chan struct{}
	exit   Exit
}

func newFakeTree() *fakeTree { return &fakeTree{start: time.Now(), done: make(chan struct{})} }

func (f *fakeTree) note(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log = append(f.log, fmt.Sprintf("%s ", time.Since(f.start))+fmt.Sprintf(format, args...))
}

// did is what was asked so far.
func (f *fakeTree) did() string {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.log, "\n")
}

func (f *fakeTree) lives(open, others int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open, f.others = nil, nil
	for i := range open {
		f.open = append(f.open, belay.Process{PID: 100 + i, Command: "make test"})
	}
	for i := range others {
		f.others = append(f.others, belay.Process{PID: 200 + i, Command: "npm run dev"})
	}
}

func (f *fakeTree) living() (open, others []belay.Process) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.open), slices.Clone(f.others)
}

// strike is what a signal does.
func (f *fakeTree) strike(ctx context.Context, what string, all, ignored bool) (*belay.Evidence, error) {
	f.note("%s all=%t", what, all)
	if ignored {
		<-ctx.Done()
		open, _ := f.living()
		return &belay.Evidence{Kind: belay.SeenSurvivors, Survivors: open}, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	n := len(f.open)
	f.open = nil
	if all {
		n += len(f.others)
		f.others = nil
	}
	if n == 0 {
		return nil, nil
	}
	return &belay.Evidence{Kind: belay.SeenProcessGone, Scope: belay.ScopeLocalTree}, nil
}

// Turn implements [Offspring].
func (f *fakeTree) Turn(*belay.Run) Brood {
	time.Sleep(f.slow)
	return &fakeBrood{f: f, name: "turn"}
}

// Session implements [Offspring].
func (f *fakeTree) Session(*belay.Run) Brood { return &fakeBrood{f: f, name: "session"} }

type fakeBrood struct {
	f    *fakeTree
	name string
}

func (b *fakeBrood) Opened(tool string, _ *belay.Run) { b.f.note("opened %s", tool) }
func (b *fakeBrood) Closed(tool string)               { b.f.note("closed %s", tool) }
func (b *fakeBrood) Living() (open, others []belay.Process) {
	return b.f.living()
}

func (b *fakeBrood) Terminate(ctx context.Context, all bool) (*belay.Evidence, error) {
	return b.f.strike(ctx, b.name+" term", all, b.f.deaf != "")
}

func (b *fakeBrood) Kill(ctx context.Context, all bool) (*belay.Evidence, error) {
	return b.f.strike(ctx, b.name+" kill", all, b.f.deaf == "kill")
}
func (b *fakeBrood) Alone(string) belay.Stopper { return b.f.alone }
func (b *fakeBrood) Answered()                  { b.f.answered.Add(1) }
func (b *fakeBrood) End()                       { b.f.note("%s end", b.name) }

// fakeAgent is the agent's process itself.
type fakeAgent struct{ *fakeTree }

func (f fakeAgent) Done() <-chan struct{} { return f.done }

func (f fakeAgent) Exit() Exit {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.exit
}

func (f fakeAgent) die(e Exit) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.exit.Ended {
		e.Ended = true
		f.exit = e
		close(f.done)
	}
}

func (f fakeAgent) Terminate(ctx context.Context) (*belay.Evidence, error) {
	e, err := f.strike(ctx, "agent term", true, f.deaf != "")
	if f.deaf == "" {
		f.die(Exit{Code: -1, Signal: "SIGTERM"})
		e = &belay.Evidence{Kind: belay.SeenProcessGone, Scope: belay.ScopeLocalTree}
	}
	return e, err
}

func (f fakeAgent) Kill(ctx context.Context) (*belay.Evidence, error) {
	e, err := f.strike(ctx, "agent kill", true, f.deaf == "kill")
	if f.deaf != "kill" {
		f.die(Exit{Code: -1, Signal: "SIGKILL"})
		e = &belay.Evidence{Kind: belay.SeenProcessGone, Scope: belay.ScopeLocalTree}
	}
	return e, err
}

// fakeFront stands for fronted MCP servers.
type fakeFront struct {
	f     *fakeTree
	calls []Fronted
	err   error
	slow  time.Duration
}

func (x *fakeFront) Rewrite(_ context.Context, _ *belay.Run, servers []byte) ([]byte, []Passed, error) {
	x.f.note("rewrite %s", servers)
	time.Sleep(x.slow)
	return []byte(`["rewritten"]`), []Passed{{Name: "remote", Why: "oauth"}}, x.err
}

func (x *fakeFront) Place(_, turn *belay.Run) {
	if turn == nil {
		x.f.note("place nobody")
		return
	}
	x.f.note("place %s", turn.Name())
}

func (x *fakeFront) Calls(*belay.Run) []Fronted { return x.calls }
func (x *fakeFront) Close(*belay.Run)           { x.f.note("close") }
