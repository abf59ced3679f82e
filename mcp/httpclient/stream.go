package httpclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/belayhq/belay/jsonrpc"
)

// How streams are taken up again.
const (
	resumeLeast = 50 * time.Millisecond  // whatever the server names: it must not make us ask without a pause
	resumeFirst = 500 * time.Millisecond // the first wait if the server names none
	resumeLast  = 30 * time.Second       // waits double up to this
	maxResumes  = 8                      // in a row without one new event, for a request's stream
)

// openWait is how long the first requests of a session wait for its own stream.
// What a server says on that stream while nobody reads it is lost with most
// servers, and such a message can be the question that a call waits for.
const openWait = 2 * time.Second

// stream reads a request's answer that is a stream, until the response. A legacy
// stream that breaks off behind an event id is resumed there (MCP-33); any other
// is lost (MCP-75).
func (k *call) stream(resp *http.Response) error {
	r, _ := k.c.readers.Get().(*jsonrpc.EventReader)
	defer func() { r.Release(); k.c.readers.Put(r) }()
	r.Reset(resp.Body, "")
	s := reading{c: k.c, k: k, r: r}
	for vain := 0; ; vain++ {
		err := s.read(resp.StatusCode)
		_ = resp.Body.Close()
		if !k.waits() {
			return nil
		}
		if k.modern || r.LastID() == "" || k.ctx.Err() != nil || k.isStopped() {
			return k.early(err)
		}
		if s.heard {
			vain = 0
		}
		for {
			if vain >= maxResumes {
				return fmt.Errorf("%w: its stream was resumed %d times in vain", k.early(err), vain)
			}
			if !wait(k.ctx, s.backOff(vain)) {
				return context.Cause(k.ctx)
			}
			resumed, again, getErr := k.c.get(k.ctx, k.c.url, r.LastID())
			if getErr == nil {
				resp = resumed
				r.Reset(resp.Body, r.LastID())
				break
			}
			if !again {
				return fmt.Errorf("%w; its stream cannot be resumed: %w", k.early(err), getErr)
			}
			vain++
		}
	}
}

func (k *call) isStopped() bool {
	k.c.mu.Lock()
	defer k.c.mu.Unlock()
	return k.stopped
}

// early is the error of a stream that ended too early.
func (k *call) early(err error) error {
	if k.ctx.Err() != nil {
		return context.Cause(k.ctx)
	}
	if errors.Is(err, io.EOF) {
		return ErrClosedEarly
	}
	return fmt.Errorf("%w: %w", ErrClosedEarly, cut(err))
}

// reading reads one stream of events.
type reading struct {
	c     *Conn
	k     *call // whose stream it is; nil: the session's
	r     *jsonrpc.EventReader
	retry time.Duration             // what the server asked for last
	heard bool                      // this stream has brought something
	other func(jsonrpc.Event) error // takes events that are no messages; nil: nobody does
}

// read reads the stream to its end and reports what it says.
func (s *reading) read(status int) error {
	s.heard = false
	var linger *time.Timer
	defer func() {
		if linger != nil {
			linger.Stop()
		}
	}()
	for {
		e, err := s.r.Next()
		var tooLong *jsonrpc.TooLongError
		switch {
		case errors.As(err, &tooLong):
			s.c.tooLong(tooLong, s.k)
		case err != nil:
			return err
		}
		s.heard = true
		if e.Retry > 0 {
			s.retry = e.Retry
		}
		if err == nil && e.Name != jsonrpc.EventMessage {
			if s.other == nil {
				continue
			}
			if err := s.other(e); err != nil {
				return err
			}
		} else if len(e.Data) > 0 {
			s.c.deliver(e.Data, s.k, status)
		}
		if s.k != nil && linger == nil && !s.k.waits() {
			linger = time.AfterFunc(lingerWait, func() { s.k.cancel(errForgotten) })
		}
	}
}

// backOff is how long to wait before a stream is taken up again.
func (s *reading) backOff(vain int) time.Duration {
	d := s.retry
	if d == 0 {
		d = resumeFirst
	}
	return max(resumeLeast, min(d<<min(vain, 10), max(resumeLast, s.retry)))
}

func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

var errNoEvents = errors.New("no event stream")

// get opens a stream with GET. again says that it may work later. A 404 for the
// session ends that.
func (c *Conn) get(ctx context.Context, from *url.URL, last string) (resp *http.Response, again bool, err error) {
	resp, again, err = c.tryGet(ctx, from, last)
	if errors.Is(err, ErrSessionOver) {
		c.finish(err)
	}
	return resp, again, err
}

// tryGet is get that leaves it to the caller what a 404 means.
func (c *Conn) tryGet(ctx context.Context, from *url.URL, last string) (resp *http.Response, again bool, err error) {
	header := c.streamHeader(last)
	resp, err = c.cfg.Client.RoundTrip((&http.Request{
		Method: http.MethodGet, URL: from, Host: from.Host, Header: header, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx))
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, false, context.Cause(ctx)
	case err != nil:
		return nil, true, fmt.Errorf("%w: %w", ErrUnreachable, cut(err))
	case resp.StatusCode == http.StatusOK && mediaType(resp) == typeEvents:
		return resp, false, nil
	case resp.StatusCode/100 == 2:
		_ = resp.Body.Close()
		return nil, false, fmt.Errorf("%w: %d %s", errNoEvents, resp.StatusCode, quote([]byte(resp.Header.Get("Content-Type"))))
	}
	err = statusError(resp)
	if c.expired(header, resp.StatusCode) {
		err = fmt.Errorf("%w: %w", ErrSessionOver, err)
	}
	return nil, resp.StatusCode/100 == 5 || resp.StatusCode == http.StatusTooManyRequests, err
}

// listen starts to look after the session's own stream, unless that is done
// already (MCP-36), and closes ready when the server has answered whether there
// is one, or has not within openWait.
func (c *Conn) listen(ready chan struct{}) {
	c.mu.Lock()
	start := !c.session.listening && c.ended == nil && c.session.kind != SSE
	if start {
		c.session.listening = true
		c.wg.Add(1)
	}
	c.mu.Unlock()
	opened := sync.OnceFunc(func() { close(ready) })
	if !start {
		opened()
		return
	}
	go c.keepListening(opened)
}

// keepListening reads the session's own stream for as long as the server offers
// one, and takes it up again where it broke. opened is called when the first
// try has come to something.
func (c *Conn) keepListening(opened func()) {
	defer c.wg.Done()
	defer func() {
		c.mu.Lock()
		c.session.listening = false
		c.mu.Unlock()
	}()
	late := time.AfterFunc(openWait, opened)
	defer opened()
	defer late.Stop()
	r := jsonrpc.NewEventReader(nil, jsonrpc.ReaderOptions{Max: c.cfg.MaxMessage})
	defer r.Release()
	s := reading{c: c, r: r}
	// The router of a server that has no such stream may answer 404 as well as
	// 405. The session has only just begun: it is not that which is not found.
	open := c.tryGet
	for vain := 0; ; vain++ {
		resp, again, err := open(c.ctx, c.url, r.LastID())
		opened()
		open = c.get
		switch {
		case err == nil:
			r.Reset(resp.Body, r.LastID())
			_ = s.read(resp.StatusCode)
			_ = resp.Body.Close()
			if s.heard {
				vain = 0
			}
		case !again:
			c.cfg.Log.Debug("the server offers no stream of its own", "error", err)
			return
		}
		if !wait(c.ctx, s.backOff(vain)) {
			return
		}
	}
}
