package acp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
)

// Mode is what a call does when its context ends before the answer (ACP-L1).
type Mode uint8

// The modes.
const (
	TellAndWait Mode = iota // tell the peer, and wait for its answer, at most CancelWait
	Tell                    // tell the peer and return
	Abandon                 // return; the peer goes on
)

// Call sends a request and waits for the answer, which it decodes into result: nil
// for none, a *json.RawMessage for the raw text. nil params are {}. When ctx ends before, the peer is
// told, in the form of ACP-47, and Call waits for the real answer, at most
// Options.CancelWait. A result that comes is returned without an error: it may be
// partial. Otherwise the error is an [*Error] of the peer, a [*CancelError], or
// wraps [ErrLost], [ErrClosed], [ErrMalformed], [ErrBadRequest] or
// [jsonrpc.ErrQueueFull].
//
// A ctx that a [Handler] got, of this connection or of another one, makes the call
// part of that request: it is stopped with it, and answered before it (ACP-L4).
//
// initialize is never cancelled: when its ctx ends, the connection is (A6).
func (c *Conn) Call(ctx context.Context, method string, params, result any) error {
	return c.CallMode(ctx, TellAndWait, method, params, result)
}

// CallMode is Call with a choice of what the end of ctx does.
func (c *Conn) CallMode(ctx context.Context, mode Mode, method string, params, result any) error {
	raw, err := encode(params)
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	if raw == nil {
		raw = []byte("{}") // every method of the protocol has params
	}
	got, err := c.do(ctx, &call{conn: c, method: method, mode: mode}, raw)
	if err != nil {
		return err
	}
	return decode(method, got, result)
}

func decode(method string, raw json.RawMessage, into any) error {
	switch into := into.(type) {
	case nil:
		return nil
	case *json.RawMessage:
		*into = raw
		return nil
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("%s: %w: %w", method, ErrMalformed, err)
	}
	return nil
}

// call is a request of our own while it is open.
type call struct {
	conn     *Conn
	id       jsonrpc.ID
	method   string
	mode     Mode
	seq      uint64      // in the writer; set before anybody waits
	answered chan answer // takes one
	noted    uint64      // answer.read of the answer

	// tell tells the peer in another way than by a cancel of the request. It reports
	// whether it could.
	tell func(*call) bool
	// around sends the request, so that somebody knows what goes before it and what
	// after it. Nil: nobody does.
	around func(send func() (uint64, error)) (uint64, error)
}

type answer struct {
	result json.RawMessage
	err    error
	read   uint64 // how many notifications were read before it
}

// do makes a call.
func (c *Conn) do(ctx context.Context, cl *call, params []byte) (json.RawMessage, error) {
	if ctx.Err() != nil {
		return nil, cl.stopped(ctx, belay.Confirmed) // nothing was sent
	}
	if parent := requestOf(ctx); parent != nil {
		parent.enter()
		defer parent.exit()
	} else if c.isClosing() {
		return nil, fmt.Errorf("%s: %w", cl.method, ErrClosed)
	}
	if cl.method == MethodInitialize && c.declares(false) && c.o.Role == RoleClient {
		params = declareIn(params, ReadHello(params).Version, RoleClient)
	}
	cl.answered = make(chan answer, 1)
	c.minted.Add(1) // before the id is there: see issued
	cl.id = c.ids.Next()
	if err := c.calls.Add(cl.id, cl); err != nil {
		return nil, fmt.Errorf("%s: %w", cl.method, err)
	}
	seq, err := cl.send(params)
	if err == nil && c.isLost() {
		err = c.why() // it may have ended after what was open was told
	}
	if err != nil {
		if _, mine := c.calls.Take(cl.id); mine {
			return nil, fmt.Errorf("%s: %w", cl.method, err)
		}
	}
	cl.seq = seq
	select {
	case a := <-cl.answered:
		return cl.take(ctx, a)
	case <-ctx.Done():
		return cl.stop(ctx)
	}
}

func (cl *call) send(params []byte) (uint64, error) {
	if cl.around != nil {
		return cl.around(func() (uint64, error) { return cl.sendNow(params) })
	}
	return cl.sendNow(params)
}

func (cl *call) sendNow(params []byte) (uint64, error) {
	return cl.conn.send(func(dst []byte) []byte { return jsonrpc.AppendRequest(dst, cl.id, cl.method, params) })
}

func (c *Conn) isClosing() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closing
}

func (c *Conn) isLost() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err != nil
}

// take takes an answer that came while the call's context lived.
func (cl *call) take(ctx context.Context, a answer) (json.RawMessage, error) {
	cl.conn.notes.after(ctx, a.read)
	return cl.settled(a)
}

func (cl *call) settled(a answer) (json.RawMessage, error) {
	cl.noted = a.read
	switch err := a.err.(type) { //nolint:errorlint // an answer's own error, as response made it
	case nil:
		return a.result, nil
	case *Error:
		return nil, fmt.Errorf("%s: %w", cl.method, err)
	}
	return nil, a.err
}

// stop is the end of a call whose context has ended.
func (cl *call) stop(ctx context.Context) (json.RawMessage, error) {
	c := cl.conn
	if Handshaking(cl.method) {
		c.fail(fmt.Errorf("%w: %s was given up: %w", ErrClosed, cl.method, context.Cause(ctx)))
		c.calls.Take(cl.id)
		return nil, cl.stopped(ctx, belay.Unreachable)
	}
	if cl.mode == Abandon {
		return cl.giveUp(ctx, belay.Unreachable)
	}
	if c.w.Withdraw(cl.seq) { // the peer never sees it
		c.calls.Take(cl.id)
		return nil, cl.stopped(ctx, belay.Confirmed)
	}
	verdict := belay.Unreachable // ACP-48
	if cl.tellPeer() {
		verdict = belay.Signalled
	}
	if cl.mode == Tell {
		return cl.giveUp(ctx, verdict)
	}
	limit := time.NewTimer(c.o.CancelWait)
	defer limit.Stop()
	select {
	case a := <-cl.answered:
		return cl.takeLate(ctx, a)
	case <-limit.C:
		return cl.giveUp(ctx, verdict)
	}
}

func (cl *call) tellPeer() bool {
	if cl.tell != nil {
		return cl.tell(cl)
	}
	c := cl.conn
	form := c.forms.Send()
	if form == FormNone {
		return false
	}
	// Ahead of what is queued, but never ahead of its own request.
	_, err := c.w.SendUrgent(cl.seq, func(dst []byte) []byte { return AppendCancel(dst, form, cl.id) })
	return err == nil
}

// takeLate takes the answer of a call that was cancelled.
func (cl *call) takeLate(ctx context.Context, a answer) (json.RawMessage, error) {
	cl.conn.notes.after(ctx, a.read)
	if peer, ok := errors.AsType[*Error](a.err); ok && peer.Code == CodeCancelled {
		return nil, cl.stopped(ctx, belay.Acknowledged)
	}
	return cl.settled(a)
}

// giveUp leaves the answer to nobody: when it comes, it is dropped.
func (cl *call) giveUp(ctx context.Context, verdict belay.Verdict) (json.RawMessage, error) {
	c := cl.conn
	c.muted.Put(cl.id.Key(), struct{}{}) // first: an answer finds one of the two
	if _, mine := c.calls.Take(cl.id); mine {
		return nil, cl.stopped(ctx, verdict)
	}
	c.muted.Take(cl.id.Key())
	return cl.takeLate(ctx, <-cl.answered) // it came at this very moment
}

func (cl *call) stopped(ctx context.Context, verdict belay.Verdict) error {
	return &CancelError{Method: cl.method, Cause: context.Cause(ctx), Verdict: verdict}
}
