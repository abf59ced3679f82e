package supervise

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/peers"
	"github.com/belayhq/belay/proc"
)

// Tree is a process tree with what is known about its command.
type Tree struct {
	*proc.Tree
	argv  []string
	facts *peers.Facts

	mu    sync.Mutex
	signs Signs
	known map[proc.ID]bool // processes about which the facts were asked
}

// Start starts the command of cfg under a guardian, as proc.Start does, with
// the spare rules of facts behind those of cfg. facts nil means the built-in ones.
func Start(ctx context.Context, cfg proc.Config, facts *peers.Facts) (*Tree, error) {
	if facts == nil {
		facts = &peers.Facts{}
	}
	cfg.Spare = append(slices.Clip(cfg.Spare), facts.SpareRules()...)
	t, err := proc.Start(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return Wrap(t, facts, append([]string{cfg.Path}, cfg.Args...)), nil
}

// Wrap makes a Tree of one that was started elsewhere with the command line
// argv. It should have been started with the spare rules of facts.
func Wrap(t *proc.Tree, facts *peers.Facts, argv []string) *Tree {
	return &Tree{Tree: t, argv: argv, facts: facts, known: map[proc.ID]bool{}}
}

// Whole selects the whole tree.
func Whole() proc.Selection { return proc.Selection{} }

// Except selects all but the processes that were born in [from, until), with
// their descendants: what earlier calls of a shared server left behind.
func Except(from, until proc.Stamp) proc.Selection {
	return proc.Selection{SpareFrom: from, SpareUntil: until}
}

// Since selects the processes born at or after since, never the leader.
func Since(since proc.Stamp) proc.Selection { return proc.Selection{OnlySince: since} }

// relay notes that the command itself is a relay, before it is asked for.
func (t *Tree) relay() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.signs.Relay == "" {
		t.signs.Relay, _ = t.facts.Relay(t.argv)
	}
	if t.signs.Slow == "" {
		t.signs.Slow, _ = t.facts.Slow(t.argv)
	}
}

// Signs returns what was seen so far, without looking again.
func (t *Tree) Signs() Signs {
	t.relay()
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.copySigns()
}

// Terminate asks the selected processes to end and waits until none is left or
// ctx ends: stdin closed and SIGTERM to the leader, SIGTERM to the others half
// later (DESIGN 11, 7). It returns evidence of the end, or nil if somebody was
// left when ctx ended: that is for a later step to say.
func (t *Tree) Terminate(ctx context.Context, sel proc.Selection, half time.Duration) (*belay.Evidence, error) {
	t.relay()
	t.Look()
	report, err := t.Tree.Terminate(ctx, sel, half)
	if !report.Gone {
		if err != nil && !errors.Is(err, proc.ErrSurvivors) {
			return nil, err
		}
		return nil, nil
	}
	e := Evidence(report, sel, t.Signs())
	return &e, nil
}

// Kill ends the selected processes by force and returns evidence of what was
// then seen, survivors included. ctx bounds the waiting, 10 s without a
// deadline.
func (t *Tree) Kill(ctx context.Context, sel proc.Selection) (*belay.Evidence, error) {
	t.relay()
	t.Look()
	report, err := t.Tree.Kill(ctx, sel)
	if err != nil && !errors.Is(err, proc.ErrSurvivors) {
		return nil, err
	}
	e := Evidence(report, sel, t.Signs())
	return &e, nil
}

// End is Belay's own end of the tree: SIGTERM to all at once, SIGKILL after
// half a second, and the guardian is let go; see proc.Tree.Close. The evidence
// is nil when ctx ended before; without anything left to end it says so.
func (t *Tree) End(ctx context.Context) (*belay.Evidence, error) {
	t.relay()
	t.Look()
	report, err := t.Close(ctx)
	if err != nil && !errors.Is(err, proc.ErrSurvivors) {
		return nil, err
	}
	e := Evidence(report, Whole(), t.Signs())
	return &e, nil
}

// Sweep ends the whole tree outside of a run's ladder: Terminate, and Kill for
// who is left after killAfter, at least ten seconds where somebody cleans up
// slowly. ctx breaks it off; the evidence is then nil.
func (t *Tree) Sweep(ctx context.Context, killAfter time.Duration) (*belay.Evidence, error) {
	if t.Look().Slow != "" {
		killAfter = max(killAfter, SlowKillAfter)
	}
	soft, cancel := context.WithTimeoutCause(ctx, killAfter, errSweep)
	defer cancel()
	if e, err := t.Terminate(soft, Whole(), 0); e != nil || err != nil || ctx.Err() != nil {
		return e, err
	}
	return t.Kill(ctx, Whole())
}

var errSweep = errors.New("the time after SIGTERM is over")

// Plan says what Terminate and Kill would do now; nothing is done.
func (t *Tree) Plan(sel proc.Selection) belay.Plan {
	would, spared := t.Tree.Plan(sel)
	return belay.Plan{Kill: Processes(would), Spared: Processes(spared)}
}

// The pauses of Await: short at first, because a tool that listens ends soon.
const (
	awaitFirst = 5 * time.Millisecond
	awaitMost  = 50 * time.Millisecond
)

// Await waits until no selected process is left, by whatever cause, and
// returns the evidence, or nil when ctx ends before. It is meant for the time
// of a Stop: it looks at the process table at least every 50 ms once the
// leader has ended (with OnlySince from the beginning).
func (t *Tree) Await(ctx context.Context, sel proc.Selection) *belay.Evidence {
	if sel.OnlySince == 0 {
		select {
		case <-t.Done():
		case <-ctx.Done():
			return nil
		}
	}
	pause := awaitFirst
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-t.Gone():
			return t.gone(sel, nil)
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		// List fails where Plan would only say nothing.
		if _, err := t.List(); err == nil {
			if would, spared := t.Tree.Plan(sel); len(would) == 0 {
				return t.gone(sel, spared)
			}
		}
		timer.Reset(pause)
		pause = min(pause*2, awaitMost)
	}
}

func (t *Tree) gone(sel proc.Selection, spared []proc.Process) *belay.Evidence {
	e := Evidence(proc.Report{Gone: true, Spared: spared}, sel, t.Signs())
	return &e
}
