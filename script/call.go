package script

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dop251/goja"
)

// ErrRegistration is wrapped by what is wrong with what a script's top level did:
// it threw, ran too long, or registered nothing that its manifest asks for.
var ErrRegistration = errors.New("the script does not register its tool")

// Times and bounds of one call.
const (
	DefaultGrace     = 2 * time.Second        // from the Stop to the interrupt (AT-33, AT-34)
	DefaultKillAfter = 5 * time.Second        // from the Stop to the end of the virtual machine (AT-33)
	TopLevelLimit    = 5 * time.Second        // for the script's top level (AT-86)
	OnCancelLimit    = 250 * time.Millisecond // for onCancel (AT-30)

	MaxMessage = 64 << 10 // bytes of onCancel's text (AT-88)
	MaxReports = 256      // different ones; later ones replace the last (AT-88)
	maxStack   = 2000     // frames (AT-88)

	// yieldTime is what a job that runs at the end of the grace has left to end by
	// itself: a script that waits often is in one now and then, and is no busy one.
	yieldTime = 10 * time.Millisecond
)

// Why a virtual machine was interrupted.
var (
	errGrace    = errors.New("the grace period is over")
	errBroken   = errors.New("the call was ended by force")
	errSlow     = errors.New("onCancel took too long")
	errTopLevel = fmt.Errorf("%w: its top level ran for more than %s", ErrRegistration, TopLevelLimit)
	errExit     = errors.New("Script.exit")
	errNever    = errors.New("the loop is empty")
	errCPU      = errors.New("the processor time is used up")
	errCrashed  = errors.New("the interpreter failed")
)

//go:embed prelude.js
var preludeText string

// prelude is compiled once for all virtual machines.
var prelude = sync.OnceValues(func() (*goja.Program, error) {
	return goja.Compile("belay", preludeText, true)
})

// Hooks are what a call tells its owner while it runs. Each may be nil; none may
// block for long, except Ask. Report, Log and Cancelled are called from the call's
// own goroutine, Ask from another.
type Hooks struct {
	// Report shows progress; the same id replaces an earlier message (AT-54).
	Report func(message, id string)

	// Log takes a line of the script's console, or of the host about the script.
	Log func(level, message string)

	// Cancelled is called once after a Stop, as soon as it is known what the script
	// hands back (AT-15 to AT-17); partial says whether there is a message.
	Cancelled func(message string, partial bool)

	// Ask shows the dialog of a tool that wants approval and returns what the
	// person did. The end of ctx withdraws it.
	Ask func(ctx context.Context, d Dialog) (Answer, error)
}

// Options of one call. The zero value is usable.
type Options struct {
	Hooks

	Grace       time.Duration // zero: DefaultGrace
	KillAfter   time.Duration // zero: DefaultKillAfter
	Network     *Network      // where the script may connect to; nil: nowhere
	AutoApprove bool          // the person allows tools that permit it to go on unasked (AT-43)
	Editor      *Editor       // the folder of tools that are for the editor only; nil: none (AT-44)
	Test        *Rehearsal    // of a test; nil: a real call

	// CPU bounds how long the interpreter may run for this call, all its jobs together
	// and by the clock of the wall, so that a busy machine counts as well; what the
	// script waits for does not count. Zero: no bound (AT-88).
	CPU time.Duration

	previewTime time.Duration // zero: PreviewTime
}

// Ending says how a call's script came to its end.
type Ending string

// The endings of a script. The end of the whole process is for its owner to say.
const (
	Returned    Ending = "returned"    // by itself, or it had nothing left to wait for
	Interrupted Ending = "interrupted" // the virtual machine was stopped
	NotStarted  Ending = "not_started" // it never began
)

// Ended is how a call ended. Exactly one of Cancelled, Declined and neither holds.
type Ended struct {
	Result    Result // meaningless when Cancelled
	Cancelled bool   // it was stopped
	Declined  bool   // a person said no, or nothing; the result is the script's own word (AT-62)
	Message   string // what onCancel handed back
	Partial   bool   // there is a message
	Late      bool   // it returned a result or threw after the Stop; that is dropped
	Ending    Ending
}

// Call is one call of a tool. Run may be called once; Interrupt at any time, by
// anybody.
type Call struct {
	tool    *Tool
	params  []byte
	options Options
	state   state

	cancelled atomic.Bool
	stopping  sync.WaitGroup // the goroutine that hears of the Stop

	// Of the goroutine that runs the call.
	vm      *goja.Runtime
	loop    *loop
	net     *network
	script  control
	phase   phase
	told    bool // onCancel had its turn
	ended   Ended
	settled bool
	said    speech
	look    goja.Callable // the preview's action; nil: there is none
	asked   bool          // a person is being asked
	glance  *glance       // the preview that runs; nil: none
	ran     time.Duration // by the interpreter, until its last job
	exit    []byte
	exited  bool
	tests   *[]TestCall // where calls of test functions are noted; nil: nowhere

	mu      sync.Mutex
	ctx     context.Context // of Run: its end is the Stop
	busy    bool            // the virtual machine is running a job
	job     uint64          // which one: how many began
	over    bool            // no job may begin any more
	handing bool            // onCancel has the virtual machine
	graced  bool            // the grace period is over
	desk    *desk           // what the call does with the editor; nil: it has none
	timers  []*time.Timer
}

// phase is where a call stands.
type phase int

const (
	loading phase = iota
	asking
	executing
	finished
)

// control is what the prelude gives to the host.
type control struct {
	kinds, request, execute, cancel goja.Callable
}

// Call prepares a call. Nothing of the script runs before [Call.Run]. The error
// wraps [ErrParams].
func (t *Tool) Call(params []byte, o Options) (*Call, error) {
	if err := t.Manifest.CheckParams(params); err != nil {
		return nil, err
	}
	return t.call(params, o), nil
}

func (t *Tool) call(params []byte, o Options) *Call {
	if o.Grace <= 0 {
		o.Grace = DefaultGrace
	}
	if o.KillAfter <= 0 {
		o.KillAfter = max(DefaultKillAfter, o.Grace)
	}
	c := &Call{tool: t, params: params, options: o, loop: newLoop()}
	c.net = newNetwork(c)
	return c
}

// Run runs the call to its end. The end of ctx is the Stop (AT-29). It returns when
// the virtual machine runs nothing any more; a builtin that no interrupt reaches
// keeps it from returning, and only the end of the process ends that.
func (c *Call) Run(ctx context.Context) Ended {
	if ctx.Err() != nil { // stopped before it began: the script never learns of it
		c.cancelled.Store(true)
		c.tellCancelled("", false)
		return Ended{Cancelled: true, Ending: NotStarted}
	}
	c.mu.Lock()
	c.ctx = ctx
	c.mu.Unlock()
	c.stopping.Add(1)
	heard := context.AfterFunc(ctx, func() { defer c.stopping.Done(); c.stop() })
	defer func() {
		if heard() {
			c.stopping.Done()
		}
		c.stopping.Wait()
		c.close()
	}()
	err := c.start()
	if err == nil {
		err = c.work(ctx)
	}
	c.sayHeld()
	return c.conclude(err)
}

// work is everything behind the script's top level.
func (c *Call) work(ctx context.Context) error {
	action := goja.Undefined()
	if c.tool.Manifest.RequireApproval {
		flags, err := c.approval(ctx)
		if err != nil {
			return err
		}
		action = c.vm.ToValue(flags)
	}
	c.phase = executing
	err := c.do(func() error {
		_, err := c.script.execute(goja.Undefined(), c.vm.ToValue(string(c.params)), action,
			c.vm.ToValue(func(f goja.FunctionCall) goja.Value { c.settle(parseResult([]byte(jsonOf(f.Argument(0))))); return nil }),
			c.vm.ToValue(func(f goja.FunctionCall) goja.Value { c.settle(failure(errorText(f.Argument(0).String()))); return nil }))
		return err
	})
	if err != nil {
		return err
	}
	return c.drive(func() bool { return c.settled })
}

// start makes the virtual machine and runs the script's top level.
func (c *Call) start() error {
	if err := c.machine(); err != nil {
		return err
	}
	limit := time.AfterFunc(TopLevelLimit, func() { c.interruptBusy(errTopLevel) })
	defer limit.Stop()
	return c.do(func() error {
		_, err := c.vm.RunProgram(c.tool.program)
		return err
	})
}

// drive runs jobs until done, the loop is empty for good, or the call is ended by
// force.
func (c *Call) drive(done func() bool) error {
	for !done() {
		if !c.told && c.isCancelled() { // before anything that the script would do next (AT-15)
			if err := c.do(func() error { c.runOnCancel(); return nil }); err != nil {
				return err
			}
		}
		job, idle := c.loop.next()
		switch {
		case c.isOver():
			return errBroken
		case job != nil:
			if err := c.turn(job); err != nil {
				return err
			}
		case idle:
			return errNever
		default:
			<-c.loop.wake
		}
	}
	return nil
}

// do runs one job in the virtual machine: the only way into it. What a job throws
// ends nothing; an interrupt does.
func (c *Call) do(job func() error) (err error) {
	c.mu.Lock()
	if c.over {
		c.mu.Unlock()
		return errBroken
	}
	c.busy = true
	c.job++
	c.mu.Unlock()
	left := c.meter()
	defer func() {
		left()
		c.mu.Lock()
		c.busy = false
		c.vm.ClearInterrupt() // one that came too late must not hit the next job
		c.mu.Unlock()
		if bug := recover(); bug != nil {
			err = c.crashed(bug)
		}
	}()
	if thrown := c.vm.Try(func() { err = job() }); thrown != nil {
		err = thrown
	}
	return err
}

// meter counts one job's time, and interrupts the job that uses up what its call may
// have. The returned function ends the counting.
func (c *Call) meter() (done func()) {
	if c.options.CPU <= 0 {
		return func() {}
	}
	begin := time.Now()
	limit := time.AfterFunc(c.options.CPU-c.ran, func() { c.interruptBusy(errCPU) })
	return func() {
		limit.Stop()
		c.ran += time.Since(begin)
	}
}

// crashed is what becomes of a call whose script found a mistake in the interpreter:
// it fails alone, and its machine is not used any more.
func (c *Call) crashed(bug any) error {
	c.mu.Lock()
	c.over = true
	c.mu.Unlock()
	c.log("warn", fmt.Sprintf("the interpreter failed: %v\n%s", bug, debug.Stack()))
	return errCrashed
}

func (c *Call) isOver() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.over
}

// settle takes what the execute function came to; the first one counts.
func (c *Call) settle(r Result) {
	if c.settled {
		return
	}
	c.settled = true
	c.ended.Result = r
}

// conclude says how it ended, once nothing runs any more.
func (c *Call) conclude(err error) Ended {
	c.phase, c.ended.Ending = finished, Returned
	interrupted := (*goja.InterruptedError)(nil)
	if (errors.As(err, &interrupted) || errors.Is(err, errBroken)) && !c.exited {
		c.ended.Ending = Interrupted
	}
	if c.isCancelled() {
		c.runOnCancel() // if it was busy all the time (AT-34)
		c.ended.Cancelled, c.ended.Declined = true, false
		c.ended.Late = c.settled
		return c.ended
	}
	switch {
	case c.exited:
		c.ended.Result = parseResult(c.exit)
	case c.settled:
	default:
		c.ended.Result = failure(errorText(c.thrown(err)))
	}
	return c.ended
}

// thrown is what an error says to a model: the message of what was thrown, and no
// stack (AT-70). It is run by the call's goroutine.
func (c *Call) thrown(err error) string {
	deep, exception := (*goja.StackOverflowError)(nil), (*goja.Exception)(nil)
	switch {
	case errors.Is(err, errNever):
		return TextNever
	case errors.Is(err, errCPU):
		return TextCPU
	case errors.As(err, &deep):
		return TextDeep
	case errors.As(err, &exception):
		return c.shown(exception)
	}
	return err.Error()
}

// shown is the text of what was thrown. To make it may run code of the script's,
// which may throw again, or never end.
func (c *Call) shown(e *goja.Exception) (text string) {
	if e.Value() == nil {
		return "the tool threw nothing"
	}
	limit := time.AfterFunc(OnCancelLimit, func() { c.vm.Interrupt(errSlow) })
	defer func() {
		limit.Stop()
		c.vm.ClearInterrupt()
		if recover() != nil { // the interrupt is no exception to Try
			text = textOdd
		}
	}()
	if c.vm.Try(func() { text = cut(e.Value().String()) }) != nil {
		return textOdd
	}
	return text
}

func errorText(message string) string {
	if strings.HasPrefix(message, "Error: ") {
		return message
	}
	return "Error: " + message
}

// jsonOf is the text of a JSON value, "" for undefined.
func jsonOf(v goja.Value) string {
	if v == nil || goja.IsUndefined(v) {
		return ""
	}
	return v.String()
}

// close lets go of everything; nothing of the script runs afterwards.
func (c *Call) close() {
	c.mu.Lock()
	c.over = true
	for _, t := range c.timers {
		t.Stop()
	}
	c.mu.Unlock()
	c.desk.close(c.ctx)
	c.loop.finish()
	c.net.close()
}

// metadata is Script.metadata (AT-74).
func (t *Tool) metadata() string {
	text, err := json.Marshal(map[string]string{
		"name": t.Manifest.DisplayName, "version": "1.0.0", "icon": t.Manifest.Icon,
		"color": t.Manifest.Color, "description": t.Manifest.Description,
	})
	if err != nil {
		return "{}"
	}
	return string(text)
}
