package gateway

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/hook"
	"github.com/belayhq/belay/internal/peers"
	"github.com/belayhq/belay/mcp"
	"github.com/belayhq/belay/mcp/httpclient"
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

// Overlap says what becomes of a new call of a tool while an earlier one, which
// was stopped, may still be at work (DESIGN 11, 9).
type Overlap string

// What becomes of an overlapping call.
const (
	OverlapWarn   Overlap = "warn"   // it runs; the log says so
	OverlapWait   Overlap = "wait"   // it waits until the earlier one is over, or given up
	OverlapRefuse Overlap = "refuse" // it gets an error
)

// Isolation says how calls share the server's processes.
type Isolation string

// The ways of isolation.
const (
	IsolationShared Isolation = "shared" // one process for the session
	IsolationCall   Isolation = "call"   // each tools/call has a process to itself
)

// Policy says how calls are stopped.
type Policy struct {
	Enforce  Enforce       // default auto
	Ladder   belay.Ladder  // grace, kill_after, confirm_after
	Deadline time.Duration // of every tools/call, absolute; 0: none
	Observe  bool          // tell and record, never force (DESIGN 11, 16)
	Overlap  Overlap       // default warn
	Stop     *hook.Hooks   // for work that Belay did not start; nil: none (DESIGN 11, 6)

	watch time.Duration // from the Stop, how long signs of life are looked for; from Ladder
}

// Config describes a server and how its calls are stopped. Tree, Log and one of
// Command, URL and Serve are required; the zero value of any other field means
// its default.
type Config struct {
	Name    string   // for people; default: the command's base name, or the URL's host
	Command []string // the program and its arguments, for a server on stdio
	Env     []string // of the server; nil: Belay's own without the user's token ([proc.Environment])
	Dir     string
	Stderr  *os.File // the server's; nil: Belay's own

	URL       string               // of a server that is reached by HTTP
	Header    http.Header          // sent with every request to it
	Transport httpclient.Transport // default: what the server shows that it speaks
	RoundTrip http.RoundTripper    // nil: the shared one

	// Serve is a server inside this process: it reads and writes lines until in
	// ends or ctx does, whose cause is then a *belay.Cancellation, and returns when
	// no handler is left. That it has returned is evidence.
	Serve func(ctx context.Context, in io.Reader, out io.Writer) error

	// Asks says that the server is a worker of Belay's own, which asks for approvals in
	// the way of mcp.MethodAsk and says in its results which calls were declined. A
	// question becomes one of the call's run, and is put to the caller as well; see
	// scriptask.go. Its word counts: it is not for other people's servers.
	Asks bool

	// Asker is asked in place of a caller that takes no questions, with Asks; nil: the
	// doors of the tree's approvals are enough.
	Asker Asker

	// TellRun names each request's run to a server inside this process, in _meta under
	// io.github.belayhq/run, so that what it starts for a call can hang below it. What
	// a caller has put there never arrives.
	TellRun bool

	// Modern says that the session is shared by callers of the 2026-07-28
	// revision, who have no session of their own: requests of the server are
	// refused (MCP-65), and what belongs to no request goes nowhere (MCP-74).
	Modern bool

	Policy                      // of all calls
	Tools     map[string]Policy // of the calls of single tools, instead
	Isolation Isolation         // default shared

	Drain        time.Duration // how long force waits for other calls; default 30 s
	PartialWait  time.Duration // how long an answer waits for a partial result; default 200 ms
	MaxProcesses int           // with IsolationCall; default 16
	MaxLine      int           // bytes of one message; default 16 MiB
	StartWait    time.Duration // how long a fresh process may take to be put into the session; default 30 s

	// Spares is for how many calls at once processes are kept ready, with IsolationCall
	// and for a server that is RestartSafe only: those that calls have ended on, and
	// always one for the next call, which is started ahead. They are the session's
	// own: nobody else's calls ever get them.
	Spares int

	// IdleMemory is how much memory a process may have to be kept for another call,
	// in bytes, where that can be seen; 0: any.
	IdleMemory int64

	// Memory bounds that of each process with all that comes from it, where the system
	// can do that (see [proc.Config]); 0: no bound.
	Memory int64

	// Epitaph says what became of the calls that were in flight on a process that
	// ended by itself, as the text of a tool's own error, which a model reads; "": that
	// it ended. With it the process's stderr passes through Belay, line by line. It
	// must be quick.
	Epitaph func(Death) string

	AtOnce int     // calls of one tool that its owner may have in flight; 0: any number
	Places *Places // of the server's sessions together; nil: the session has its own

	RestartSafe bool         // the server keeps no state that a restart would lose
	Facts       *peers.Facts // about other people's programs; nil: the built-in ones
	Cgroup      proc.CgroupMode

	Tree   *belay.Tree
	Parent belay.RunID // the run, of Tree or of another process, below which the session hangs
	Owner  string
	Labels map[string]string
	Log    *slog.Logger

	tools map[string]*Policy // Tools with their defaults

	maxUnread int // bytes that wait for the caller; 0: the default of jsonrpc
	maxHeld   int // bytes of answers that wait for the next leg of theirs; 0: the default of scriptask.go

	// Tasks knows whose the tasks of the server are; the sessions of one server
	// share it. Nil: the session has its own.
	Tasks *TaskRegistry

	taskSlack time.Duration // see task.patience; default 30 s

	// Counter, if set, is told of what no run shows. Its methods are called with
	// locks held: they must be quick and must not call back.
	Counter Counter

	// Gate is asked before a call that does work is let in; nil: all pass.
	Gate Gate

	// Placer says below which run each call hangs; nil: below the session's. With
	// it a call's run is labelled tool_use_id, as with NameRuns.
	Placer Placer

	// PassCancels says that Belay acts on no cancel of the caller (ORC-64): see
	// passcancels.go for what that means exactly.
	PassCancels bool

	// NameRuns has callers and Belay name runs to each other: a call's run gets the
	// names by which its caller knows it, as labels (names.go); the caller may name
	// the run below which it hangs, in _meta under io.github.belayhq/parent
	// (below.go); and it gets the id of the run, in the _meta of the result of what
	// does work or became a task, under io.github.belayhq/run. Without it nothing of
	// _meta is read or added, and only a parent in [mcp.Arrival] counts.
	NameRuns bool

	// Trace takes part in W3C trace context: a call goes to the server as a span of
	// its own, whose id is the last 8 bytes of its run's, in _meta.traceparent and,
	// over HTTP, in the header; the run has the label trace_id, and parent_span_id
	// where its caller gave one. Names in _meta are read as with NameRuns. See
	// trace.go.
	Trace bool

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
	if err := c.check(); err != nil {
		return c, err
	}
	if c.Name == "" {
		c.Name = c.defaultName()
	}
	if c.Isolation == "" {
		c.Isolation = IsolationShared
	}
	switch c.Isolation {
	case IsolationShared, IsolationCall:
	default:
		return c, fmt.Errorf("%w: isolation %q (want shared or call)", ErrConfig, c.Isolation)
	}
	if c.Isolation == IsolationCall && len(c.Command) == 0 {
		return c, fmt.Errorf("%w: isolation call needs a command; server %q has none", ErrConfig, c.Name)
	}
	switch {
	case c.Spares < 0 || c.AtOnce < 0 || c.IdleMemory < 0 || c.Memory < 0:
		return c, fmt.Errorf("%w: server %q: spares, at_once and memory cannot be negative", ErrConfig, c.Name)
	case c.Spares > 0 && (c.Isolation != IsolationCall || !c.RestartSafe):
		return c, fmt.Errorf("%w: spares need isolation call and restart safe; server %q has not both", ErrConfig, c.Name)
	}
	if c.Places == nil {
		c.Places = &Places{}
	}
	orDuration(&c.Drain, 30*time.Second)
	orDuration(&c.PartialWait, 200*time.Millisecond)
	orDuration(&c.StartWait, 30*time.Second)
	orDuration(&c.taskSlack, taskSlack)
	if c.Tasks == nil {
		c.Tasks = &TaskRegistry{}
	}
	if c.MaxProcesses <= 0 {
		c.MaxProcesses = 16
	}
	if c.Facts == nil {
		c.Facts = &peers.Facts{}
	}
	var err error
	if c.Policy, err = c.fit(c.Policy); err != nil {
		return c, err
	}
	c.tools = make(map[string]*Policy, len(c.Tools))
	for name, p := range c.Tools {
		if p, err = c.fit(p); err != nil {
			return c, fmt.Errorf("tool %q: %w", name, err)
		}
		c.tools[name] = &p
	}
	return c, nil
}

// check refuses what describes no server, or several.
func (c *Config) check() error {
	ways := 0
	for _, is := range []bool{len(c.Command) > 0 && c.Command[0] != "", c.URL != "", c.Serve != nil} {
		if is {
			ways++
		}
	}
	switch {
	case ways == 0:
		return fmt.Errorf("%w: no command", ErrConfig)
	case ways > 1:
		return fmt.Errorf("%w: server %q has more than one of command, URL and function", ErrConfig, c.Name)
	case c.Tree == nil || c.Log == nil:
		return fmt.Errorf("%w: Tree and Log are required", ErrConfig)
	}
	return nil
}

func (c *Config) defaultName() string {
	if len(c.Command) > 0 {
		return filepath.Base(c.Command[0])
	}
	if u, err := url.Parse(c.URL); err == nil && u.Host != "" {
		return u.Host
	}
	return "server"
}

// fit gives a policy its defaults, and the times that the server's command
// needs.
func (c *Config) fit(p Policy) (Policy, error) {
	if p.Enforce == "" {
		p.Enforce = EnforceAuto
	}
	if p.Overlap == "" {
		p.Overlap = OverlapWarn
	}
	switch p.Enforce {
	case EnforceAuto, EnforceStrict, EnforceLenient, EnforceNever:
	default:
		return p, fmt.Errorf("%w: enforce %q (want auto, strict, lenient or never)", ErrConfig, p.Enforce)
	}
	if err := p.Stop.Validate(); err != nil {
		return p, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	switch p.Overlap {
	case OverlapWarn, OverlapWait, OverlapRefuse:
	default:
		return p, fmt.Errorf("%w: overlap %q (want warn, wait or refuse)", ErrConfig, p.Overlap)
	}
	p.watch = p.Ladder.WithDefaults().ConfirmAfter
	var slow string
	if p.Ladder, slow = supervise.Ladder(p.Ladder, c.Facts, c.Command); slow == "" {
		// A slow tool that is only found inside the tree gets its time all the
		// same; its end then upgrades a receipt that is final already. A
		// silent server would else keep everybody waiting for four more seconds.
		p.Ladder.ConfirmAfter = p.watch
	}
	return p, nil
}

// policy is the policy for a call.
func (c *Config) policy(of *call) *Policy {
	if of.method == mcp.MethodCallTool {
		if p := c.tools[of.name]; p != nil {
			return p
		}
	}
	return &c.Policy
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
		env = proc.Environment()
	}
	if c.Ticket != nil {
		// Of two entries the first would count: that of the run above.
		const name = "BELAY_PARENT="
		env = slices.DeleteFunc(slices.Clone(env), func(e string) bool { return strings.HasPrefix(e, name) })
		env = append(env, name+c.Ticket(run))
	}
	stderr := c.Stderr
	switch {
	case c.Epitaph != nil:
		stderr = nil // a pipe; see listener
	case stderr == nil:
		stderr = os.Stderr
	}
	return supervise.Start(ctx, proc.Config{
		Path: c.Command[0], Args: c.Command[1:], Env: env, Dir: c.Dir,
		Label: run.String(), Stderr: stderr, Cgroup: c.Cgroup, Memory: c.Memory,
	}, c.Facts)
}
