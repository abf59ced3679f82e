package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"
)

// tap lies between an HTTP client and what it talks to, bare or Belay, and
// notes when each exchange began and ended. A connection that one side breaks
// off it breaks off on the other.
type tap struct {
	listener net.Listener
	server   *http.Server
	out      *http.Transport
	done     chan struct{} // closed when server has ended
	tool     []byte        // as it stands in the call that is stopped

	mu        sync.Mutex
	exchanges []*exchange
}

// exchange is one HTTP request with its response.
type exchange struct {
	method     string
	call       bool // the POST of the call that is stopped
	begin, end time.Time
	cut        context.CancelCauseFunc
}

// errCut is why an exchange ends that cut has ended.
var errCut = errors.New("the tap cut the connection")

// maxTapBody bounds what the tap reads of a request; a client's are small.
const maxTapBody = 1 << 20

// newTap opens a way to target for a client that will call tool.
func newTap(target *url.URL, tool string) (*tap, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	t := &tap{listener: listener, done: make(chan struct{}), tool: []byte(`"` + tool + `"`)}
	quiet := log.New(io.Discard, "", 0) // broken connections are what this is for
	t.out = &http.Transport{DisableCompression: true}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = target.Scheme, target.Host
			r.Out.Host = target.Host
		},
		Transport:     t.out,
		FlushInterval: -1,
		ErrorLog:      quiet,
	}
	t.server = &http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          quiet,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx, cut := context.WithCancelCause(r.Context())
			defer cut(nil)
			defer t.note(r, cut)()
			proxy.ServeHTTP(w, r.WithContext(ctx))
		}),
	}
	go func() { // ends with close
		defer close(t.done)
		_ = t.server.Serve(listener)
	}()
	return t, nil
}

// note writes down that an exchange has begun; what it returns, that it ended.
func (t *tap) note(r *http.Request, cut context.CancelCauseFunc) func() {
	x := &exchange{method: r.Method, begin: time.Now(), cut: cut}
	if r.Method == http.MethodPost {
		body, err := io.ReadAll(io.LimitReader(r.Body, maxTapBody))
		if err == nil {
			x.call = bytes.Contains(body, []byte(`"tools/call"`)) && bytes.Contains(body, t.tool)
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.exchanges = append(t.exchanges, x)
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		x.end = time.Now()
	}
}

// after says what the client did since the Stop: how many GETs it began, and
// how long the stopped call's POST was still there; negative: it still is.
func (t *tap) after(stop time.Time) (gets int, post time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, x := range t.exchanges {
		switch {
		case x.method == http.MethodGet && x.begin.After(stop):
			gets++
		case x.call && x.end.IsZero():
			post = -1
		case x.call && post >= 0:
			post = max(post, x.end.Sub(stop))
		}
	}
	return gets, post
}

// cut breaks off the connections of the call, on both sides, as a network does.
func (t *tap) cut() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, x := range t.exchanges {
		if x.call {
			x.cut(errCut)
		}
	}
}

func (t *tap) url(path string) string { return "http://" + t.listener.Addr().String() + path }

// close ends every connection and waits for the listener.
func (t *tap) close() {
	_ = t.server.Close()
	t.out.CloseIdleConnections()
	<-t.done
}
