package httpclient

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
)

// Conn is one way to one server: a legacy session, or modern requests, or both.
// All methods may be called concurrently.
type Conn struct {
	cfg Config
	url *url.URL
	to  Receiver

	// ownConn: a request has its connection to itself while it is written, as in
	// HTTP/1, so that it can be closed for it.
	ownConn   bool
	keepAlive atomic.Int64 // how long the server keeps an idle connection, in ns; 0: it does not say

	ctx     context.Context // ends when the connection ends, with the reason
	cancel  context.CancelCauseFunc
	wg      sync.WaitGroup // of all goroutines; added to under mu, while there is no end
	readers sync.Pool      // of *jsonrpc.EventReader

	mu       sync.Mutex
	calls    map[string]*call // in flight by id, cancelled ones included until they are over
	session  session
	shared   *sharedStream // HTTP+SSE; nil until it is asked for
	notices  []notice      // queued
	queued   int           // bytes of notices
	pumping  bool          // a goroutine works at notices
	ended    error         // set once nothing is accepted any more
	isClosed bool          // Close was called
}

// Open checks the config and returns a connection that has not used the network
// yet. The connection must be closed. Errors match [ErrConfig].
func Open(cfg Config, r Receiver) (*Conn, error) {
	cfg, u, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Conn{cfg: cfg, url: u, to: r, calls: make(map[string]*call)}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	c.readers.New = func() any { return jsonrpc.NewEventReader(nil, jsonrpc.ReaderOptions{Max: cfg.MaxMessage}) }
	c.session.kind = cfg.Transport
	if tr, ok := cfg.Client.(*http.Transport); ok {
		c.ownConn = u.Scheme == "http" && (tr.Protocols == nil || !tr.Protocols.UnencryptedHTTP2())
	}
	c.session.reset(c.cfg.Header)
	return c, nil
}

// Send sends a request, notification or response: a copy of frame with edits
// applied, see [jsonrpc.AppendSplice]. params are headers that belong to it
// (Mcp-Param-*, MCP-61; Traceparent, Tracestate). Send never waits for the network.
//
// A request of this id must not be in flight. Errors match those of
// [jsonrpc.Parse], [jsonrpc.ErrDuplicateID], [jsonrpc.ErrTooMany],
// [jsonrpc.ErrQueueFull], [jsonrpc.ErrTooLong], or are the reason why the
// connection has ended; then nothing was or will be sent, and nothing is
// reported to the Receiver.
func (c *Conn) Send(frame []byte, params []mcp.HeaderParam, edits ...jsonrpc.Edit) error {
	size := len(frame)
	for _, e := range edits {
		size += len(e.New)
	}
	own := jsonrpc.AppendSplice(make([]byte, 0, size), frame, edits...)
	var m mcp.Message
	if err := m.Read(own); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	if m.Kind != jsonrpc.Request {
		return c.sendNotice(&m)
	}
	return c.sendRequest(&m, params)
}

func (c *Conn) sendRequest(m *mcp.Message, params []mcp.HeaderParam) error {
	k := &call{c: c, id: m.ID, key: m.ID.Key(), method: m.Method, frame: m.Frame, modern: m.Era() == mcp.Modern}
	if err := k.readHeaders(m, params); err != nil {
		return err
	}
	k.ctx, k.cancel = context.WithCancelCause(c.ctx)
	c.mu.Lock()
	err := c.addLocked(k)
	if err == nil {
		c.wg.Add(1)
	}
	c.mu.Unlock()
	if err != nil {
		k.cancel(err)
		return err
	}
	go k.run()
	return nil
}

// addLocked puts a call into the table.
func (c *Conn) addLocked(k *call) error {
	if c.ended != nil {
		return c.ended
	}
	if _, ok := c.calls[k.key]; ok {
		return fmt.Errorf("%w: %s", jsonrpc.ErrDuplicateID, k.id)
	}
	if len(c.calls) >= c.cfg.MaxInFlight {
		return fmt.Errorf("%w: %d, which is the bound", jsonrpc.ErrTooMany, len(c.calls))
	}
	c.calls[k.key] = k
	if !k.modern {
		k.gate = c.session.ready
	}
	return nil
}

// take removes a call from the table. Of several callers one gets true: that one
// reports how the call ended.
func (c *Conn) take(k *call) (settled, stopped bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls[k.key] != k {
		return false, k.stopped
	}
	delete(c.calls, k.key)
	return true, k.stopped
}

// lose reports that a call gets no answer, unless it is over or nobody waits.
func (c *Conn) lose(k *call, err error) {
	if settled, stopped := c.take(k); settled && !stopped {
		c.to.Lost(k.id, err)
	}
}

// Forget ends a request that nobody waits for: its POST is closed, and nothing
// more is reported of it, save what is being reported just now. An unknown id is
// ignored.
func (c *Conn) Forget(id jsonrpc.ID) {
	c.mu.Lock()
	k := c.calls[id.Key()]
	if k != nil {
		delete(c.calls, k.key)
		k.stopped = true
	}
	c.mu.Unlock()
	if k != nil {
		k.withdraw()
		k.cancel(errForgotten)
	}
}

// InFlight is the number of requests that have had no answer yet.
func (c *Conn) InFlight() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.calls)
}

// finish ends the connection for a reason that came from the server.
func (c *Conn) finish(err error) {
	c.mu.Lock()
	if c.ended != nil {
		c.mu.Unlock()
		return
	}
	c.ended = err
	lost := c.takeAllLocked()
	c.mu.Unlock()
	c.cancel(err)
	for _, k := range lost {
		c.to.Lost(k.id, err)
	}
	c.to.Over(err)
}

// takeAllLocked empties the table and returns the calls somebody waits for.
func (c *Conn) takeAllLocked() []*call {
	lost := make([]*call, 0, len(c.calls))
	for _, k := range c.calls {
		if !k.stopped {
			lost = append(lost, k)
		}
	}
	clear(c.calls)
	c.notices, c.queued = nil, 0
	return lost
}

// closeWait bounds the DELETE of a session where ctx does not.
const closeWait = 5 * time.Second

// Close tells the server that the session is over (DELETE, MCP-38), ends what is
// in flight, each request with a Lost that matches [ErrClosed], and waits for
// all goroutines. When ctx ends, or after 5 s, the server is no longer waited
// for. It must not be called from the Receiver, nor with a lock that the
// Receiver takes. It may be called again.
func (c *Conn) Close(ctx context.Context) error { return c.closeWithin(ctx, closeWait) }

func (c *Conn) closeWithin(ctx context.Context, limit time.Duration) error {
	c.mu.Lock()
	first := !c.isClosed
	c.isClosed = true
	over := c.ended != nil
	if !over {
		c.ended = ErrClosed
	}
	c.mu.Unlock()
	var err error
	if first && !over {
		err = c.deleteSession(ctx, limit)
		c.mu.Lock()
		lost := c.takeAllLocked()
		c.mu.Unlock()
		c.cancel(ErrClosed)
		for _, k := range lost {
			c.to.Lost(k.id, ErrClosed)
		}
	}
	c.cancel(ErrClosed)
	c.wg.Wait()
	return err
}

func (c *Conn) deleteSession(ctx context.Context, limit time.Duration) error {
	header := c.sessionHeader()
	if header == nil {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer to DELETE within %v", limit))
	defer cancel()
	resp, err := c.cfg.Client.RoundTrip((&http.Request{
		Method: http.MethodDelete, URL: c.url, Host: c.url.Host, Header: header, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx))
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("end the session: %w", cut(err))
	}
	drop(resp)
	return nil // 405: the server does not let clients end sessions; 404: it is over
}
