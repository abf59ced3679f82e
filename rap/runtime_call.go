package rap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/belayhq/belay"
)

// CallOptions describe one call. Tool is required; the zero value of any other
// field means what its comment says.
type CallOptions struct {
	Tool      string
	Arguments json.RawMessage // an object; nil: an empty one
	CallID    *string         // echoed by the server; nil: none
	Events    *Events         // nil: the thread's
	Labels    map[string]string
	Owner     string     // of the run; "": the thread's
	Parent    *belay.Run // nil: the thread's
	// Keep says that Parent outlives the call: a subscription that it becomes hangs
	// below it, too.
	Keep bool

	// Late takes a result that came after the call was stopped, once. It must not
	// block. Nil: it is kept on the receipt alone.
	Late func(*ToolResult)
	// Seen takes the evidence of the run's stop, beside the run itself. It must not
	// block.
	Seen func(belay.Evidence)
}

// Pending is one invocation, from before it is sent until nothing of it is waited
// for. It is its run's [belay.Stopper]. All methods are safe for concurrent use.
type Pending struct {
	th     *Thread
	server *server
	o      CallOptions
	run    *belay.Run
	inv    Invocation
	key    tokenKey
	tool   string

	done chan struct{} // closed when the call is over for the runtime
	told chan struct{} // closed when a Stop has been handed to all deliveries

	// The fields below are guarded by th.mu.
	sent     bool          // an attempt to post it was made
	posting  chan struct{} // closed when the attempt that is under way is over; nil: none is
	withheld bool          // it was stopped before
	over     bool
	result   *ToolResult
	err      error
	late     bool                    // a result came after the Stop
	prompts  context.Context         // of what people are asked
	dismiss  context.CancelCauseFunc // ends prompts; nil: nobody was asked
	asking   int
	instance Instance // that it was sent to
}

// ErrNotAccepted says that a server did not take an invocation (RAP-58).
var ErrNotAccepted = errors.New("the tool server did not take the call")

// maxPrompts bounds what one call may ask at the same time.
const maxPrompts = 8

// Invoke starts a call and returns at once. The run is registered before anything is
// sent. Errors wrap [ErrNoTool], [ErrArguments], [ErrMalformed], [ErrTooLarge],
// [belay.ErrTooMany], [belay.ErrClosed], or are those of [belay.Tree.Register]; what
// goes wrong later is the call's result.
func (th *Thread) Invoke(o CallOptions) (*Pending, error) {
	rt := th.rt
	at, err := th.find(o.Tool)
	if err != nil {
		return nil, err
	}
	if o.Arguments == nil {
		o.Arguments = json.RawMessage("{}")
	}
	if err := th.checkArguments(at.tool, o.Arguments); err != nil {
		return nil, err
	}
	token, key := newToken()
	c := &Pending{
		th: th, server: at.server, o: o, key: key, tool: o.Tool,
		done: make(chan struct{}), told: make(chan struct{}),
	}
	if err := c.register(token); err != nil {
		return nil, err
	}
	body, err := c.inv.append(nil)            // whose callback URL is that of SetCallback, and a token
	c.o.Arguments, c.inv.Arguments = nil, nil // they can be large, and a call is remembered for a while
	if err == nil {
		err = c.begin(body)
	}
	if err != nil {
		c.run.Finish(belay.Failed)
		rt.forget(c)
		return nil, err
	}
	return c, nil
}

// find is the tool of that name.
func (th *Thread) find(name string) (tooled, error) {
	t := th.loaded()
	if t == nil {
		return tooled{}, fmt.Errorf("%w: nothing is loaded; call Load first", ErrNoTool)
	}
	at, ok := t.tools[name]
	if !ok {
		return tooled{}, fmt.Errorf("%w: %.128q", ErrNoTool, name)
	}
	return at, nil
}

// register makes the call a run, and known by its callback URL.
func (c *Pending) register(token string) error {
	th, rt := c.th, c.th.rt
	th.mu.Lock()
	t := th.o
	th.mu.Unlock()
	if c.o.Parent == nil {
		c.o.Parent = t.Parent
	}
	if c.o.Owner == "" {
		c.o.Owner = t.Owner
	}
	spec := belay.Spec{
		Kind: belay.KindCall, Name: c.tool, Server: c.server.Name, Owner: c.o.Owner, Labels: labelled(c.o.Labels),
		Address: th.id, Parent: c.o.Parent, Queued: true, OnCancel: c.settle,
		Ladder: belay.Ladder{Grace: c.server.Grace, KillAfter: c.server.KillAfter, ConfirmAfter: c.server.ConfirmAfter},
	}
	spec.Stopper = c
	if c.server.Process != nil && c.server.KillProcess {
		spec.Stopper = forced{c}
	}
	if d := c.server.CallTimeout; d > 0 {
		spec.Deadline = time.Now().Add(d)
	}
	rt.mu.Lock()
	callback, pending, closed := rt.callback, rt.pending, rt.closed
	rt.mu.Unlock()
	switch {
	case closed:
		return fmt.Errorf("invoke %s: %w", c.tool, belay.ErrClosed)
	case callback == "":
		return fmt.Errorf("%w: tool servers have no address to answer to; set the callback URL", ErrMalformed)
	case pending >= MaxPending:
		return fmt.Errorf("invoke %s: %w: %d calls are pending", c.tool, belay.ErrTooMany, pending)
	}
	run, err := rt.o.Tree.Register(spec)
	if err != nil {
		return err
	}
	c.run = run
	c.inv = Invocation{
		Operation: c.tool, Arguments: c.o.Arguments, ID: run.ID().String(), CallID: c.o.CallID,
		CallbackURL: callback + "/" + token, GroupID: th.id, ThreadAncestors: t.Ancestors, UserID: t.UserID,
	}
	return nil
}

var protocolLabel = map[string]string{"protocol": "rap"}

// labelled are the labels of a run of this protocol; not to be changed.
func labelled(labels map[string]string) map[string]string {
	if len(labels) == 0 {
		return protocolLabel // the run makes its own copy
	}
	own := make(map[string]string, len(labels)+1)
	own["protocol"] = "rap"
	maps.Copy(own, labels)
	return own
}

// begin makes the call known and has it sent.
func (c *Pending) begin(body []byte) error {
	th, rt := c.th, c.th.rt
	th.mu.Lock()
	defer th.mu.Unlock()
	if th.closed {
		return fmt.Errorf("invoke %s: the thread is closed: %w", c.tool, belay.ErrClosed)
	}
	if c.over {
		return nil // it was stopped a moment ago
	}
	rt.mu.Lock()
	rt.calls[c.key] = &slot{th: th, id: c.inv.ID, call: c}
	rt.pending++
	rt.mu.Unlock()
	th.calls[c.inv.ID] = c
	c.server.enter(c)
	if !rt.spawn(func() { c.send(body) }) {
		c.endLocked(nil, belay.ErrClosed)
		return fmt.Errorf("invoke %s: %w", c.tool, belay.ErrClosed)
	}
	return nil
}

// Run is the call's run: to watch it, and to stop it.
func (c *Pending) Run() *belay.Run { return c.run }

// ID is the id of the invocation, which is the run's.
func (c *Pending) ID() string { return c.inv.ID }

// Server is who was asked to do it.
func (c *Pending) Server() string { return c.server.Name }

// Done is closed when the call has its result, or was stopped.
func (c *Pending) Done() <-chan struct{} { return c.done }

// Result is what the call ended with, once Done is closed. The error of a call that
// was stopped wraps its *belay.Cancellation; of one that could not be made it says
// why, and wraps [ErrNotAccepted].
func (c *Pending) Result() (*ToolResult, error) {
	c.th.mu.Lock()
	defer c.th.mu.Unlock()
	return c.result, c.err
}

// Wait waits for Done and returns the result; when ctx ends before, its cause.
// That does not stop the call.
func (c *Pending) Wait(ctx context.Context) (*ToolResult, error) {
	select {
	case <-c.done:
		return c.Result()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Do is Invoke and Wait in one; the end of ctx stops the call.
func (th *Thread) Do(ctx context.Context, o CallOptions) (*ToolResult, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%s was not called: %w", o.Tool, context.Cause(ctx))
	}
	c, err := th.Invoke(o)
	if err != nil {
		return nil, err
	}
	stopped := context.AfterFunc(ctx, func() { c.run.Cancel(cancellationOf(ctx)) })
	defer stopped()
	<-c.done
	return c.Result()
}

// cancellationOf turns the end of a context into a cancellation.
func cancellationOf(ctx context.Context) belay.Cancellation {
	if known := belay.CancellationOf(ctx); known != nil {
		return *known
	}
	c := belay.Cancellation{Cause: belay.CauseUser, Via: "context", Reason: context.Cause(ctx).Error()}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		c.Cause = belay.CauseDeadline
	}
	return c
}

// retryWaits lie between the attempts to post an invocation (RAP-59).
var retryWaits = [...]time.Duration{200 * time.Millisecond, time.Second, 5 * time.Second}

// jitter spreads what many runtimes would otherwise do at the same moment.
func jitter(d time.Duration) time.Duration {
	return d*4/5 + rand.N(d*2/5) //nolint:gosec // nobody gains anything by guessing it
}

// send posts the invocation until it is taken, refused, or not wanted any more.
func (c *Pending) send(body []byte) {
	if !c.run.Start() {
		return // it was stopped; settle and Tell see to the rest
	}
	var err error
	for try := 0; ; try++ {
		var again bool
		if again, err = c.attempt(body); !again {
			break
		}
		if try == len(retryWaits) {
			err = fmt.Errorf("after %d attempts: %w", try+1, err)
			break
		}
		timer := time.NewTimer(jitter(retryWaits[try]))
		select {
		case <-timer.C:
		case <-c.done:
		case <-c.run.Context().Done(): // a Stop ends the retries
		case <-c.th.rt.life.Done():
			timer.Stop()
			return
		}
		timer.Stop()
		if c.isOver() {
			return
		}
	}
	if err != nil {
		c.refused(err)
	}
}

// attempt posts once. again says that it may be tried once more.
//
// A post that is under way is not broken off by the Stop: net/http closes the
// connection of a request whose context ends, also when the answer came in that
// moment and the connection was given to the next request, which is the cancel.
func (c *Pending) attempt(body []byte) (again bool, err error) {
	rt := c.th.rt
	to, in, err := c.endpoint()
	if err != nil {
		return !errors.Is(err, ErrManifest) && c.run.Cancellation() == nil, err
	}
	if !c.maySend(in) {
		return false, nil
	}
	ctx, end := context.WithTimeoutCause(rt.life, rt.o.PostTimeout, slowError(rt.o.PostTimeout))
	defer end()
	status, err := c.server.link.post(ctx, to, body)
	c.posted()
	switch {
	case c.isOver() || c.run.Cancellation() != nil:
		return false, nil // the result was faster than the acknowledgement, or it was stopped
	case err != nil:
		return true, err
	case status == http.StatusOK:
		return false, nil
	case status >= 500:
		return true, statusError(status)
	}
	return false, statusError(status)
}

// endpoint is where the invocation goes now. A server that was started anew has
// another port, and says so.
func (c *Pending) endpoint() (string, Instance, error) {
	s := c.server
	var in Instance
	if s.Process != nil {
		var err error
		if _, in, err = s.up(c.run.Context()); err != nil {
			return "", nil, err
		}
	}
	s.mu.Lock()
	m, same := s.cached, s.instance == in
	s.mu.Unlock()
	if m == nil || !same {
		var err error
		if m, err = c.th.rt.manifest(c.run.Context(), s); err != nil {
			return "", nil, err
		}
	}
	return m.Endpoint, in, nil
}

// maySend notes that the server may know of the call from here on; false if it
// was stopped before.
func (c *Pending) maySend(in Instance) bool {
	c.th.mu.Lock()
	defer c.th.mu.Unlock()
	if c.over || c.withheld {
		return false
	}
	c.sent, c.posting = true, make(chan struct{})
	if in != nil && c.instance != in {
		c.instance = in
		c.th.rt.spawn(func() { c.watch(in) })
	}
	return true
}

// posted notes that an attempt is over.
func (c *Pending) posted() {
	c.th.mu.Lock()
	defer c.th.mu.Unlock()
	close(c.posting)
	c.posting = nil
}

func (c *Pending) isOver() bool {
	c.th.mu.Lock()
	defer c.th.mu.Unlock()
	return c.over
}

// refused ends a call that no server has taken. Where the server may have got it
// all the same, it is told that nobody waits.
func (c *Pending) refused(err error) {
	var status statusError
	ambiguous := !errors.As(err, &status) || status >= 500
	err = fmt.Errorf("%w: %s: %w", ErrNotAccepted, c.server.Name, err)
	c.th.mu.Lock()
	wasOver := c.over
	if !wasOver && c.run.Finish(belay.Failed) {
		c.endLocked(nil, err)
	}
	sent := c.sent
	c.th.mu.Unlock()
	if !wasOver && ambiguous && sent {
		c.tellAll(nil)
	}
}

// endLocked is the one place where a call ends for the runtime: those who wait
// for it first, then its prompts (RAP-90).
func (c *Pending) endLocked(r *ToolResult, err error) {
	if c.over {
		return
	}
	c.over, c.result, c.err = true, r, err
	close(c.done)
	if log := c.th.rt.log; log.Enabled(context.Background(), slog.LevelDebug) { // RAP-42
		log.Debug("a call has ended", "server", c.server.Name, "operation", c.tool, "run", c.run.ID(), "took", time.Since(c.run.Started()), "error", err)
	}
	if c.dismiss != nil {
		why := err
		if why == nil {
			why = errNobody
		}
		c.dismiss(why)
	}
	delete(c.th.calls, c.inv.ID)
	c.server.leave(c)
	c.th.rt.retire(c.key, r != nil)
}

// settle is the run's OnCancel.
func (c *Pending) settle(_ *belay.Run, why *belay.Cancellation) {
	c.th.mu.Lock()
	defer c.th.mu.Unlock()
	c.endLocked(nil, fmt.Errorf("%s: %w", c.tool, why))
	if c.sent {
		c.th.rt.owe(c.told)
	}
}

// retire keeps the callback URL of an ended call for a while.
// One that has its result is let go; one that was stopped may still be told
// something (RAP-93).
func (rt *Runtime) retire(key tokenKey, done bool) {
	now := time.Now()
	rt.mu.Lock()
	defer rt.mu.Unlock()
	at := rt.calls[key]
	if at == nil {
		return // it was never known
	}
	if done {
		at.call = nil
	}
	rt.pending--
	rt.ended.put(key, now, func(old tokenKey) { delete(rt.calls, old) })
}

// forget takes back a call that came to nothing.
func (rt *Runtime) forget(c *Pending) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	delete(rt.calls, c.key)
}

// enter and leave count what is in flight on a server.
func (s *server) enter(c *Pending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending[c] = struct{}{}
}

func (s *server) leave(c *Pending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.pending[c]; ok {
		delete(s.pending, c)
		if s.wake != nil {
			close(s.wake)
			s.wake = nil
		}
	}
}

// others names the calls in flight beside c, and what is closed when one of them
// ends.
func (s *server) others(c *Pending) (list []string, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for other := range s.pending {
		if other != c {
			list = append(list, other.inv.ID)
		}
	}
	if s.wake == nil {
		s.wake = make(chan struct{})
	}
	return list, s.wake
}

// Failed reports whether a result is an error, for which the protocol has no
// member (RAP-66).
func Failed(r *ToolResult) bool {
	for _, item := range r.Items() {
		if item.Type == ItemText {
			return strings.HasPrefix(item.Text, "Error:")
		}
	}
	return false
}
