package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/peers"
	"github.com/belayhq/belay/proc"
	"github.com/belayhq/belay/supervise"
)

// Config describes an agent. Only Command is required.
type Config struct {
	Command []string // the agent's command line
	Dir     string   // its working directory; "": ours
	Env     []string // its whole environment; nil: ours
	Stderr  *os.File // nil: ours
	Label   string   // of its guardian: the id of the agent's run
	Cgroup  proc.CgroupMode
	Facts   *peers.Facts // nil: the built-in ones

	// Keep names processes that no Stop of a turn may end: patterns in which * stands
	// for anything, for the name of a program or for a whole command line.
	Keep []string

	// Never lets no force be used on a process of a tool call, by whoever its run is
	// stopped. What a Brood is told it does all the same.
	Never bool

	Tree      *belay.Tree   // where processes of tool calls are registered; nil: they are not
	Owner     string        // of these runs
	KillAfter time.Duration // from SIGTERM to SIGKILL where one of these runs is stopped alone; default 2 s

	Log *slog.Logger // nil: nothing is logged
}

// ErrConfig is a Config that no agent can be started with.
var ErrConfig = errors.New("bad agent")

// defaultKillAfter is the bridge's (DESIGN 12), not that of other trees.
const defaultKillAfter = 2 * time.Second

// Agent is one agent with all processes that come from it. Make one with [Start]
// and end it with Close. All methods are safe for concurrent use.
type Agent struct {
	cfg  Config
	tree *supervise.Tree
	log  *slog.Logger
	self string        // Belay's own program, by which its wraps are known
	wake chan struct{} // capacity 1: the watcher has something to look at
	ctx  context.Context
	stop context.CancelCauseFunc
	wg   sync.WaitGroup

	mu       sync.Mutex
	home     *home                // nil until the first turn
	first    proc.Stamp           // when the first turn began
	programs map[proc.ID]program  // what the living run
	origins  map[proc.ID]*origin  // of the foreign among them
	broods   []*Brood             // running, or with living processes
	closed   map[belay.RunID]bool // sessions that were stopped as a whole
	families map[*family]struct{} // not over
	looked   proc.Stamp           // when the last look began that gave everybody an origin
	looks    int                  // how often the table was read
	ending   bool                 // Close has begun: no new runs
}

// Start starts the agent under a guardian. A command that cannot be started is an
// error that wraps one of package proc, as of proc.Start. ctx bounds the starting
// alone.
func Start(ctx context.Context, cfg Config) (*Agent, error) {
	if len(cfg.Command) == 0 || cfg.Command[0] == "" {
		return nil, fmt.Errorf("%w: its command is missing", ErrConfig)
	}
	if cfg.Stderr == nil {
		cfg.Stderr = os.Stderr
	}
	if cfg.KillAfter <= 0 {
		cfg.KillAfter = defaultKillAfter
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Facts == nil {
		cfg.Facts = &peers.Facts{}
	}
	tree, err := supervise.Start(ctx, proc.Config{
		Path: cfg.Command[0], Args: cfg.Command[1:], Dir: cfg.Dir, Env: cfg.Env,
		Label: cfg.Label, Stderr: cfg.Stderr, Cgroup: cfg.Cgroup,
	}, cfg.Facts)
	if err != nil {
		return nil, fmt.Errorf("start the agent: %w", err)
	}
	a := &Agent{
		cfg: cfg, tree: tree, log: cfg.Log, wake: make(chan struct{}, 1),
		programs: map[proc.ID]program{}, origins: map[proc.ID]*origin{},
		closed: map[belay.RunID]bool{}, families: map[*family]struct{}{},
	}
	a.self, _ = proc.Program(os.Getpid())
	a.ctx, a.stop = context.WithCancelCause(context.Background())
	a.wg.Go(a.watch)
	return a, nil
}

// Stdin is where the agent reads; closing it is the caller's, and Terminate, Kill
// and Close of the whole do it too.
func (a *Agent) Stdin() *os.File { return a.tree.Stdin() }

// Stdout is what the agent writes; the caller reads and closes it.
func (a *Agent) Stdout() *os.File { return a.tree.Stdout() }

// PID is the process id of the agent.
func (a *Agent) PID() int { return a.tree.PID() }

// Done is closed when the agent's own process has ended; others of its tree may
// live on.
func (a *Agent) Done() <-chan struct{} { return a.tree.Done() }

// Exit says how the agent's own process ended; it waits for Done.
func (a *Agent) Exit() proc.Exit { return a.tree.Exit() }

// Err is proc.ErrGuardianLost after the guardian died before the agent.
func (a *Agent) Err() error { return a.tree.Err() }

// Terminate asks the whole tree to end: the agent, its tools and MCP servers, and
// what is left of earlier turns (ACP-B33). It returns evidence when nobody is left,
// or, with who is, when ctx ends.
func (a *Agent) Terminate(ctx context.Context) (*belay.Evidence, error) {
	e, err := a.tree.Terminate(ctx, supervise.Whole(), 0)
	if e != nil || err != nil {
		return e, err
	}
	plan := a.tree.Plan(supervise.Whole())
	return &belay.Evidence{
		Kind: belay.SeenSurvivors, Scope: belay.ScopeLocalTree, At: time.Now(),
		Detail: "asked to end, and still alive", Survivors: plan.Kill, Spared: plan.Spared,
	}, nil
}

// Kill ends the whole tree by force, and returns evidence of what was then seen.
func (a *Agent) Kill(ctx context.Context) (*belay.Evidence, error) {
	return a.tree.Kill(ctx, supervise.Whole())
}

// errClosed ends what waits for processes when the agent is closed.
var errClosed = errors.New("the agent is closed")

// settleLimit bounds how long Close waits for the last deaths to be written down.
const settleLimit = time.Second

// Close ends whoever is left of the tree, by the rule for Belay's own end (SIGTERM
// to all, SIGKILL half a second later), and lets go of everything. The evidence names
// who could not be ended and who was spared. It may be called more than once.
func (a *Agent) Close(ctx context.Context) (*belay.Evidence, error) {
	a.mu.Lock()
	a.ending = true
	a.mu.Unlock()
	e, err := a.tree.End(ctx)
	// The watchers see the deaths by themselves; who could not be ended is not
	// waited for.
	limit := time.AfterFunc(settleLimit, func() { a.stop(errClosed) })
	defer limit.Stop()
	a.awaitFamilies()
	a.stop(errClosed)
	a.wg.Wait()
	return e, err
}

// awaitFamilies waits until the processes of all runs were seen dead, or the
// agent's context ends.
func (a *Agent) awaitFamilies() {
	for {
		a.mu.Lock()
		var one *family
		for f := range a.families {
			one = f
			break
		}
		a.mu.Unlock()
		if one == nil {
			return
		}
		select {
		case <-one.over:
		case <-a.ctx.Done():
			return
		}
	}
}

// Turn begins a turn: what lives now is no part of it (ACP-B10). It reads the
// process table, which takes some milliseconds.
func (a *Agent) Turn(turn *belay.Run) *Brood {
	a.look(false)
	b := &Brood{a: a, run: turn, session: turn.Info().Parent, calls: map[string]*call{}, begin: proc.Now()}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.first == 0 {
		a.first = b.begin
	}
	a.broods = append(a.broods, b)
	return b
}

// Session is everything that the turns of one session have left behind
// (ACP-B32).
func (a *Agent) Session(session *belay.Run) *Litter {
	return &Litter{a: a, session: session.ID()}
}
