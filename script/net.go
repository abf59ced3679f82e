package script

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dop251/goja"
)

// MaxFetches bounds the requests that one call has open (AT-88).
const MaxFetches = 32

// Bounds of one request.
const (
	maxRedirects = 10
	readPiece    = 32 << 10
)

// Network says where scripts may connect to. Nil means nowhere (AT-78).
type Network struct {
	// Hosts are the names that may be asked, in lower case: "api.example", with a port
	// "api.example:8443", with everything below "*.example". "*" is every host.
	Hosts []string

	// Transport carries the requests; nil: one of its own with the usual limits.
	Transport http.RoundTripper
}

// allows reports whether a request may go to this host, with or without its port.
func (n *Network) allows(hostPort, host string) bool {
	if n == nil {
		return false
	}
	hostPort, host = strings.ToLower(hostPort), strings.ToLower(host)
	return slices.ContainsFunc(n.Hosts, func(h string) bool {
		return h == "*" || h == host || h == hostPort || strings.HasPrefix(h, "*.") && strings.HasSuffix(host, h[1:])
	})
}

// Why a request failed, in the words that the script's side knows.
const (
	failAbort   = "abort"
	failTimeout = "timeout"
	failNetwork = "network"
)

var (
	errAborted  = errors.New("aborted")
	errTimedOut = errors.New("the request took too long")
)

// network is what one call has open. Its maps are guarded by mu; jobs run in the
// call's loop.
type network struct {
	call *Call

	mu    sync.Mutex
	open  map[int64]*exchange
	last  int64
	over  bool
	tasks sync.WaitGroup
}

// exchange is one request with its answer.
type exchange struct {
	end  context.CancelCauseFunc
	body io.ReadCloser // once the answer has begun; read by one goroutine at a time
}

func newNetwork(c *Call) *network {
	return &network{call: c, open: make(map[int64]*exchange)}
}

// fetch is the native half of the global fetch. It returns the number of the
// request; failed or answered is called later, once.
func (c *Call) fetch(method, address, headers string, body goja.Value, timeout float64, redirect string, failed, answered goja.Callable) int64 {
	var content []byte
	if b, ok := body.Export().(goja.ArrayBuffer); ok {
		content = slices.Clone(b.Bytes())
	}
	var list [][2]string
	if err := json.Unmarshal([]byte(headers), &list); err != nil {
		list = nil
	}
	return c.net.start(order{method, address, list, content, time.Duration(timeout * float64(time.Millisecond)), redirect}, failed, answered)
}

// order is what a script asks for.
type order struct {
	method, address string
	headers         [][2]string
	body            []byte
	timeout         time.Duration
	redirect        string
}

func (n *network) start(o order, failed, answered goja.Callable) int64 {
	ctx, end := context.WithCancelCause(context.Background())
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last++
	id, done := n.last, n.call.loop.await()
	fail := func(kind, message string) {
		end(errAborted)
		done(func() error { return n.call.tellFailed(failed, kind, message) })
	}
	switch {
	case n.over:
		fail(failAbort, errAborted.Error())
		return id
	case n.call.phase == loading:
		fail(failNetwork, "the network cannot be used before the tool is called")
		return id
	case len(n.open) >= MaxFetches:
		fail(failNetwork, fmt.Sprintf("%d requests are open, no more are possible", MaxFetches))
		return id
	}
	x := &exchange{end: end}
	n.open[id] = x
	n.tasks.Go(func() {
		if o.timeout > 0 {
			limit := time.AfterFunc(o.timeout, func() { end(errTimedOut) })
			context.AfterFunc(ctx, func() { limit.Stop() })
		}
		answer, err := n.ask(ctx, o) //nolint:bodyclose // forget and close do that
		if err != nil {
			kind, message := why(ctx, err)
			n.forget(id)
			done(func() error { return n.call.tellFailed(failed, kind, message) })
			return
		}
		n.mu.Lock()
		x.body = answer.Body
		n.mu.Unlock()
		text := answerText(answer, o.address)
		done(func() error {
			_, err := answered(goja.Undefined(), n.call.vm.ToValue(text))
			return n.call.passInterrupt(err)
		})
	})
	return id
}

// ask sends the request and returns the answer's head.
func (n *network) ask(ctx context.Context, o order) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, o.method, o.address, bytes.NewReader(o.body))
	if err != nil {
		return nil, err
	}
	if o.body == nil {
		req.Body, req.GetBody, req.ContentLength = nil, nil, 0
	}
	for _, h := range o.headers {
		switch h[0] {
		case "host", "content-length", "connection", "transfer-encoding", "upgrade", "te", "trailer":
			continue // of the connection, not of the script
		}
		req.Header.Add(h[0], h[1])
	}
	if err := n.permit(req); err != nil {
		return nil, err
	}
	client := http.Client{Transport: n.transport(), CheckRedirect: func(next *http.Request, via []*http.Request) error {
		switch {
		case o.redirect == "manual":
			return http.ErrUseLastResponse
		case o.redirect == "error":
			return errors.New("the answer is a redirect")
		case len(via) >= maxRedirects:
			return fmt.Errorf("more than %d redirects", maxRedirects)
		}
		return n.permit(next)
	}}
	return client.Do(req)
}

// permit refuses what the configuration does not allow (AT-78), redirects too.
func (n *network) permit(req *http.Request) error {
	switch {
	case req.URL.Scheme != "http" && req.URL.Scheme != "https":
		return fmt.Errorf("%s: addresses cannot be fetched, only http and https", req.URL.Scheme)
	case !n.call.options.Network.allows(req.URL.Host, req.URL.Hostname()):
		return fmt.Errorf("%s is not among the hosts that scripts may connect to", req.URL.Host)
	}
	return nil
}

func (n *network) transport() http.RoundTripper {
	if t := n.call.options.Network.Transport; t != nil {
		return t
	}
	return http.DefaultTransport
}

// why sorts an error into what the script gets for it.
func why(ctx context.Context, err error) (kind, message string) {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errTimedOut):
		return failTimeout, errTimedOut.Error()
	case cause != nil:
		return failAbort, errAborted.Error()
	}
	return failNetwork, "fetch failed: " + err.Error()
}

// answerText is the head of an answer, as JSON.
func answerText(r *http.Response, asked string) string {
	headers := [][2]string{}
	for name, values := range r.Header {
		for _, v := range values {
			headers = append(headers, [2]string{name, v})
		}
	}
	final := r.Request.URL.String()
	text, err := json.Marshal(map[string]any{
		"status": r.StatusCode, "statusText": strings.TrimSpace(strings.TrimPrefix(r.Status, fmt.Sprint(r.StatusCode))),
		"headers": headers, "url": final, "redirected": r.Request.Response != nil && final != asked,
	})
	if err != nil {
		return "{}"
	}
	return string(text)
}

// read is the next piece of an answer's body: null at the end.
func (n *network) read(id int64, got, failed goja.Callable) {
	n.mu.Lock()
	defer n.mu.Unlock()
	x, ok := n.open[id]
	done := n.call.loop.await()
	if !ok || x.body == nil || n.over {
		over := n.over
		done(func() error {
			if over {
				return n.call.tellFailed(failed, failAbort, errAborted.Error())
			}
			_, err := got(goja.Undefined(), goja.Null())
			return n.call.passInterrupt(err)
		})
		return
	}
	n.tasks.Go(func() {
		piece := make([]byte, readPiece)
		size, err := x.body.Read(piece)
		for size == 0 && err == nil {
			size, err = x.body.Read(piece)
		}
		switch {
		case size > 0:
			done(func() error {
				_, err := got(goja.Undefined(), n.call.vm.ToValue(n.call.vm.NewArrayBuffer(piece[:size])))
				return n.call.passInterrupt(err)
			})
		case errors.Is(err, io.EOF):
			n.forget(id)
			done(func() error {
				_, err := got(goja.Undefined(), goja.Null())
				return n.call.passInterrupt(err)
			})
		default:
			n.forget(id)
			done(func() error { return n.call.tellFailed(failed, failAbort, "the answer broke off: "+err.Error()) })
		}
	})
}

// abort ends a request; of one that is over nothing happens.
func (n *network) abort(id int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if x, ok := n.open[id]; ok {
		x.end(errAborted)
	}
}

// forget lets go of a request that is over.
func (n *network) forget(id int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if x, ok := n.open[id]; ok {
		delete(n.open, id)
		x.end(errAborted)
		if x.body != nil {
			_ = x.body.Close()
		}
	}
}

// end aborts everything that is open, and lets nothing begin any more (AT-33).
func (n *network) end() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.over = true
	for _, x := range n.open {
		x.end(errAborted)
	}
}

// close is end, and waits until nothing is under way.
func (n *network) close() {
	n.end()
	n.tasks.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	for id, x := range n.open {
		delete(n.open, id)
		if x.body != nil {
			_ = x.body.Close()
		}
	}
}

// tellFailed rejects what the script waits for.
func (c *Call) tellFailed(failed goja.Callable, kind, message string) error {
	_, err := failed(goja.Undefined(), c.vm.ToValue(kind), c.vm.ToValue(message))
	return c.passInterrupt(err)
}

// passInterrupt keeps interrupts and drops everything else: a promise's function
// throws nothing of the script's.
func (c *Call) passInterrupt(err error) error {
	if interrupted := (*goja.InterruptedError)(nil); errors.As(err, &interrupted) {
		return err
	}
	return nil
}
