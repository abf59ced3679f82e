package httpclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/belayhq/belay/jsonrpc"
)

// sharedStream is the one stream of HTTP+SSE, on which the server names its
// endpoint and answers everything (MCP-26). to and err are read after ready.
type sharedStream struct {
	ready chan struct{} // closed when the endpoint is known, or never will be
	to    *url.URL
	err   error
}

// sharedEndpoint is where an HTTP+SSE server takes messages. The stream is opened
// by whoever needs it first.
func (c *Conn) sharedEndpoint(ctx context.Context) (*url.URL, error) {
	c.mu.Lock()
	s := c.shared
	if s == nil {
		if c.ended != nil {
			c.mu.Unlock()
			return nil, c.ended
		}
		s = &sharedStream{ready: make(chan struct{})}
		c.shared = s
		c.wg.Add(1)
		go c.readShared(s)
	}
	c.mu.Unlock()
	select {
	case <-s.ready:
		return s.to, s.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// routeShared sends a request to an HTTP+SSE server. Without an error its answer
// comes on the stream.
func (c *Conn) routeShared(k *call) error {
	to, err := c.sharedEndpoint(k.ctx)
	if err != nil {
		return err
	}
	resp, err := k.post(c.callHeader(k), to)
	if err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		return statusError(resp)
	}
	drop(resp)
	return nil
}

// readShared is the goroutine of the stream. Its end is the end of the session
// (MCP-25).
func (c *Conn) readShared(s *sharedStream) {
	defer c.wg.Done()
	resp, _, err := c.get(c.ctx, c.url, "")
	if err != nil {
		c.failShared(s, err)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	r := jsonrpc.NewEventReader(resp.Body, jsonrpc.ReaderOptions{Max: c.cfg.MaxMessage})
	defer r.Release()
	known := false
	rd := reading{c: c, r: r, other: func(e jsonrpc.Event) error {
		if e.Name != "endpoint" || known {
			return nil
		}
		to, err := c.resolve(e.Data)
		if err != nil {
			return err
		}
		c.mu.Lock()
		c.session.kind = SSE
		c.mu.Unlock()
		known, s.to = true, to
		close(s.ready)
		return nil
	}}
	err = rd.read(http.StatusOK)
	switch {
	case !known && errors.Is(err, ErrNotMCP):
		c.failShared(s, err)
	case !known:
		c.failShared(s, fmt.Errorf("%w: the stream ended before it named an endpoint: %w", ErrNotMCP, cut(err)))
	case c.ctx.Err() == nil:
		c.finish(fmt.Errorf("%w: the server's stream ended: %w", ErrClosedEarly, cut(err)))
	}
}

// failShared lets the next request try again.
func (c *Conn) failShared(s *sharedStream, err error) {
	s.to, s.err = nil, err
	c.mu.Lock()
	c.shared = nil
	c.mu.Unlock()
	close(s.ready)
}

var errOtherOrigin = errors.New("the endpoint lies on another server")

// resolve reads the endpoint that the server names. It must be on the same
// server, which alone is to see what the configured headers say.
func (c *Conn) resolve(data []byte) (*url.URL, error) {
	u, err := c.url.Parse(string(data))
	if err != nil {
		return nil, fmt.Errorf("%w: endpoint %s: %w", ErrNotMCP, quote(data), err)
	}
	if u.Scheme != c.url.Scheme || u.Host != c.url.Host || u.User != nil {
		return nil, fmt.Errorf("%w: %w: %s", ErrNotMCP, errOtherOrigin, quote(data))
	}
	return u, nil
}
