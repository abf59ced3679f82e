package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/local"
	"github.com/belayhq/belay/proc"
	"github.com/belayhq/belay/supervise"
)

type execCmd struct {
	Name      string        `placeholder:"NAME" help:"What people see; default: the command's name."`
	Grace     time.Duration `default:"2s" help:"Time between the Stop and the first force."`
	KillAfter time.Duration `default:"3s" help:"Time between asking by force (SIGTERM) and the kill; at least 10s for tools known to clean up."`
	Deadline  time.Duration `placeholder:"DURATION" help:"Stop it after this time; 0: never."`
	Label     []string      `short:"l" placeholder:"KEY=VALUE" sep:"none" help:"Give the run this label."`
	Cgroup    string        `default:"auto" enum:"auto,off" help:"Whether a cgroup is used where there can be one: ${enum}."`
	Command   []string      `arg:"" optional:"" passthrough:"all" name:"command" help:"The command line, after --."`
}

// Help implements kong.HelpProvider.
func (*execCmd) Help() string {
	return `Runs CMD as a run that can be seen (belay ps) and stopped (belay cancel, Ctrl-C, a deadline), together with everything
that it starts. Its exit code is passed on, 128 and the signal's number for one that a signal ended. When it is stopped the
receipt is printed on standard error and the exit code is 130, or 6 if processes were left alive. Ctrl-C reaches CMD and is the
Stop; a second one takes the next step at once, Ctrl-\ kills. When CMD ends by itself, what it has left in the background is
stopped and named.

Examples:

    belay exec -- make test
    belay exec --deadline 10m --label job=nightly -- ./long-script.sh --flag`
}

// Run runs the command until it has ended or was stopped.
func (c *execCmd) Run(env *Env) error {
	command := commandLine(c.Command)
	switch {
	case len(command) == 0 || command[0] == "":
		return usagef("exec: the command is missing (see \"belay exec --help\")")
	case strings.HasPrefix(c.Command[0], "-") && c.Command[0] != "--":
		return usagef("exec: unknown flag %s; the command comes after -- (see \"belay exec --help\")", c.Command[0])
	}
	if c.Grace <= 0 || c.KillAfter <= 0 || c.Deadline < 0 {
		return usagef("exec: --grace and --kill-after must be above 0, --deadline not below it (got %v, %v, %v)", c.Grace, c.KillAfter, c.Deadline)
	}
	labels, err := parseLabels(c.Label)
	if err != nil {
		return err
	}
	x := &execution{env: env, command: command, tty: openTerminal(), signals: make(chan os.Signal, 8)}
	// Before anything can be left behind. What was ignored when we came
	// (nohup) stays ignored.
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGHUP} {
		if !signal.Ignored(sig) {
			signal.Notify(x.signals, sig)
		}
	}
	defer signal.Stop(x.signals)
	defer x.tty.close()
	x.name = c.Name
	if x.name == "" {
		x.name = filepath.Base(command[0])
	}
	x.host = openHost(context.Background(), env, "exec "+x.name)
	defer x.host.close()
	if err := x.start(c, labels); err != nil {
		return err
	}
	return x.wait()
}

// execution is one command under way. Only the goroutine of Run touches it,
// but for what says otherwise.
type execution struct {
	env     *Env
	host    *host
	name    string
	command []string
	tty     *ctty // nil without a terminal
	signals chan os.Signal

	run       *belay.Run
	tree      *supervise.Tree
	stopper   lateStopper
	killAfter time.Duration
	closing   atomic.Bool  // Belay itself is ending: the tree is being closed
	pressed   atomic.Int64 // when the terminal last sent Ctrl-C, in ns; read by Tell
}

// lateStopper stops a run that is registered before its tree exists. A step
// that comes before is remembered, and the command is told as soon as it is
// there: that takes some 10 ms.
type lateStopper struct {
	mu     sync.Mutex
	s      *supervise.Stopper // nil until the tree exists
	missed bool               // a step came before
}

func (l *lateStopper) get() *supervise.Stopper {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.missed = l.missed || l.s == nil
	return l.s
}

// set makes the stopper ready, and reports whether a step was missed.
func (l *lateStopper) set(s *supervise.Stopper) (missed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.s = s
	return l.missed
}

func (l *lateStopper) Tell(ctx context.Context, c *belay.Cancellation) (*belay.Evidence, error) {
	if s := l.get(); s != nil {
		return s.Tell(ctx, c)
	}
	return nil, nil
}

func (l *lateStopper) Terminate(ctx context.Context, c *belay.Cancellation) (*belay.Evidence, error) {
	if s := l.get(); s != nil {
		return s.Terminate(ctx, c)
	}
	return nil, nil
}

func (l *lateStopper) Kill(ctx context.Context, c *belay.Cancellation) (*belay.Evidence, error) {
	if s := l.get(); s != nil {
		return s.Kill(ctx, c)
	}
	return nil, nil
}

func (l *lateStopper) Plan(ctx context.Context) belay.Plan {
	l.mu.Lock()
	s := l.s
	l.mu.Unlock()
	if s != nil {
		return s.Plan(ctx)
	}
	return belay.Plan{Tell: "the command, which is just being started"}
}

// start registers the run and then starts its command.
func (x *execution) start(c *execCmd, labels map[string]string) error {
	ladder, _ := supervise.Ladder(belay.Ladder{Grace: c.Grace, KillAfter: c.KillAfter}, x.host.facts, x.command)
	x.killAfter = ladder.KillAfter
	spec := belay.Spec{
		Kind: belay.KindProcess, Name: x.name, Owner: x.host.owner, Labels: labels,
		ParentID: x.host.parent.Run(), Ladder: ladder, Stopper: &x.stopper,
	}
	if c.Deadline > 0 {
		spec.Deadline = time.Now().Add(c.Deadline)
	}
	var err error
	if x.run, err = x.host.tree.Register(spec); err != nil {
		return err
	}
	if above := x.stoppedAbove(); above != nil {
		x.run.Cancel(belay.Cancellation{Stop: above.Stop, Cause: belay.CauseParent, By: above.By, Via: above.Via, Reason: above.Reason, Origin: above.Origin})
	}
	if x.run.Cancellation() != nil {
		x.run.Observe(belay.Evidence{Kind: belay.SeenNotStarted, Scope: belay.ScopeLocalTree, Detail: "it was stopped before its command ran"})
		return x.report()
	}
	cfg := proc.Config{
		Path: x.command[0], Args: x.command[1:], Env: x.host.environment(x.run.ID()), Label: x.run.ID().String(),
		Stdin: fileOr(x.env.Stdin, os.Stdin), Stdout: fileOr(x.env.Stdout, os.Stdout), Stderr: fileOr(x.env.Stderr, os.Stderr),
		Foreground: x.tty != nil,
	}
	if c.Cgroup == "off" {
		cfg.Cgroup = proc.CgroupOff
	}
	// Not the run's context: that would kill what has just been started, and
	// the command is told instead, a moment later.
	if x.tree, err = supervise.Start(context.Background(), cfg, x.host.facts); err != nil {
		x.run.Finish(belay.Failed)
		x.run.Observe(belay.Evidence{Kind: belay.SeenNotStarted, Scope: belay.ScopeLocalTree, Detail: "its command could not be started"})
		return startError("exec", x.command, err)
	}
	s := x.tree.Stopper(supervise.Options{
		Tell: x.tell, Told: "the command's process group, by SIGINT",
		Half: c.Grace / 2, KillAfter: ladder.KillAfter,
	})
	if x.stopper.set(s) {
		x.drain()
		if err := x.tell(context.Background(), x.run.Cancellation()); err != nil {
			x.env.Warnf("exec: %s could not be told to stop: %v", x.name, err)
		}
	}
	return nil
}

// stoppedAbove is the cancellation of the run above, or nil. A Stop there is
// told to us a moment after we attached; that moment is too long for a command
// that must not be started, so the run is asked for.
func (x *execution) stoppedAbove() *belay.Cancellation {
	if x.host.parent == nil {
		return nil
	}
	if c := x.host.parent.Stopped(); c != nil {
		return c
	}
	ctx, end := context.WithTimeoutCause(context.Background(), local.DefaultTimeout, belay.ErrUnreachable)
	defer end()
	above, err := x.env.mesh().Get(ctx, x.host.parent.Run())
	if err != nil {
		return nil // attached all the same: what comes will be heard
	}
	return above.Cancellation
}

func fileOr(stream any, otherwise *os.File) *os.File {
	if f, ok := stream.(*os.File); ok {
		return f
	}
	return otherwise
}

// A tool counts as told when the terminal has sent it Ctrl-C: so long ago at
// most; and a Stop that comes from above by way of a terminal is given so much
// time to come from that terminal too. Many tools take a second SIGINT for
// "do not clean up".
const (
	toldAgo  = time.Second
	toldSoon = 150 * time.Millisecond
)

// tell delivers the polite cancel, unless the terminal has done so: its Ctrl-C
// reaches the tool directly. Called by the ladder.
func (x *execution) tell(ctx context.Context, c *belay.Cancellation) error {
	wait := time.Duration(0)
	if x.tty != nil && c.Cause == belay.CauseParent && c.Via == viaTerminal {
		wait = toldSoon
	}
	for end := time.Now().Add(wait); ; time.Sleep(2 * time.Millisecond) {
		if at := x.pressed.Load(); at != 0 && time.Since(time.Unix(0, at)) < toldAgo {
			return nil
		}
		if ctx.Err() != nil || !time.Now().Before(end) {
			return x.tree.Interrupt(ctx, c)
		}
	}
}

// drain takes the signals that have come until now.
func (x *execution) drain() {
	for {
		select {
		case sig := <-x.signals:
			x.signal(sig)
		default:
			return
		}
	}
}

// wait runs until the command has ended or was stopped.
func (x *execution) wait() error {
	for {
		select {
		case sig := <-x.signals:
			x.signal(sig)
		case <-x.run.Context().Done():
			return x.stopped()
		case <-x.tree.Done():
			return x.ended()
		}
	}
}

// signal is what a signal to belay exec means. Ctrl-C, from a terminal or by
// kill, is a person's Stop; SIGTERM and SIGHUP are Belay's own end, which leaves
// nothing behind after one second.
func (x *execution) signal(sig os.Signal) {
	switch sig {
	case syscall.SIGTERM:
		x.run.Cancel(belay.Cancellation{Cause: belay.CauseShutdown, Via: "signal", Reason: "belay exec got SIGTERM"})
		x.closeTree()
	case syscall.SIGHUP:
		x.run.Cancel(belay.Cancellation{Cause: belay.CauseDisconnect, Via: "signal", Reason: "belay exec got SIGHUP"})
		x.closeTree()
	case syscall.SIGQUIT:
		x.press("SIGQUIT", true)
	case syscall.SIGINT:
		if x.tty != nil {
			x.pressed.Store(time.Now().UnixNano())
		}
		if !x.heardAbove() {
			x.press("Ctrl-C", false)
		}
	}
}

// viaTerminal is the door of a Ctrl-C.
const viaTerminal = "terminal"

// press is a person's Stop, and each time it comes again the next step.
func (x *execution) press(what string, now bool) {
	via := "signal"
	if x.tty != nil {
		via = viaTerminal
	}
	_, err := x.host.tree.Cancel(context.Background(), belay.CancelRequest{
		Filter: belay.Filter{IDs: []belay.RunID{x.run.ID()}}, Escalate: true, Now: now,
		Cancellation: belay.Cancellation{Cause: belay.CauseUser, By: x.host.owner, Via: via, Reason: what},
	})
	if err != nil {
		x.env.Warnf("exec: %v", err)
	}
}

// aboveTime is how long a press waits for the same press by way of the run
// above: a terminal sends Ctrl-C to a Belay and to the Belay in it alike, and
// one press must not count as two.
const aboveTime = 150 * time.Millisecond

// heardAbove reports whether the run above takes care of this press.
func (x *execution) heardAbove() bool {
	if x.host.parent == nil || x.tty == nil {
		return false
	}
	if x.run.Cancellation() == nil {
		select {
		case <-x.run.Context().Done():
		case <-time.After(aboveTime):
		}
	}
	c := x.run.Cancellation()
	return c != nil && c.Cause == belay.CauseParent
}

// closeTree is Belay's own end, without the run's ladder: SIGTERM to all at
// once, SIGKILL after half a second.
func (x *execution) closeTree() {
	if !x.closing.CompareAndSwap(false, true) {
		return
	}
	go func() { // ends within 6 s; stopped waits for what it sees
		if e, err := x.tree.End(context.Background()); err == nil {
			x.observe(e)
		}
	}()
}

func (x *execution) observe(e *belay.Evidence) {
	if e = x.stopper.get().Seen(e); e != nil {
		x.run.Observe(*e)
	}
}

// stopped waits for the receipt of a run that was cancelled and prints it.
func (x *execution) stopped() error {
	ctx, end := context.WithCancelCause(context.Background())
	watched, final := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		if e := x.tree.Await(ctx, supervise.Whole()); e != nil && !x.closing.Load() {
			x.observe(e) // else closeTree will say the same with the means
		}
	}()
	go func() {
		defer close(final)
		_, _ = x.run.Wait(ctx)
	}()
	defer func() {
		end(x.run.Cancellation())
		<-watched
		<-final
	}()
	for {
		select {
		case sig := <-x.signals:
			x.signal(sig)
		case <-final:
			return x.conclude()
		}
	}
}

// conclude ends what a stopped run may have left, and prints its receipt.
func (x *execution) conclude() error {
	e, err := x.tree.End(context.Background())
	if err == nil {
		x.observe(e)
	}
	x.tty.restore()
	return x.report()
}

// report prints the receipt of the run, which is over or given up, and is the
// exit code.
func (x *execution) report() error {
	receipt := x.run.Receipt()
	printReceipt(x.env.Stderr, styleOf(x.env.Stderr, x.env.Getenv), receipt, true)
	if len(receipt.Survivors) > 0 {
		return exitWith(ExitSurvivors)
	}
	return exitWith(ExitStopped)
}

// ended is the end of the command by itself. What it left in the background
// is stopped, since exec owns the tree, and named.
func (x *execution) ended() error {
	exit := x.tree.Exit()
	x.lastWord()
	if x.run.Cancellation() != nil {
		return x.stopped()
	}
	left, err := x.sweep()
	if err != nil {
		return err
	}
	code := exit.Code
	outcome := belay.Completed
	if lost := x.tree.Err(); lost != nil {
		x.env.Warnf("exec: %v", lost)
	}
	switch {
	case exit.Unknown:
		x.env.Warnf("exec: %s is over, but its exit code is not known", x.name)
		code, outcome = ExitFailed, belay.Failed
	case exit.Signal != 0:
		code, outcome = 128+int(exit.Signal), belay.Failed
	case code != 0:
		outcome = belay.Failed
	}
	if !x.run.Finish(outcome) {
		return x.stopped() // a Stop was faster
	}
	if len(left) > 0 && code == 0 {
		code = ExitSurvivors
	}
	return exitWith(code)
}

// lastWord takes the signals that came before the end: a tool which listens to
// Ctrl-C can be gone before the same Ctrl-C has made its way to us through the
// runtime. A signal to ourselves, sent now, comes behind it.
func (x *execution) lastWord() {
	if !sendFence(x.signals) {
		x.drain()
		return
	}
	limit := time.NewTimer(200 * time.Millisecond)
	defer limit.Stop()
	for {
		select {
		case sig := <-x.signals:
			if isFence(sig) {
				return
			}
			x.signal(sig)
		case <-limit.C:
			return
		}
	}
}

// straggle is how long processes that are about to end by themselves, such as
// the tee at the end of a pipe, are waited for before they are stopped.
const straggle = 100 * time.Millisecond

// sweep stops what a command that has ended left running, and returns who
// survived.
func (x *execution) sweep() ([]belay.Process, error) {
	select {
	case <-x.tree.Gone():
		return nil, nil
	case <-time.After(straggle):
	}
	plan := x.tree.Plan(supervise.Whole())
	if len(plan.Spared) > 0 {
		x.env.Warnf("exec: %s has ended; left alive on purpose: %s", x.name, nameAll(plan.Spared))
	}
	if len(plan.Kill) == 0 {
		return nil, nil
	}
	x.env.Warnf("exec: %s has ended and left %s running, which is stopped now: %s", x.name, count(len(plan.Kill), "process"), nameAll(plan.Kill))
	type result struct {
		e   *belay.Evidence
		err error
	}
	swept := make(chan result, 1)
	ctx, end := context.WithCancelCause(context.Background())
	defer end(errSwept)
	go func() {
		e, err := x.tree.Sweep(ctx, x.killAfter)
		swept <- result{e, err}
	}()
	for {
		select {
		case sig := <-x.signals:
			x.signal(sig)
		case <-x.run.Context().Done():
			return nil, nil // stopped meanwhile: the ladder goes on from here
		case r := <-swept:
			if r.e != nil && len(r.e.Survivors) > 0 {
				x.env.Warnf("exec: still alive: %s", nameAll(r.e.Survivors))
				return r.e.Survivors, nil
			}
			return nil, r.err
		}
	}
}

var errSwept = errors.New("the sweep is over")

// nameAll names processes in one line.
func nameAll(list []belay.Process) string {
	const most = 5
	var parts []string
	for i, p := range list {
		if i == most {
			parts = append(parts, fmt.Sprintf("and %d more", len(list)-most))
			break
		}
		text := fmt.Sprintf("pid %d (%s)", p.PID, fit(p.Command, 60))
		if p.Why != "" {
			text += ", " + p.Why
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}
