package httpserver

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/mcp"
)

// refusing is an error that knows its answer.
type refusing struct {
	status int
	header http.Header
	text   string
}

func (refusing) Error() string                         { return "for the log only: s3cret" }
func (e refusing) Refusal() (int, http.Header, string) { return e.status, e.header, e.text }
func refuseWith(err error) func(*http.Request) (Identity, error) {
	return func(*http.Request) (Identity, error) { return Identity{}, err }
}

// TestIdentifyRefuses: who is not known reads the answer that the error asks
// for, always with a JSON-RPC body, and nothing that is meant for the log
// (ORC-33, DESIGN section 8).
func TestIdentifyRefuses(t *testing.T) {
	const invalid = `Bearer realm="belay", error="invalid_token"`
	challenge := http.Header{"WWW-Authenticate": {invalid}} // not in the spelling of the maps
	later := http.Header{"Retry-After": {"10"}}
	for name, c := range map[string]struct {
		err          error
		status       int
		header, want string
		text         string
	}{
		"an error without an answer": {errors.New("s3cret"), 401, "WWW-Authenticate", `Bearer realm="belay"`, "not authenticated"},
		"nobody's name":              {nil, 401, "WWW-Authenticate", `Bearer realm="belay"`, "not authenticated"},
		"a bad token":                {refusing{401, challenge, "Invalid authentication credentials"}, 401, "WWW-Authenticate", invalid, "Invalid authentication credentials"},
		"may not call tools":         {refusing{403, nil, "Access denied"}, 403, "WWW-Authenticate", "", "Access denied"},
		"keys cannot be had":         {refusing{503, later, "Authentication is unavailable"}, 503, "Retry-After", "10", "unavailable"},
		"wrapped":                    {errors.Join(errors.New("x"), refusing{503, later, "Authentication is unavailable"}), 503, "Retry-After", "10", "unavailable"},
		"no refusal at all":          {refusing{200, nil, "come in\r\nevil"}, 401, "WWW-Authenticate", `Bearer realm="belay"`, "come in"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Config{Identify: refuseWith(c.err)})
			for _, method := range []string{"GET", "POST", "DELETE", "PUT"} {
				got := r.do(method, "", "", "Mcp-Session-Id: x")
				if got.status != c.status || got.header.Get(c.header) != c.want || errorOf(got.body) == 0 || !strings.Contains(got.body, c.text) {
					t.Errorf("%s: %+v", method, got)
				}
				if strings.Contains(got.body, "s3cret") || strings.Contains(got.body, "\n") {
					t.Errorf("%s: the body says %q", method, got.body)
				}
			}
			if n := len(r.shared) + len(r.sessions); n != 0 {
				t.Errorf("%d sessions were opened", n)
			}
		})
	}
}

// TestOthersSessionsDoNotExist: nobody can tell a session of somebody else from
// one that never was, byte for byte, whatever they ask of it (MCP-G12).
func TestOthersSessionsDoNotExist(t *testing.T) {
	r := newRig(t, Config{Identify: who})
	id := r.start("2025-11-25", "X-Who: ana")
	old, err := r.begin(t.Context(), "GET", "/sse", "", "X-Who: ana")
	if err != nil {
		t.Fatal(err)
	}
	defer old.Body.Close()
	buf := make([]byte, 256)
	n, _ := old.Body.Read(buf)
	_, message, _ := strings.Cut(string(buf[:n]), "?session=")
	message, _, _ = strings.Cut(message, "\n")
	const unknown = "AAAAAAAAAAAAAAAAAAAAAAAAAA"
	cancelled := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`
	for _, c := range []struct{ method, body, path, more string }{
		{"POST", call("1", "now"), "", ""},
		{"POST", cancelled, "", ""},
		{"POST", `[` + call("1", "now") + `]`, "", ""},
		{"POST", `{"jsonrpc":"2.0","id":"s-1","result":{}}`, "", ""},
		{"GET", "", "", ""},
		{"GET", "", "", "Last-Event-Id: 1-0"},
		{"DELETE", "", "", ""},
		{"POST", call("1", "now"), "/message?session=", ""},
	} {
		ask := func(session string) reply {
			headers := []string{"X-Who: bob", "Mcp-Session-Id: " + session}
			if c.more != "" {
				headers = append(headers, c.more)
			}
			path := c.path
			if path != "" {
				path += session
			}
			return r.do(c.method, path, c.body, headers...)
		}
		theirs := strings.TrimPrefix(id, "Mcp-Session-Id: ")
		if c.path != "" {
			theirs = message
		}
		a, b := ask(theirs), ask(unknown)
		a.header.Del("Date")
		b.header.Del("Date")
		if a.status != http.StatusNotFound || a.body != b.body || a.status != b.status || len(a.header) != len(b.header) {
			t.Errorf("%s %s %s: %+v and %+v", c.method, c.path, c.body, a, b)
		}
	}
	if got := r.post(call("2", "now"), id, "X-Who: ana"); got.status != 200 {
		t.Errorf("ana's session: %+v", got)
	}
	if c := r.session(0).closes(); len(c) > 0 {
		t.Errorf("bob ended it: %+v", c)
	}
}

// passing says who everybody is, and until when the word of a header is good.
func passing(r *http.Request) (Identity, error) {
	id := Identity{Principal: r.Header.Get("X-Who")}
	if d, err := time.ParseDuration(r.Header.Get("X-For")); err == nil {
		id.Expires = time.Now().Add(d)
	}
	return id, nil
}

// TestStreamsEndWithCredentials: a stream to which its caller can come back ends
// when the credentials expire with which it was asked for; the session, and
// under detach the call, go on, and fresh credentials of the same principal find
// both again.
func TestStreamsEndWithCredentials(t *testing.T) {
	r := newRig(t, Config{Identify: passing, KeepAlive: time.Hour})
	ana, brief := "X-Who: ana", "X-For: 200ms"
	id := r.start("2025-11-25", ana, brief)
	current := "MCP-Protocol-Version: 2025-11-25"

	// The session's own stream.
	began := time.Now()
	got := r.do("GET", "", "", id, ana, brief)
	if got.status != 200 || time.Since(began) < 150*time.Millisecond {
		t.Errorf("GET: %+v after %v", got, time.Since(began))
	}
	// A call's stream, which has an event id by then.
	got = r.do("POST", "", call("1", "wait"), id, ana, brief, current, "Accept: text/event-stream, application/json")
	list, _ := events(got.body)
	if got.status != 200 || len(list) != 1 || list[0].id == "" {
		t.Fatalf("POST: %+v", got)
	}
	if gone := r.session(0).abandoned(); len(gone) > 0 {
		t.Fatalf("the call was stopped: %+v", gone)
	}
	a := r.session(0).call(t, "1")
	if err := a.to.Answer(0, a.ok()); err != nil {
		t.Fatal(err)
	}
	got = r.do("GET", "", "", id, ana, "X-For: 1h", "Last-Event-Id: "+list[0].id)
	if !strings.Contains(got.body, `"result"`) {
		t.Errorf("resumed: %+v", got)
	}
	if got := r.post(call("2", "now"), id, ana, "X-For: 1h"); got.status != 200 {
		t.Errorf("the session with fresh credentials: %+v", got)
	}
	if got := r.post(call("3", "now"), id, "X-Who: bob", "X-For: 1h"); got.status != 404 {
		t.Errorf("the session with bob's credentials: %+v", got)
	}
}

// TestBusyStreamsEnd: a stream on which something is said all the time ends with
// its credentials as well.
func TestBusyStreamsEnd(t *testing.T) {
	r := newRig(t, Config{Identify: passing})
	id := r.start("2025-06-18", "X-Who: ana")
	resp, err := r.begin(t.Context(), "GET", "", "", id, "X-Who: ana", "X-For: 150ms") //nolint:bodyclose // it is, below
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	done := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, resp.Body)
		done <- err
	}()
	for end := time.Now().Add(10 * time.Second); ; {
		_ = r.session(0).out.Send([]byte(`{"jsonrpc":"2.0","method":"notifications/message","params":{}}`))
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
			return
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(end) {
			t.Fatal("it goes on")
		}
	}
}

// TestExpiryIsADisconnect: where a disconnect is a Stop, the end of the
// credentials is one, and the receipt says which of the two it was (MCP-G15).
func TestExpiryIsADisconnect(t *testing.T) {
	r := newRig(t, Config{Identify: passing, Disconnect: Cancel})
	id := r.start("2025-11-25", "X-Who: ana")
	got := r.do("POST", "", call("1", "wait"), id, "X-Who: ana", "X-For: 100ms", "MCP-Protocol-Version: 2025-11-25", "Accept: text/event-stream, application/json")
	if got.status != 200 {
		t.Fatalf("%+v", got)
	}
	eventually(t, "the Stop", func() bool { return len(r.session(0).abandoned()) == 1 })
	if c := r.session(0).abandoned()[0]; c.Cause != belay.CauseDisconnect || c.By != "ana" || !strings.Contains(c.Reason, "expired") {
		t.Errorf("%+v", c)
	}

	old := r.do("GET", "/sse", "", "X-Who: ana", "X-For: 100ms")
	if old.status != 200 || !strings.Contains(old.body, "event: endpoint") {
		t.Fatalf("2024-11-05: %+v", old)
	}
	eventually(t, "the end of the session", func() bool { return len(r.session(1).closes()) == 1 })
	if c := r.session(1).closes()[0]; !strings.Contains(c.Reason, "expired") {
		t.Errorf("%+v", c)
	}
}

// TestCallsOutliveCredentials: a response to which its caller cannot come back
// goes on to its end. A subscription, which has none, does not.
func TestCallsOutliveCredentials(t *testing.T) {
	r := newRig(t, Config{Identify: passing, HeaderWait: 20 * time.Millisecond, KeepAlive: 30 * time.Millisecond})
	ana, brief := "X-Who: ana", "X-For: 50ms"
	id := r.start("2025-06-18", ana)
	body, headers := modernCall("7", "wait")
	for name, c := range map[string]struct {
		body    string
		headers []string
		session func() *fakeSession
		id      string
	}{
		"stateless":            {body, headers, func() *fakeSession { return r.modern("ana") }, "7"},
		"without an event id":  {call("8", "wait"), []string{id, "MCP-Protocol-Version: 2025-06-18"}, func() *fakeSession { return r.session(0) }, "8"},
		"that takes JSON only": {call("9", "wait"), []string{id, "Accept: application/json"}, func() *fakeSession { return r.session(0) }, "9"},
	} {
		t.Run(name, func(t *testing.T) {
			got := make(chan reply, 1)
			go func() { got <- r.post(c.body, append([]string{ana, brief}, c.headers...)...) }()
			a := c.session().call(t, c.id)
			select {
			case g := <-got:
				t.Fatalf("it was ended: %+v", g)
			case <-time.After(200 * time.Millisecond): // long after its credentials
			}
			_ = a.to.Answer(0, a.ok())
			if g := <-got; g.status != 200 || !strings.Contains(g.body, `"result"`) {
				t.Errorf("%+v", g)
			}
		})
	}
	if gone := append(r.modern("ana").abandoned(), r.session(0).abandoned()...); len(gone) > 0 {
		t.Errorf("stopped: %+v", gone)
	}
	listen := modernBody("10", "subscriptions/listen", `"notifications":{},`)
	got := r.post(listen, ana, brief, "MCP-Protocol-Version: 2026-07-28", "Mcp-Method: subscriptions/listen")
	if got.status != 200 {
		t.Errorf("listen: %+v", got)
	}
	eventually(t, "the end of the subscription", func() bool { return len(r.modern("ana").abandoned()) == 1 })
}

// TestAboutRequests: what headers say of a request reaches the server's session
// in every era, bounded and fit to be printed; what is not is dropped.
func TestAboutRequests(t *testing.T) {
	const trace, state = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "a=1"
	r := newRig(t, Config{})
	id := r.start("2025-03-26")
	all := []string{"X-Request-Id: req-1", "Traceparent: " + trace, "Tracestate: " + state, "+Tracestate: b=2", "Belay-Parent: run_x"}
	check := func(a arrival) {
		t.Helper()
		if a.Labels["request_id"] != "req-1" || len(a.Labels) != 1 || a.Traceparent != trace || a.Tracestate != "a=1,b=2" || a.Parent != "run_x" {
			t.Errorf("%+v", a.Arrival)
		}
	}
	r.post(call("1", "now"), append(all, id)...)
	check(r.session(0).call(t, "1"))
	r.post(`[`+call("2", "now")+`,`+call("3", "now")+`]`, append(all, id)...)
	check(r.session(0).call(t, "2"))
	check(r.session(0).call(t, "3"))
	body, headers := modernCall("4", "now")
	r.post(body, append(headers, all...)...)
	check(r.modern("local").call(t, "4"))

	ctx, end := context.WithCancelCause(t.Context())
	defer end(nil)
	old, err := r.begin(ctx, "GET", "/sse", "")
	if err != nil {
		t.Fatal(err)
	}
	defer old.Body.Close()
	buf := make([]byte, 256)
	n, _ := old.Body.Read(buf)
	_, path, _ := strings.Cut(string(buf[:n]), "data: ")
	path, _, _ = strings.Cut(path, "\n")
	r.do("POST", path, call("5", "now"), all...)
	check(r.session(1).call(t, "5"))

	for i, bad := range []string{
		"X-Request-Id: " + strings.Repeat("x", maxRequestID+1), "X-Request-Id: a\tb", "X-Request-Id: \u202e", "X-Request-Id:  ",
		"Belay-Parent: " + strings.Repeat("x", maxParent+1), "Traceparent: " + strings.Repeat("0", maxTrace+1), "Tracestate: orphan=1",
	} {
		key := string(rune('a' + i))
		r.post(call(`"`+key+`"`, "now"), id, bad)
		if a := r.session(0).call(t, `"`+key+`"`); a.Labels != nil || a.Parent != "" || a.Traceparent != "" || a.Tracestate != "" {
			t.Errorf("%q: %+v", bad, a.Arrival)
		}
	}
}

// TestAboutIsFree: requests without such headers cost no allocation.
func TestAboutIsFree(t *testing.T) {
	r := &http.Request{Header: http.Header{"Accept": {"*/*"}}}
	var kept mcp.Arrival
	if n := testing.AllocsPerRun(100, func() { kept = about(r) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	_ = kept
}

// TestPostedCancelNeedsProof: a cancel that a modern caller posts counts only
// where callers have shown who they are: ids of different clients meet there, and
// can be guessed (MCP-G13).
func TestPostedCancelNeedsProof(t *testing.T) {
	for name, c := range map[string]struct {
		identify func(*http.Request) (Identity, error)
		counts   bool
	}{
		"nobody is asked": {nil, false},
		"unproven":        {func(*http.Request) (Identity, error) { return Identity{Principal: "local", Unproven: true}, nil }, false},
		"proven":          {func(*http.Request) (Identity, error) { return Identity{Principal: "local"}, nil }, true},
	} {
		t.Run(name, func(t *testing.T) {
			got := make(chan bool, 1)
			f := &fake{handle: func(_ *fakeSession, a arrival) {
				if a.Method == mcp.NoticeCancelled {
					got <- a.ByExchange
				}
			}}
			r := newRig(t, Config{Backend: f, Identify: c.identify})
			a := r.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, "MCP-Protocol-Version: 2026-07-28", "Mcp-Method: notifications/cancelled")
			if counts := <-got; a.status != 202 || counts != c.counts {
				t.Errorf("%+v, counts %v", a, counts)
			}
		})
	}
}
