package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/peers"
	"github.com/belayhq/belay/proc"
	"github.com/belayhq/belay/supervise"
)

// Enforce says when force may be used on a server that other people wrote
// (DESIGN 11, 1).
type Enforce string

// The ways of enforcement.
const (
	EnforceAuto    Enforce = "auto"    // on signs of life after the grace period, or a person's second Stop
	EnforceStrict  Enforce = "strict"  // always
	EnforceLenient Enforce = "lenient" // only on a person's second Stop
	EnforceNever   Enforce = "never"   // told only
)

// Isolation says how calls share the server's processes.
type Isolation string

// The ways of isolation.
const (
	IsolationShared Isolation = "shared" // one process for the session
	IsolationCall   Isolation = "call"   // each tools/call has a process to itself
)

// Config describes a server and how its calls are stopped. Command, Tree and
// Log are required; the zero value of any other field means its default.
type Config struct {
	Name    string   // for people; default: the command's base name
	Command []string // the program and its arguments
	Env     []string // of the server; nil: Belay's own
	Dir     string
	Stderr  *os.File // the server's; nil: Belay's own

	Enforce      Enforce       // default auto
	Isolation    Isolation     // default shared
	Ladder       belay.Ladder  // grace, kill_after, confirm_after
	Deadline     time.Duration // of every tools/call, absolute; 0: none
	Drain        time.Duration // how long force waits for other calls; default 30 s
	PartialWait  time.Duration // how long an answer waits for a partial result; default 200 ms
	MaxProcesses int           // with IsolationCall; default 16
	MaxLine      int           // bytes of one message; default 16 MiB
	StartWait    time.Duration // how long a fresh process may take to be put into the session; default 30 s

	RestartSafe bool         // the server keeps no state that a restart would lose
	Observe     bool         // tell and record, never force (DESIGN 11, 16)
	Facts       *peers.Facts // about other people's programs; nil: the built-in ones
	Cgroup      proc.CgroupMode

	Tree   *belay.Tree
	Parent belay.RunID // the run in another process below which the session hangs
	Owner  string
	Labels map[string]string
	Log    *slog.Logger

	maxUnread int // bytes that wait for the caller; 0: the default of jsonrpc

	watch time.Duration // from the Stop, how long signs of life are looked for; from Ladder

	// Idle, if set, is called once each time that nothing has passed for 5 s: the
	// moment to give memory back. It must be quick and must not use the session.
	Idle func()

	// Ticket makes the value of BELAY_PARENT for a process that works for a
	// run; nil: processes get none.
	Ticket func(belay.RunID) string
}

// ErrConfig says that a setting has a value that cannot be.
var ErrConfig = fmt.Errorf("bad setting")

func (c Config) withDefaults() (Config, error) {
	switch {
	case len(c.Command) == 0 || c.Command[0] == "":
		return c, fmt.Errorf("%w: no command", ErrConfig)
	case c.Tree == nil || c.Log == nil:
		return c, fmt.Errorf("%w: Tree and Log are required", ErrConfig)
	}
	if c.Enforce == "" {
		c.Enforce = EnforceAuto
	}
	if c.Isolation == "" {
		c.Isolation = IsolationShared
	}
	switch c.Enforce {
	case EnforceAuto, EnforceStrict, EnforceLenient, EnforceNever:
	default:
		return c, fmt.Errorf("%w: enforce %q (want auto, strict, lenient or never)", ErrConfig, c.Enforce)
	}
	switch c.Isolation {
	case IsolationShared, IsolationCall:
	default:
		return c, fmt.Errorf("%w: isolation %q (want shared or call)", ErrConfig, c.Isolation)
	}
	orDuration(&c.Drain, 30*time.Second)
	orDuration(&c.PartialWait, 200*time.Millisecond)
	orDuration(&c.StartWait, 30*time.Second)
	if c.MaxProcesses <= 0 {
		c.MaxProcesses = 16
	}
	if c.Facts == nil {
		c.Facts = &peers.Facts{}
	}
	c.watch = c.Ladder.WithDefaults().ConfirmAfter
	var slow string
	if c.Ladder, slow = supervise.Ladder(c.Ladder, c.Facts, c.Command); slow == "" {
		// A slow tool that is only found inside the tree gets its time all the
		// same; its end then upgrades a receipt that is final already. A
		// silent server would else keep everybody waiting for four more seconds.
		c.Ladder.ConfirmAfter = c.watch
	}
	return c, nil
}

func orDuration(d *time.Duration, def time.Duration) {
	if *d <= 0 {
		*d = def
	}
}

// start starts one process of the server for a run.
func (c *Config) start(ctx context.Context, run belay.RunID) (*supervise.Tree, error) {
	env := c.Env
	if env == nil {
		env = os.Environ()
	}
	if c.Ticket != nil {
		// Of two entries the first would count: that of the run above.
		const name = "BELAY_PARENT="
		env = slices.DeleteFunc(slices.Clone(env), func(e string) bool { return strings.HasPrefix(e, name) })
		env = append(env, name+c.Ticket(run))
	}
	stderr := c.Stderr
	if stderr == nil {
		stderr = os.Stderr
	}
	return supervise.Start(ctx, proc.Config{
		Path: c.Command[0], Args: c.Command[1:], Env: env, Dir: c.Dir,
		Label: run.String(), Stderr: stderr, Cgroup: c.Cgroup,
	}, c.Facts)
}
