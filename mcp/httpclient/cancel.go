package httpclient

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
)

// Why a POST of ours ends before its answer.
var (
	errCancelled = errors.New("the request was cancelled")
	errForgotten = errors.New("nobody waits for the answer")
)

// Told says how a server was told to stop (MCP-G29).
type Told struct {
	// NotStarted: the request was withdrawn before any of it went to the server,
	// which has nothing to stop (MCP-G16).
	NotStarted bool
	// Means is by which means, in words: "notification, 202", "POST closed".
	Means string
}

// Cancel tells the server to stop a request, in the way of its era and session
// (MCP-G20):
//
//   - modern, and requests that open a session: the POST is closed;
//   - legacy with a session, or HTTP+SSE: a notification, at once and past the
//     queue of others. The answer may still come and is reported as any other;
//     [Conn.Forget] closes the POST;
//   - legacy without a session: a notification, and the POST is closed.
//
// It returns when the server was told: the notification was accepted, or the
// POST closed. It waits for the request to be written first (MCP-G19), and for
// nothing else. After it no Lost is reported for the request.
//
// Errors: [ErrUnknownCall]; ctx's cause; or that the notification could not be
// delivered, such as a [*StatusError].
func (c *Conn) Cancel(ctx context.Context, id jsonrpc.ID, reason string) (Told, error) {
	c.mu.Lock()
	k := c.calls[id.Key()]
	if k == nil {
		c.mu.Unlock()
		return Told{}, fmt.Errorf("%w: %s", ErrUnknownCall, id)
	}
	k.stopped = true
	stateless := c.session.kind != SSE && c.session.id == ""
	byClosing := k.modern && c.session.kind != SSE || mcp.Handshaking(k.method)
	withdrawn := k.withdraw()
	if withdrawn || byClosing {
		delete(c.calls, k.key)
	}
	c.mu.Unlock()

	switch {
	case withdrawn:
		k.cancel(errCancelled)
		return Told{NotStarted: true, Means: "withdrawn before it was sent"}, nil
	case byClosing:
		return k.close(ctx)
	}
	if err := k.awaitWritten(ctx); err != nil {
		return Told{}, err
	}
	if stateless {
		return c.tellBoth(ctx, k, reason)
	}
	told, err := c.tell(ctx, k, reason)
	if err == nil {
		c.tellAgain(k, reason)
	}
	return told, err
}

// A notification travels on another connection than its request, and a busy
// server may read it first: it then knows no such request, ignores it (MCP-20),
// and runs the call in full. A notification that came so early is therefore
// repeated, which servers must bear (MCP-21).
var (
	early      = time.Second // so long after the request was written
	repetition = [...]time.Duration{100 * time.Millisecond, time.Second}
)

// tellAgain repeats the notification while the server has shown no sign of
// having read the request.
func (c *Conn) tellAgain(k *call, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended != nil || k.accepted || k.over || time.Since(k.wroteAt) > early {
		return
	}
	c.wg.Go(func() {
		for _, d := range repetition {
			if !wait(k.ctx, d) || !k.waits() || k.isAccepted() {
				return
			}
			if _, err := c.tell(k.ctx, k, reason); err != nil {
				return
			}
		}
	})
}

// tell sends the notification.
func (c *Conn) tell(ctx context.Context, k *call, reason string) (Told, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.ctx, func() { cancel(context.Cause(c.ctx)) })()
	status, err := c.post(ctx, mcp.AppendCancelled(nil, k.id, reason, mcp.Legacy), nil)
	if status == 0 {
		return Told{}, fmt.Errorf("tell the server to stop: %w", err)
	}
	return Told{Means: fmt.Sprintf("notification, %d", status)}, err
}

// tellBoth is for servers without sessions: some heed the notification, some the
// closed connection, some neither (MCP-G20).
func (c *Conn) tellBoth(ctx context.Context, k *call, reason string) (Told, error) {
	c.take(k)
	k.cancel(errCancelled)
	told, err := c.tell(ctx, k, reason)
	switch {
	case err == nil:
		told.Means += "; POST closed"
	case told.Means == "":
		told.Means = "POST closed; the notification could not be delivered"
	default:
		told.Means = "POST closed; " + told.Means
	}
	if _, closeErr := k.close(ctx); closeErr != nil {
		return told, closeErr
	}
	return told, nil
}
