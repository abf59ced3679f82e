package httpclient

import (
	"context"
	"errors"
	"fmt"

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
	return c.tell(ctx, k, reason)
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
