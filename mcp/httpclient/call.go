package httpclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/belayhq/belay/jsonrpc"
)

// How far a request has come. It goes forward only.
const (
	stateQueued    = iota // not one byte of the body was handed over
	stateWithdrawn        // and none ever will be
	stateStarted          // the body is being written
	stateWritten          // the request has left
)

// call is one request in flight, and the context.Context of its POST.
type call struct {
	c      *Conn
	id     jsonrpc.ID
	key    string
	method string
	frame  []byte
	modern bool
	extra  http.Header     // headers of this request alone; nil: none
	sent   http.Header     // all headers; the call's goroutine alone uses it
	gate   <-chan struct{} // closed when it may go; nil: at once
	ctx    context.Context
	cancel context.CancelCauseFunc
	state  atomic.Int32
	trace  httptrace.ClientTrace
	conn   net.Conn // on which the request goes, where Conn.ownConn

	// Conn.mu guards what follows.
	wroteAt  time.Time     // when the request had left
	accepted bool          // the server has begun to answer
	session  string        // the id that came with the answer to initialize
	stopped  bool          // cancelled or forgotten: no Lost
	over     bool          // the goroutine has ended
	moved    chan struct{} // closed when the state is Written, or over; nil: nobody waits
	done     chan struct{} // closed when over; nil: nobody waits
}

// run is the call's goroutine.
func (k *call) run() {
	defer k.c.wg.Done()
	if err := k.exchange(); err != nil {
		k.c.lose(k, err)
	}
	k.cancel(nil)
	k.c.mu.Lock()
	k.over = true
	k.wakeLocked()
	if k.done != nil {
		close(k.done)
	}
	k.c.mu.Unlock()
}

// exchange sends the request and reads what comes of it. Without an error the
// answer was reported, or comes by the shared stream.
func (k *call) exchange() error {
	if k.gate != nil {
		select {
		case <-k.gate:
		case <-k.ctx.Done():
			return context.Cause(k.ctx)
		}
	}
	return k.c.route(k)
}

// post sends the request to an endpoint. An error says that there is no HTTP
// answer, and why.
func (k *call) post(header http.Header, to *url.URL) (*http.Response, error) {
	k.sent = header
	req := &http.Request{
		Method: http.MethodPost, URL: to, Host: to.Host, Header: header, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: k.body(), GetBody: func() (io.ReadCloser, error) { return k.body(), nil }, ContentLength: int64(len(k.frame)),
	}
	k.trace.WroteRequest = k.wrote
	if k.c.ownConn {
		k.trace.GotConn, k.trace.WroteHeaders = k.gotConn, k.starts
	}
	resp, err := k.c.cfg.Client.RoundTrip(req.WithContext(httptrace.WithClientTrace(k.ctx, &k.trace)))
	if err != nil {
		return nil, k.failed(err)
	}
	k.c.noteKeepAlive(resp)
	k.state.CompareAndSwap(stateQueued, stateStarted)
	k.wrote(httptrace.WroteRequestInfo{})
	k.c.mu.Lock()
	k.accepted = true
	k.c.mu.Unlock()
	return resp, nil
}

// failed explains an error of the HTTP client.
func (k *call) failed(err error) error {
	if k.ctx.Err() != nil {
		return context.Cause(k.ctx)
	}
	if k.state.Load() < stateStarted {
		return fmt.Errorf("%w: %w", ErrUnreachable, cut(err))
	}
	return fmt.Errorf("%w: %w", ErrClosedEarly, cut(err))
}

// begin is asked before the first byte of the body is handed over.
func (k *call) begin() bool {
	return k.state.CompareAndSwap(stateQueued, stateStarted) || k.state.Load() != stateWithdrawn
}

// starts is called by the HTTP client between headers and body, when it begins
// to write the body. If the request was withdrawn before, it closes the
// connection, so that no body follows: headers alone, should they have left,
// make no message.
//
// A body of our own that refuses to be read would be simpler. But the client
// sends headers in a packet of their own in front of every body that it does not
// know to lie in memory, which costs each request a system call.
func (k *call) starts() {
	if !k.begin() && k.conn != nil {
		_ = k.conn.Close()
	}
}

// gotConn is called by the HTTP client when it has chosen a connection. One that
// the server is about to close for having been idle is closed here; the client
// then takes another, since nothing was written. Otherwise the request could
// cross with the end of the connection, and nobody would know whether it arrived.
func (k *call) gotConn(info httptrace.GotConnInfo) {
	k.conn = info.Conn
	if limit := time.Duration(k.c.keepAlive.Load()); limit > 0 && info.WasIdle && info.IdleTime > limit {
		_ = info.Conn.Close()
	}
}

// noteKeepAlive reads how long the server keeps idle connections, as Node's
// servers say it: "timeout=5". A fifth of it is left for the way.
func (c *Conn) noteKeepAlive(resp *http.Response) {
	for _, value := range resp.Header["Keep-Alive"] {
		_, after, ok := strings.Cut(value, "timeout=")
		digits, _, _ := strings.Cut(after, ",")
		if n, err := strconv.Atoi(strings.TrimSpace(digits)); ok && err == nil && n > 0 && n < 1e6 {
			c.keepAlive.Store(int64(time.Duration(n) * time.Second * 4 / 5))
		}
	}
}

// awaitOver is closed when the call's goroutine has ended; nil if it has.
func (k *call) awaitOver() <-chan struct{} {
	k.c.mu.Lock()
	defer k.c.mu.Unlock()
	if k.done == nil && !k.over {
		k.done = make(chan struct{})
	}
	return k.done
}

// withdraw makes sure that the request never starts. It is false when it has.
func (k *call) withdraw() bool { return k.state.CompareAndSwap(stateQueued, stateWithdrawn) }

// wrote notes that the request has left. An error of the write ends the call
// elsewhere.
func (k *call) wrote(info httptrace.WroteRequestInfo) {
	if info.Err != nil || !k.state.CompareAndSwap(stateStarted, stateWritten) {
		return
	}
	k.c.mu.Lock()
	if !k.modern {
		k.wroteAt = time.Now()
	}
	k.wakeLocked()
	k.c.mu.Unlock()
}

func (k *call) isAccepted() bool {
	k.c.mu.Lock()
	defer k.c.mu.Unlock()
	return k.accepted
}

func (k *call) wakeLocked() {
	if k.moved != nil {
		close(k.moved)
		k.moved = nil
	}
}

// awaitWritten waits until the request has been written. It fails when it never
// will be.
func (k *call) awaitWritten(ctx context.Context) error {
	k.c.mu.Lock()
	if k.moved == nil && !k.over && k.state.Load() != stateWritten {
		k.moved = make(chan struct{})
	}
	moved := k.moved
	k.c.mu.Unlock()
	if moved != nil {
		select {
		case <-moved:
		case <-ctx.Done():
			return fmt.Errorf("the request is not written yet: %w", context.Cause(ctx))
		}
	}
	if k.state.Load() != stateWritten {
		return fmt.Errorf("%w: the request was never written in full", ErrClosedEarly)
	}
	return nil
}

// close ends the POST and waits until it has.
func (k *call) close(ctx context.Context) (Told, error) {
	k.cancel(errCancelled)
	done := k.awaitOver()
	if done != nil {
		select {
		case <-done:
		case <-ctx.Done():
			return Told{}, context.Cause(ctx)
		}
	}
	return Told{Means: "POST closed"}, nil
}

// body is the frame on its way.
func (k *call) body() io.ReadCloser {
	if k.c.ownConn {
		return newPlainBody(k.frame)
	}
	return &gatedBody{k: k, rest: k.frame}
}

var errWithdrawn = errors.New("the request was withdrawn")

// gatedBody is for connections that are not a request's own, and for clients
// that we do not know: its first Read is the moment in which the request starts.
type gatedBody struct {
	k    *call
	rest []byte
}

// Read hands over the next bytes.
func (b *gatedBody) Read(p []byte) (int, error) {
	if !b.k.begin() {
		return 0, errWithdrawn
	}
	n := copy(p, b.rest)
	if b.rest = b.rest[n:]; len(b.rest) == 0 {
		return n, io.EOF
	}
	return n, nil
}

// Close does nothing: the frame is the collector's.
func (b *gatedBody) Close() error { return nil }
