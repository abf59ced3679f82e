package acp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
)

// Request is one request of the other side while it is served. All methods are
// safe for concurrent use.
type Request struct {
	conn    *Conn
	id      jsonrpc.ID
	key     string // of the id
	method  string
	session string // of a prompt, a dialog or a close; else ""
	params  []byte
	run     *belay.Run
	ctx     requestContext // of the handler
	read    uint64         // how many notifications were read before it

	prev, next *Request // among those that are served; guarded by conn.mu

	mu sync.Mutex
	// The fields below are guarded by mu.
	answered bool          // one answer was sent, or nobody is left to whom it could be
	lost     bool          // the latter
	inserted bool          // a v2 prompt: it was answered when the work began
	returned bool          // the handler has
	overdue  *time.Timer   // answers for a handler that does not return
	limit    *time.Timer   // Options.Limit
	children int           // calls that were made with its ctx and are not settled
	quiet    chan struct{} // closed when children becomes 0
	cleanup  []func(context.Context)
	turn     *Turn // of a prompt that an [Agent] serves
}

// ID is the id that the peer gave to the request.
func (r *Request) ID() jsonrpc.ID { return r.id }

// Method is the method.
func (r *Request) Method() string { return r.method }

// Params is the JSON text of the params; nil if there are none. It must not be
// changed.
func (r *Request) Params() []byte { return r.params }

// Conn is the connection that the request came by.
func (r *Request) Conn() *Conn { return r.conn }

// Run is the run that stands for the request.
func (r *Request) Run() *belay.Run { return r.run }

// Decode reads the params into v. The error can be returned by the handler as it
// is.
func (r *Request) Decode(v any) error {
	if r.params == nil {
		return InvalidParams("params are missing")
	}
	if err := json.Unmarshal(r.params, v); err != nil {
		return InvalidParams("params: %v", err)
	}
	return nil
}

// Cancel stops the request from this side: an own limit was reached, a file is
// gone, a project was closed. What happens then is the same as after a cancel by
// the peer (ACP-19…22). It reports whether it changed anything.
func (r *Request) Cancel(c belay.Cancellation) bool {
	if Handshaking(r.method) && c.Cause == belay.CausePeer {
		return false
	}
	return r.run.Cancel(c)
}

type requestKey struct{}

// requestOf is the request whose handler got ctx or what derives from it.
func requestOf(ctx context.Context) *Request {
	r, _ := ctx.Value(requestKey{}).(*Request)
	return r
}

// request takes a request from the reader.
func (c *Conn) request(frame []byte, e *jsonrpc.Envelope) {
	switch {
	case CancelForm(e.Method) != FormUnknown, e.Method == NoticeSessionCancel:
		// They are notifications. What asks for an answer is another method, which does
		// not exist, and stops nothing.
		c.refuse(e.ID, MethodNotFound(e.Method))
		return
	case e.ID.IsNull() && c.Version() >= Version2:
		c.refuse(e.ID, &Error{Code: CodeInvalidRequest, Message: "the id of a request must be a string or an integer"})
		return
	}
	r := &Request{conn: c, id: e.ID, key: e.ID.Key(), method: e.Method, read: c.notes.read.Load()}
	if e.Params.Ok() {
		r.params = append([]byte(nil), e.Params.Of(frame)...)
	}
	kind := belay.KindCall
	switch e.Method {
	case MethodPrompt:
		kind = belay.KindTurn
		r.session, _ = SessionOf(r.params)
	case MethodRequestPermission, MethodCreateElicitation, MethodCloseSession:
		r.session, _ = SessionOf(r.params)
	}
	spec := belay.Spec{Kind: kind, Name: e.Method, Address: e.ID.Raw(), Parent: c.o.Parent, OnCancel: r.onCancel}
	_, early := c.early.Take(r.key)
	early = early && !Handshaking(e.Method)
	spec.Queued = true // until the goroutine that serves it is there: what is stopped before never began
	if r.session != "" {
		spec.Labels = map[string]string{"session": r.session}
	}
	run, err := c.tree.Register(spec)
	if err != nil {
		c.refuseRun(e.ID, err)
		return
	}
	r.run = run
	if err := c.admit(r); err != nil {
		run.Finish(belay.Failed)
		c.refuse(r.id, err)
		return
	}
	if early {
		c.counts.cancels.Add(1)
		r.Cancel(c.byPeer())
	} else if c.dismiss != nil && Dialog(e.Method) {
		if why := c.dismiss(r); why != nil {
			r.Cancel(*why)
		}
	}
	if e.Method == MethodCloseSession && c.o.Role == RoleAgent {
		c.stopSession(r.session) // it is a cancel first of all (ACP-59)
	}
	r.limitTime()
	go r.serve()
}

// byPeer is the cancellation that the other side asked for.
func (c *Conn) byPeer() belay.Cancellation {
	return belay.Cancellation{Cause: belay.CausePeer, Via: "acp", By: c.Peer().Name}
}

// refuseRun answers a request that the tree did not take.
func (c *Conn) refuseRun(id jsonrpc.ID, err error) {
	if cause, ok := errors.AsType[*belay.Cancellation](err); ok {
		c.refuse(id, &Error{Code: CodeCancelled, Message: CancelledText, Data: cancelData(id, belay.RunID{}, cause)})
		return
	}
	c.refuse(id, err)
}

// refuse answers a request that is not served.
func (c *Conn) refuse(id jsonrpc.ID, err error) {
	e := answerOf(err)
	_, _ = c.send(func(dst []byte) []byte { return jsonrpc.AppendError(dst, id, e.Code, e.Message, e.Data) })
}

func (r *Request) limitTime() {
	if r.conn.o.Limit == nil {
		return
	}
	d := r.conn.o.Limit(r.method)
	if d <= 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.limit = time.AfterFunc(d, func() {
		r.Cancel(belay.Cancellation{Cause: belay.CauseDeadline, Via: "acp", Reason: "its time was up"})
	})
}

// serve is the goroutine of a request.
func (r *Request) serve() {
	defer r.conn.leave(r)
	if Dialog(r.method) {
		r.conn.notes.after(r.run.Context(), r.read) // what it is about may be in them
	}
	if !r.run.Start() {
		r.settleEarly()
		return
	}
	r.ctx.of, r.ctx.run = r, r.run.Context()
	result, err := any(nil), error(&Error{Code: CodeInternal, Message: "internal error: the handler of " + r.method + " ended its goroutine"})
	defer func() { // also if it did
		r.finish(result, err)
		r.ctx.finish()
	}()
	result, err = r.call(&r.ctx)
	if r.run.Cancellation() != nil {
		r.awaitChildren()
	}
	r.cleanUp()
}

// settleEarly is the end of a request that was stopped before it began.
func (r *Request) settleEarly() {
	c := r.run.Cancellation()
	r.mark()
	r.answerCancelled(c)
	r.run.Observe(belay.Evidence{Kind: belay.SeenNotStarted, Scope: belay.ScopeHandler})
}

// mark notes that the handler has returned, and stops the clocks.
func (r *Request) mark() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.returned = true
	if r.overdue != nil {
		r.overdue.Stop()
	}
	if r.limit != nil {
		r.limit.Stop()
	}
}

// call calls the handler.
func (r *Request) call(ctx context.Context) (result any, err error) {
	err = r.guard(func() error {
		result, err = r.conn.o.Handler(ctx, r)
		return err
	})
	return result, err
}

// guard calls fn. A panic in it ends the request and nothing else.
func (r *Request) guard(fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			r.conn.o.Log.Error("a handler panicked", "method", r.method, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = &Error{Code: CodeInternal, Message: "internal error: the handler of " + r.method + " panicked"}
		}
	}()
	return fn()
}

// finish settles the request after its handler has returned: who was first, the
// end or the cancel, decides (ACP-23).
func (r *Request) finish(result any, err error) {
	r.mark()
	outcome := belay.Completed
	if err != nil {
		outcome = belay.Failed
		if r.run.Cancellation() == nil && stopped(err) && !isAnswer(err) {
			r.Cancel(causeOf(err)) // cancelled from inside: the same from here on (ACP-22)
		}
	}
	cancelled := r.run.Cancellation()
	if cancelled == nil && !r.run.Finish(outcome) {
		cancelled = r.run.Cancellation()
	}
	if cancelled != nil && Dialog(r.method) && err == nil {
		// A yes that comes after the Stop is none, also where nobody has answered yet: the
		// ctx ends a moment before onCancel is called (ACP-65, A3).
		r.conn.counts.lateResults.Add(1)
		err = cancelled
	}
	sent := r.answer(result, err, cancelled)
	if cancelled != nil && err == nil {
		r.run.Partial(partial(result))
	}
	if !sent && r.isLate() {
		r.conn.counts.lateResults.Add(1)
		r.run.Finish(outcome) // says so on the receipt
	}
	if cancelled != nil {
		r.run.Observe(belay.Evidence{Kind: belay.SeenHandlerReturned, Scope: belay.ScopeHandler})
	}
}

// isLate reports whether what a handler returned would have been an answer, had
// not somebody been quicker.
func (r *Request) isLate() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.lost && !r.inserted && !Dialog(r.method)
}

// isAnswer reports whether a handler has made up its own error answer.
func isAnswer(err error) bool {
	own, ok := err.(*Error) //nolint:errorlint // one that is wrapped came from a call that the handler made
	return ok && own.Code != CodeCancelled
}

// causeOf makes a cancellation of what ended a handler from inside.
func causeOf(err error) belay.Cancellation {
	if known, ok := errors.AsType[*belay.Cancellation](err); ok {
		return *known
	}
	c := belay.Cancellation{Cause: belay.CauseUser, Via: "handler", Reason: belay.CleanReason(err.Error())}
	if errors.Is(err, context.DeadlineExceeded) {
		c.Cause = belay.CauseDeadline
	}
	return c
}

// answer sends the answer, unless there was one. It reports whether it did.
func (r *Request) answer(result any, err error, cancelled *belay.Cancellation) bool {
	var raw []byte
	if err == nil {
		if raw, err = encode(result); err != nil {
			err = fmt.Errorf("the result of %s cannot be sent: %w", r.method, err)
		}
	}
	switch {
	case err == nil:
		return r.answerResult(raw)
	case cancelled != nil && (r.saysCancelled() || !isAnswer(err)):
		// What fails after a cancel fails because of it (ACP-56).
		return r.answerCancelled(cancelled)
	}
	return r.answerError(answerOf(err))
}

// saysCancelled reports whether the request has an answer of its own that says
// that it was stopped, which is no error.
func (r *Request) saysCancelled() bool {
	return Dialog(r.method) || r.method == MethodPrompt && r.conn.Version() < Version2
}

// answerCancelled is the answer of a request that was stopped (ACP-L5): an outcome
// for a dialog (A3, A5), a stop reason for a turn (ACP-55), -32800 for the rest.
func (r *Request) answerCancelled(c *belay.Cancellation) bool {
	switch {
	case Dialog(r.method):
		return r.answerResult(Dismissed(r.method))
	case r.saysCancelled():
		return r.answerResult(cancelledTurn(r.run.ID(), c))
	}
	return r.answerError(&Error{Code: CodeCancelled, Message: CancelledText, Data: cancelData(r.id, r.run.ID(), c)})
}

func (r *Request) answerResult(raw []byte) bool {
	if r.method == MethodInitialize {
		raw = r.conn.greeted(r.params, raw)
	}
	return r.settle(func(dst []byte) []byte { return jsonrpc.AppendResponse(dst, r.id, raw) })
}

func (r *Request) answerError(e *Error) bool {
	return r.settle(func(dst []byte) []byte { return jsonrpc.AppendError(dst, r.id, e.Code, e.Message, e.Data) })
}

// settle sends the one answer. Whoever comes second sends nothing.
func (r *Request) settle(build func([]byte) []byte) bool {
	r.mu.Lock()
	first := !r.answered
	r.answered = true
	turn := r.turn
	r.mu.Unlock()
	if !first {
		return false
	}
	r.conn.settled(r)
	if turn != nil {
		return turn.settle(build)
	}
	_, err := r.conn.send(build)
	if err != nil {
		r.conn.o.Log.Warn("an answer could not be sent", "id", r.id.String(), "method", r.method, "error", err)
	}
	return true
}

// onCancel begins what is due when the request is stopped, by whomever. It runs
// once, maybe in the reader.
func (r *Request) onCancel(run *belay.Run, c *belay.Cancellation) {
	if Dialog(r.method) {
		// Nobody waits for the user any more. What he answers now is dropped.
		r.settle(func(dst []byte) []byte { return AppendDismissed(dst, r.id, r.method) })
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.returned || r.lost || r.answered && r.turn == nil {
		return
	}
	r.overdue = time.AfterFunc(r.conn.o.AnswerAfter, func() { r.answerFor(run.ID(), c) })
}

// answerFor answers for a handler that does not return (ACP-L6).
func (r *Request) answerFor(run belay.RunID, c *belay.Cancellation) {
	if r.method == MethodPrompt && r.conn.Version() < Version2 {
		r.answerResult(cancelledTurn(run, c))
		return
	}
	if r.answerError(&Error{Code: CodeCancelled, Message: CancelledText, Data: cancelData(r.id, run, c)}) {
		return
	}
	r.mu.Lock()
	turn := r.turn
	r.mu.Unlock()
	if turn != nil {
		turn.end(StopCancelled, nil) // of v2: the answer was given long ago
	}
}

// abandon is for a connection that is gone: nothing can be answered.
func (r *Request) abandon(c belay.Cancellation) {
	r.mu.Lock()
	r.answered, r.lost = true, true
	if r.overdue != nil {
		r.overdue.Stop()
	}
	if r.limit != nil {
		r.limit.Stop()
	}
	r.mu.Unlock()
	r.run.Cancel(c)
}

// enter and exit count the calls that are made on behalf of the request.
func (r *Request) enter() {
	r.mu.Lock()
	r.children++
	r.mu.Unlock()
}

func (r *Request) exit() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.children--; r.children == 0 && r.quiet != nil {
		close(r.quiet)
		r.quiet = nil
	}
}

// awaitChildren waits until the calls that were made on behalf of the request are
// settled, so that the answers go children first (ACP-L4).
func (r *Request) awaitChildren() {
	r.mu.Lock()
	if r.children == 0 {
		r.mu.Unlock()
		return
	}
	r.quiet = make(chan struct{})
	quiet := r.quiet
	r.mu.Unlock()
	limit := time.NewTimer(r.conn.o.CancelWait)
	defer limit.Stop()
	select {
	case <-quiet:
	case <-limit.C:
	case <-r.conn.done:
	}
}

// onReturn has fn called after the handler has returned, before the answer is
// sent. It returns false if that is over.
func (r *Request) onReturn(fn func(context.Context)) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.returned {
		return false
	}
	r.cleanup = append(r.cleanup, fn)
	return true
}

func (r *Request) cleanUp() {
	r.mu.Lock()
	todo := r.cleanup
	r.cleanup = nil
	r.mu.Unlock()
	if len(todo) == 0 {
		return
	}
	// After a cancel this goes on, but not for long.
	ctx, cancel := context.WithTimeoutCause(context.Background(), r.conn.o.CancelWait, errCleanUp)
	defer cancel()
	for _, fn := range todo {
		fn(ctx)
	}
}

// greeted makes the answer of an agent to initialize and opens the connection for
// cancels.
func (c *Conn) greeted(params, result []byte) []byte {
	if c.o.Role != RoleAgent {
		return result
	}
	client, own := ReadHello(params), ReadHello(result)
	if c.declares(client.Used) {
		result = declareIn(result, own.Version, RoleAgent)
	}
	c.greet(own.Version, client)
	return result
}

// declares reports whether this end says that it handles cancels (ACP-49).
func (c *Conn) declares(used bool) bool { return !c.o.Deaf && (c.o.Declare || used) }

// declareIn puts the declaration into what a side says in initialize.
func declareIn(value []byte, version int, as Role) []byte {
	name := "capabilities"
	if version < Version2 {
		name = "agentCapabilities"
		if as == RoleClient {
			name = "clientCapabilities"
		}
	}
	at := whole(value)
	if jsonrpc.KindAt(value, at) != jsonrpc.ObjectValue {
		return value
	}
	caps, ok, err := jsonrpc.Member(value, at, name)
	switch {
	case err != nil:
		return value
	case !ok:
		return jsonrpc.AppendInsertMember(nil, value, at, name, DeclareCancel(nil))
	}
	return jsonrpc.AppendSplice(nil, value, jsonrpc.Edit{At: caps, New: DeclareCancel(caps.Of(value))})
}

// cancelData is the data beside -32800: who reads it learns what no cancel of the
// protocol has a place for (ACP-L5, A13).
func cancelData(id jsonrpc.ID, run belay.RunID, c *belay.Cancellation) []byte {
	dst := append([]byte(nil), `{"requestId":`...)
	dst = id.AppendTo(dst)
	dst = appendWhy(append(dst, ','), run, c)
	return append(dst, `,"partial":false}`...)
}

// cancelledTurn is the result of a v1 turn that was stopped.
func cancelledTurn(run belay.RunID, c *belay.Cancellation) []byte {
	dst := append([]byte(nil), `{"stopReason":"cancelled","_meta":{"belay":{`...)
	return append(appendWhy(dst, run, c), "}}}"...)
}

func appendWhy(dst []byte, run belay.RunID, c *belay.Cancellation) []byte {
	dst = append(dst, `"run":`...)
	dst = jsonrpc.AppendString(dst, run.String())
	if c == nil {
		c = &belay.Cancellation{}
	}
	dst = append(dst, `,"reason":`...)
	dst = jsonrpc.AppendString(dst, c.Reason)
	dst = append(dst, `,"cause":`...)
	return jsonrpc.AppendString(dst, string(c.Cause))
}

// partial is what a receipt keeps of a result that was made after the Stop.
func partial(result any) string {
	raw, err := encode(result)
	if err != nil || string(raw) == "{}" {
		return ""
	}
	return string(raw)
}

// encode is the JSON text of params or of a result; nil stays nil.
func encode(v any) ([]byte, error) {
	switch v := v.(type) {
	case nil:
		return nil, nil
	case json.RawMessage:
		return checked(v)
	case []byte:
		return checked(v)
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadRequest, err)
	}
	return raw, nil
}

func checked(raw []byte) ([]byte, error) {
	if raw == nil {
		return nil, nil
	}
	if err := jsonrpc.CheckValue(raw); err != nil {
		return nil, fmt.Errorf("%w: %w: %.80q", ErrBadRequest, err, raw)
	}
	return raw, nil
}
