package httpclient

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
)

// Bounds of the notifications and responses that wait.
const (
	maxNotices     = 65_536
	maxNoticeBytes = 32 << 20
)

// notice is a notification or response that waits for its turn.
type notice struct {
	frame  []byte
	method string
	extra  http.Header
	ready  chan struct{} // to be closed when requests may follow; nil: nobody waits
}

// sendNotice queues a notification or response. They go one after the other, so
// that they keep their order.
func (c *Conn) sendNotice(m *mcp.Message) error {
	n := notice{frame: m.Frame, method: m.Method}
	var err error
	if n.extra, err = modernHeaders(m); err != nil {
		return err
	}
	return c.enqueue(n)
}

// enqueue starts the goroutine that sends what is queued, unless it runs.
func (c *Conn) enqueue(n notice) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.ended != nil:
		return c.ended
	case len(c.notices) >= maxNotices || c.queued+len(n.frame) > maxNoticeBytes && len(c.notices) > 0:
		return fmt.Errorf("%w: %d notifications and responses wait for the server", jsonrpc.ErrQueueFull, len(c.notices))
	}
	if n.method == mcp.NoticeInitialized {
		// Servers refuse requests that overtake it.
		n.ready = make(chan struct{})
		c.session.ready = n.ready
	}
	c.notices = append(c.notices, n)
	c.queued += len(n.frame)
	if !c.pumping {
		c.pumping = true
		c.wg.Add(1)
		go c.pump()
	}
	return nil
}

// pump sends what is queued.
func (c *Conn) pump() {
	defer c.wg.Done()
	for {
		c.mu.Lock()
		if len(c.notices) == 0 {
			c.notices, c.pumping = nil, false
			c.mu.Unlock()
			return
		}
		n := c.notices[0]
		c.notices[0] = notice{}
		c.notices = c.notices[1:]
		c.queued -= len(n.frame)
		c.mu.Unlock()
		c.deliverNotice(n)
	}
}

func (c *Conn) deliverNotice(n notice) {
	ctx, cancel := context.WithTimeoutCause(c.ctx, c.cfg.AnswerWait, fmt.Errorf("no answer within %v", c.cfg.AnswerWait))
	defer cancel()
	if _, err := c.post(ctx, n.frame, n.extra); err != nil && c.ctx.Err() == nil {
		c.cfg.Log.Warn("a message did not reach the server", "method", n.method, "error", err)
	}
	if n.ready != nil {
		c.listen(n.ready)
	}
}

// post sends a message that has no answer of its own. status is 0 if there was
// no HTTP answer.
func (c *Conn) post(ctx context.Context, frame []byte, extra http.Header) (status int, err error) {
	c.mu.Lock()
	kind, header := c.session.kind, c.session.header
	if len(extra) > 0 { // modern: no session
		header = c.session.base
	}
	c.mu.Unlock()
	to := c.url
	if kind == SSE {
		if to, err = c.sharedEndpoint(ctx); err != nil {
			return 0, err
		}
	}
	if len(extra) > 0 {
		header = with(header, extra)
	}
	resp, err := c.cfg.Client.RoundTrip((&http.Request{
		Method: http.MethodPost, URL: to, Host: to.Host, Header: header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: newPlainBody(frame), GetBody: plainBody(frame), ContentLength: int64(len(frame)),
	}).WithContext(ctx))
	if err != nil {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		return 0, fmt.Errorf("%w: %w", ErrUnreachable, cut(err))
	}
	if resp.StatusCode/100 == 2 {
		drop(resp)
		return resp.StatusCode, nil
	}
	err = statusError(resp)
	if kind != SSE && c.expired(header, resp.StatusCode) {
		c.finish(fmt.Errorf("%w: %w", ErrSessionOver, err))
	}
	return resp.StatusCode, err
}

// plainBody makes the body of a message that nothing has to watch.
func plainBody(frame []byte) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) { return newPlainBody(frame), nil }
}

func newPlainBody(frame []byte) io.ReadCloser { return io.NopCloser(bytes.NewReader(frame)) }
