package rap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belayhq/belay"
)

// Job is a call as the tool sees it. Its methods are safe for concurrent use, and
// may be called until its [Func] returns.
type Job struct {
	h      *Handler
	inv    *Invocation
	caller string
	base   string // of the handler, as the caller knows it
	key    jobKey
	run    *belay.Run

	refused error // the invocation can be answered, but not carried out
	early   bool  // it was stopped before it came

	// live is the run's context, which also ends when the last message goes out:
	// what the tool still sends then is not sent.
	live    context.Context
	endLive context.CancelCauseFunc
	parts   atomic.Int32  // of its two goroutines, how many have not ended, or may yet begin
	sending chan struct{} // holds a token while a message is posted: their order is that of the calls

	returned chan struct{} // closed when the work has returned
	spoke    chan struct{} // closed by the first Partial after a Stop
	asking   chan struct{} // holds a token while the user is asked

	mu         sync.Mutex // guards the fields below
	partial    string
	spoken     bool // spoke is closed
	subscribed bool
	kept       func(*belay.Cancellation) bool // whether the subscription outlives this Stop; nil: none does
	final      bool                           // the last message is chosen; nothing is sent but it
	unproven   bool                           // the work has returned, and it cannot say that it has ended
}

// prepare makes what the zero Job lacks.
func (j *Job) prepare() {
	j.sending, j.asking = make(chan struct{}, 1), make(chan struct{}, 1)
	j.returned, j.spoke = make(chan struct{}), make(chan struct{})
}

// contextOf is the run's context with an end of its own.
func contextOf(r *belay.Run) (context.Context, context.CancelCauseFunc) {
	return context.WithCancelCause(r.Context())
}

// Operation is the tool's name.
func (j *Job) Operation() string { return j.inv.Operation }

// Arguments is a JSON object.
func (j *Job) Arguments() json.RawMessage { return j.inv.Arguments }

// Caller is who asks, as the Authenticator found out.
func (j *Job) Caller() string { return j.caller }

// Owner is the owner of the call's run.
func (j *Job) Owner() string { return j.h.o.Owner(j.caller) }

// Thread is the conversation that asks; untrusted text, see [CheckID].
func (j *Job) Thread() string { return j.inv.GroupID }

// ID names the call within its thread; untrusted text.
func (j *Job) ID() string { return j.inv.ID }

// Ancestors are the threads above, from the root to the parent.
func (j *Job) Ancestors() []string { return slices.Clone(j.inv.ThreadAncestors) }

// User is on whose behalf the caller says that it asks; "" if it does not. A tool
// that gives access by it must know that the caller may speak for them (RAP-57).
func (j *Job) User() string { return j.inv.UserID }

// Run is the call as a run. It is stopped like any other.
func (j *Job) Run() *belay.Run { return j.run }

// maxPartial bounds what is kept for a Stop.
const maxPartial = 64 << 10

// Partial says what a Stop from now on may report as the partial result; the last
// text counts. Of a text over 64 KiB the end is cut off. After a Stop the first
// text goes out at once.
func (j *Job) Partial(text string) {
	text = bounded(text)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.partial = text
	if text != "" && !j.spoken && j.run.Cancellation() != nil {
		j.spoken = true
		close(j.spoke)
	}
}

func bounded(text string) string {
	if len(text) <= maxPartial {
		return strings.ToValidUTF8(text, "\uFFFD")
	}
	return strings.ToValidUTF8(text[:maxPartial], "") + "…"
}

// work carries the call out, and ends it unless it was stopped.
func (j *Job) work() {
	defer j.part()
	fn, err := Func(nil), j.refused
	if err == nil && j.run.Cancellation() == nil {
		fn, err = j.guard(func() (Func, error) { return j.h.o.Toolset.Prepare(j.live, j) })
	}
	if err != nil {
		j.conclude(Result{}, err)
		return
	}
	if !j.run.Start() { // it was stopped before anything was done
		close(j.returned)
		return
	}
	var res Result
	_, err = j.guard(func() (Func, error) {
		var err error
		res, err = fn(j.live, j)
		return nil, err
	})
	j.conclude(res, err)
}

var errPanic = errors.New("the tool failed unexpectedly; its author can find out why in the tool server's log")

// guard calls f; a panic is an error whose text tells the model nothing (RAP-66).
func (j *Job) guard(f func() (Func, error)) (fn Func, err error) {
	over := false
	defer func() {
		if over {
			return
		}
		// A goroutine that ends itself comes here, too, with nothing to recover.
		cause := recover()
		j.h.log.Error("a tool panicked", "tool", j.inv.Operation, "panic", cause, "stack", string(debug.Stack()))
		err = errPanic
		if cause == nil { // the rest of work will not be reached
			j.conclude(Result{}, err)
		}
	}()
	fn, err = f()
	over = true
	return fn, err
}

// conclude ends a call whose work has returned. If it was stopped, the answer is
// the business of stopped, which gets what there is.
func (j *Job) conclude(res Result, err error) {
	outcome := belay.Completed
	switch {
	case errors.Is(err, belay.ErrDeclined), err == nil && res.Declined:
		outcome = belay.Declined
	case err != nil:
		outcome = belay.Failed
	}
	if j.run.Finish(outcome) {
		defer j.part() // nobody will answer a Stop any more
		j.deliverFinal(j.resultOf(res, err))
		return
	}
	j.late(res, err)
	if !errors.Is(err, ErrUnproven) {
		j.run.Observe(belay.Evidence{Kind: belay.SeenHandlerReturned, Scope: belay.ScopeHandler})
	}
	close(j.returned)
}

// late keeps what a stopped tool returned without an error as the partial result.
func (j *Job) late(res Result, err error) {
	if err != nil {
		res = Result{}
	}
	text := res.Text
	for _, item := range res.Content {
		if item.Type == ItemText && item.Text != "" {
			text = strings.TrimPrefix(text+"\n"+item.Text, "\n")
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if text != "" {
		j.partial = bounded(text)
	}
	j.unproven = errors.Is(err, ErrUnproven)
}

// viaRAP is the door by which a runtime stops its calls.
const viaRAP = "rap"

// stopped answers the caller of a stopped call: with what the tool has as soon as
// it has something, and without it when the time for it is over.
func (j *Job) stopped() {
	defer j.part()
	j.h.mu.Lock() // under which it is admitted: others know a run before its job does
	run := j.run
	j.h.mu.Unlock()
	if j.goesOn() {
		j.mu.Lock()
		j.final = true
		j.mu.Unlock()
		j.endLive(errFinal)
		j.h.answered(j)
		return
	}
	cause, wait := run.Cancellation(), j.h.o.PartialWait
	if cause.Via == viaRAP && cause.Cause == belay.CauseUser {
		wait = j.h.o.OwnWait
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	ended := false
	select {
	case <-j.returned:
		ended = true
	case <-j.spoke:
	case <-timer.C:
	}
	j.mu.Lock()
	partial := j.partial
	ended = ended && !j.unproven
	j.mu.Unlock()
	if partial != "" {
		run.Partial(partial)
	}
	text := stoppedText(cause, partial, !ended)
	if j.early {
		text = "Error: Cancelled before start."
	}
	j.deliverFinal(j.closing(text, "[cancelled]"))
}

// goesOn reports whether what was stopped is kept: with the end of this program a
// subscription that is taken up again by the next one has no last event.
func (j *Job) goesOn() bool {
	j.mu.Lock()
	kept := j.kept
	j.mu.Unlock()
	return kept != nil && kept(j.run.Cancellation())
}

// StillRunning ends the text of a stopped call whose work was not seen to end: a
// model that retries then would do the work twice.
const StillRunning = "The work may still be running; do not simply retry."

// stoppedText is what the model reads of a call that was stopped (RAP-98): by the
// user who waits for it, or by whom and why (RAP-92).
func stoppedText(c *belay.Cancellation, partial string, running bool) string {
	by := "Cancelled by user"
	if c != nil && c.Cause != belay.CauseUser {
		by = "Cancelled by " + string(c.Cause)
		if c.Reason != "" {
			by += ": " + strings.TrimRight(c.Reason, ". ")
		}
	}
	text := "Error: " + by + "."
	if partial != "" {
		text = by + ". Partial results:\n" + partial
	}
	if running && partial != "" {
		text += "\n\n" + StillRunning
	} else if running {
		text += " " + StillRunning
	}
	return text
}

// resultOf is the message that ends a call which was not stopped.
func (j *Job) resultOf(res Result, err error) Message {
	if err != nil {
		return j.closing(ErrorText(j.errorText(err)), "")
	}
	j.mu.Lock()
	subscribed := j.subscribed
	j.mu.Unlock()
	if subscribed {
		return j.closing(res.Text, "")
	}
	m := &ToolResult{GroupID: j.inv.GroupID, ID: j.inv.ID, CallID: j.inv.CallID, Text: res.Text, Content: res.Content, DisplayAs: res.DisplayAs}
	if err := m.check(); err != nil {
		j.h.log.Error("a tool's result cannot be sent", "tool", j.inv.Operation, "error", err)
		return j.closing(ErrorText("the tool gave a result that cannot be sent: "+complaint(err)), "")
	}
	return m
}

// maxErrorText bounds what a tool's error says to a model.
const maxErrorText = 4 << 10

func (j *Job) errorText(err error) string {
	text := complaint(err)
	if len(text) > maxErrorText {
		text = strings.ToValidUTF8(text[:maxErrorText], "") + "…"
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// closing ends a call with a text; a subscription with its last event, for which
// other takes the text's place unless it is empty.
func (j *Job) closing(text, other string) Message {
	j.mu.Lock()
	subscribed := j.subscribed
	j.mu.Unlock()
	if !subscribed {
		return &ToolResult{GroupID: j.inv.GroupID, ID: j.inv.ID, CallID: j.inv.CallID, Text: text}
	}
	if other != "" {
		text = other
	}
	return &SubscriptionEvent{GroupID: j.inv.GroupID, ToolCallID: j.inv.ID, Text: text, Associative: true, Final: true}
}

// describe is the call in log lines.
func (j *Job) describe() string {
	return fmt.Sprintf("%s (%s, %s)", j.inv.Operation, j.inv.GroupID, j.inv.ID)
}
