package httpclient

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
)

// canned answers every request with the same bytes.
type canned struct {
	status int
	kind   string
	body   []byte
}

func (a canned) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodPost {
		return &http.Response{StatusCode: http.StatusMethodNotAllowed, Request: req, Body: http.NoBody}, nil
	}
	_, _ = io.Copy(io.Discard, req.Body)
	return &http.Response{
		StatusCode: a.status, Header: http.Header{"Content-Type": {a.kind}, headerSession: {"s"}}, Request: req,
		Body: io.NopCloser(bytes.NewReader(a.body)), ContentLength: -1,
	}, nil
}

// ends counts how a call ended.
type ends struct {
	sync.Mutex
	t              *testing.T
	answered, lost int
	over           chan struct{}
}

func (e *ends) Message(m *mcp.Message, about jsonrpc.ID, _ int) {
	e.Lock()
	defer e.Unlock()
	if m.Kind != jsonrpc.Response {
		return
	}
	if about != jsonrpc.StringID("b-1") {
		e.t.Errorf("an answer to %s", about)
	}
	e.answered++
	e.over <- struct{}{}
}

func (e *ends) Lost(_ jsonrpc.ID, err error) {
	e.Lock()
	defer e.Unlock()
	if err == nil || len(err.Error()) > 4000 {
		e.t.Errorf("lost without a reason, or with too much of it: %v", err)
	}
	e.lost++
	e.over <- struct{}{}
}

func (e *ends) Over(error) {}

// FuzzAnswer: whatever a server answers, the call ends in exactly one answer or
// one Lost, and Close ends everything.
func FuzzAnswer(f *testing.F) {
	for _, body := range []string{
		`{"jsonrpc":"2.0","id":"b-1","result":{}}`, `[{"jsonrpc":"2.0","id":"b-1","result":{}},{"jsonrpc":"2.0","id":"b-1","result":{}}]`,
		"data: {\"jsonrpc\":\"2.0\",\"id\":\"b-1\",\"result\":{}}\n\n", "id: 1\ndata: \n\nretry: 1\n\n", "<html>", `{"jsonrpc":"2.0","id":null,"error":{}}`,
		"data: {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\"}\r\rdata: {\"id\":\"b-1\"\n\n",
	} {
		for _, kind := range []string{typeJSON, typeEvents, "text/html", ""} {
			f.Add(200, kind, []byte(body), true)
			f.Add(404, kind, []byte(body), false)
		}
	}
	f.Fuzz(func(t *testing.T, status int, kind string, body []byte, modern bool) {
		if status < 200 || status > 599 {
			return
		}
		e := &ends{t: t, over: make(chan struct{}, 10)}
		c, err := Open(Config{URL: "http://x", Client: canned{status, kind, body}, MaxMessage: 200}, e)
		if err != nil {
			t.Fatal(err)
		}
		call := legacyCall
		if modern {
			call = modernCall
		}
		send(t, c, "%s", fmt.Sprintf(call, "b-1"))
		select {
		case <-e.over:
		case <-time.After(20 * time.Millisecond): // it waits to be resumed
		}
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if e.answered+e.lost != 1 || c.InFlight() != 0 {
			t.Errorf("%d answers, %d lost, %d in flight", e.answered, e.lost, c.InFlight())
		}
	})
}
