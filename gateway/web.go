package gateway

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
	"github.com/belayhq/belay/mcp/httpclient"
)

// web is the wire to a server that is reached by HTTP.
type web struct {
	s    *Session
	conn *httpclient.Conn
	over chan struct{} // closed when the conversation is to end
	once sync.Once
}

// dial begins a conversation with a server that is reached by HTTP. Nothing is
// sent before the caller sends something.
func (u *upstream) dial() error {
	s := u.s
	cfg := &s.cfg
	conn, err := httpclient.Open(httpclient.Config{
		URL: cfg.URL, Header: cfg.Header, Transport: cfg.Transport, Client: cfg.RoundTrip,
		MaxMessage: cfg.MaxLine, Log: s.log,
	}, (*webServer)(u))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	w := &web{s: s, conn: conn, over: make(chan struct{})}
	u.wire = w
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.goLocked(func() { u.converse(w) }) {
		conn.Close(s.life)
		return belay.ErrClosed
	}
	s.all = append(s.all, u)
	return nil
}

// converse lasts as long as the conversation: until the server ended it, or
// the session hangs up.
func (u *upstream) converse(w *web) {
	defer close(u.gone)
	<-w.over
	ctx, end := context.WithTimeoutCause(context.Background(), closeLimit, errStepOver)
	defer end()
	if err := w.conn.Close(ctx); err != nil {
		u.s.log.Debug("the conversation was cut", "error", err)
	}
	u.ended()
}

func (w *web) request(c *call, params []mcp.HeaderParam, frame []byte, edits ...jsonrpc.Edit) error {
	return w.conn.Send(frame, c.spanHeaders(params), edits...)
}

func (w *web) send(frame []byte, edits ...jsonrpc.Edit) error {
	return w.conn.Send(frame, nil, edits...)
}

func (w *web) urge(frame []byte) (func(context.Context) error, error) {
	return nil, w.conn.Send(frame, nil)
}

// withdraw cannot tell yet: see tell.
func (w *web) withdraw(*call) bool { return false }

func (w *web) tell(ctx context.Context, c *call, reason string) (*belay.Evidence, error) {
	told, err := w.conn.Cancel(ctx, c.upID, reason)
	switch {
	case told.NotStarted:
		return &belay.Evidence{Kind: belay.SeenNotStarted, Scope: belay.ScopeHandler, Detail: "its request was taken back before a byte of it was written"}, nil
	case errors.Is(err, httpclient.ErrUnknownCall):
		return nil, nil // its answer came at the same moment, which says more
	case err != nil && ctx.Err() == nil:
		return nil, fmt.Errorf("%w: %w", belay.ErrUnreachable, err)
	}
	w.s.log.Debug("the server was told", "run", c.run.ID(), "means", told.Means)
	// Some servers never end the stream of a cancelled request (MCP-G20).
	time.AfterFunc(c.policy.Ladder.WithDefaults().Grace, func() { w.forget(c) })
	return nil, nil
}

func (w *web) forget(c *call) { w.conn.Forget(c.upID) }

func (w *web) hangUp() { w.once.Do(func() { close(w.over) }) }

// webServer is what the server says, on many streams at once.
type webServer upstream

// Message implements [httpclient.Receiver].
func (r *webServer) Message(m *mcp.Message, about jsonrpc.ID, status int) {
	u := (*upstream)(r)
	u.s.rest.touch()
	if m.Kind == jsonrpc.Response && m.ID.Key() != about.Key() {
		m = named(m, about)
	}
	u.take(m, about, status)
}

// named is an answer whose sender could not say to what, with the id.
func named(m *mcp.Message, id jsonrpc.ID) *mcp.Message {
	raw := []byte(id.Raw())
	edit := jsonrpc.Edit{At: m.IDAt, New: raw}
	if !m.IDAt.Ok() {
		edit = jsonrpc.InsertMember(m.Frame, m.Object, "id", raw)
	}
	again := &mcp.Message{}
	if err := again.Read(jsonrpc.AppendSplice(nil, m.Frame, edit)); err != nil {
		return m
	}
	return again
}

// Lost implements [httpclient.Receiver]: the call fails at once (MCP-G28), with
// what is known of why.
func (r *webServer) Lost(id jsonrpc.ID, err error) {
	u := (*upstream)(r)
	frame := jsonrpc.AppendError(nil, id, mcp.CodeInternal, fmt.Sprintf("server %q: %v", u.s.cfg.Name, err), nil)
	s := u.s
	s.mu.Lock()
	c := u.calls[id.Key()]
	switch {
	case c == nil: // of a request of ours, or of a call that is over
		answer, ok := u.replay[id.Key()]
		delete(u.replay, id.Key())
		u.taskCancelLostLocked(id.Key(), err)
		s.mu.Unlock()
		if ok {
			answer <- frame // capacity 1, one answer
		}
	case c.work != nil: // its request was answered before
		s.mu.Unlock()
	case c.stopped: // the end of the stream proves nothing (MCP-G31)
		u.removeLocked(c)
		s.mu.Unlock()
	default:
		u.removeLocked(c)
		if c.era == mcp.Modern && knowsNoModern(err) {
			c.failWithLocked(mcp.CodeVersionUnknown, fmt.Sprintf("server %q does not know %s: %v", s.cfg.Name, mcp.Revision26, err), legacyData)
		} else {
			c.failLocked(mcp.CodeInternal, fmt.Sprintf("server %q: %v", s.cfg.Name, err))
		}
		s.mu.Unlock()
	}
}

// Over implements [httpclient.Receiver]: the conversation goes on with a fresh
// one, into which the session is put as the caller left it.
func (r *webServer) Over(err error) {
	u := (*upstream)(r)
	u.s.log.Warn("the server ended the conversation", "error", err)
	u.wire.hangUp()
}
