package serve

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belayhq/belay/mcp/httpserver"
)

// byHeader takes everybody's word for who they are.
func byHeader(o *Options) {
	o.Identify = func(r *http.Request) (httpserver.Identity, error) {
		who := r.Header.Get("X-Who")
		if who == "" {
			return httpserver.Identity{}, errors.New("who are you?")
		}
		return httpserver.Identity{Principal: who}, nil
	}
}

// listener is a legacy caller with its GET stream open.
type listener struct {
	r             *rig
	path, session string
	who           string
	mu            sync.Mutex
	heard         []string
}

// listens opens a legacy session at a path and reads its stream.
func (r *rig) listens(path, who string) *listener {
	r.t.Helper()
	l := &listener{r: r, path: path, who: who}
	a := l.post(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"rig","version":"1"}}}`)
	if l.session = a.session; a.status != 200 || a.session == "" {
		r.t.Fatalf("initialize: %+v", a)
	}
	if n := l.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`); n.status != 202 {
		r.t.Fatalf("initialized: %+v", n)
	}
	ctx, leave := context.WithCancelCause(r.t.Context())
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, r.web.URL+path, nil)
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Mcp-Session-Id", l.session)
	req.Header.Set("X-Who", who)
	resp, err := r.client.Do(req) //nolint:bodyclose // the goroutine below closes it
	if err != nil || resp.StatusCode != http.StatusOK {
		r.t.Fatal(resp, err)
	}
	ended := make(chan struct{})
	r.t.Cleanup(func() {
		leave(nil)
		<-ended
	})
	go func() {
		defer close(ended)
		defer resp.Body.Close()
		lines := bufio.NewScanner(resp.Body)
		for lines.Buffer(nil, 1<<20); lines.Scan(); {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				l.mu.Lock()
				l.heard = append(l.heard, data)
				l.mu.Unlock()
			}
		}
	}()
	return l
}

func (l *listener) post(body string) answer {
	l.r.t.Helper()
	return l.r.must(l.r.post(l.path, l.session, body, "X-Who: "+l.who))
}

// count is how often something with this text was heard.
func (l *listener) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, h := range l.heard {
		if strings.Contains(h, text) {
			n++
		}
	}
	return n
}

func frameOf(mark string) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"7","reason":%q}}`, mark)
}

// TestTell: the sessions of one owner are told, or those of all, each once, /mcp
// too; nobody else's, none of 2026-07-28, and none in which the id is in flight
// (ORC-44, DESIGN 11, 11).
func TestTell(t *testing.T) {
	t.Parallel()
	r := newRig(t, byHeader)
	r.apply(r.fake("a"), r.fake("b"))
	ana, twice, bob := r.listens(Path("a"), "ana"), r.listens(JoinedPath, "ana"), r.listens(Path("b"), "bob")
	body := `{"jsonrpc":"2.0","id":0,"method":"tools/call","params":{"name":"echo","arguments":{},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
	for _, path := range []string{Path("a"), JoinedPath} { // so that there are shared sessions
		r.must(r.post(path, "", body, "X-Who: ana", "Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", "Mcp-Name: echo"))
	}
	tell := func(owner, mark string) int {
		t.Helper()
		n, err := r.hub.Tell(t.Context(), owner, "7", frameOf(mark))
		if err != nil {
			t.Error(err)
		}
		return n
	}
	if n := tell("ana", "first"); n != 2 {
		t.Errorf("%d of ana's were told", n)
	}
	if n := tell("", "second"); n != 3 {
		t.Errorf("%d of all were told", n)
	}
	if n := tell("eve", "third"); n != 0 {
		t.Errorf("%d of nobody's were told", n)
	}
	for name, l := range map[string]*listener{"ana": ana, "ana at /mcp": twice, "bob": bob} {
		r.eventually(name+" hears of it", func() bool { return l.count("second") == 1 })
	}
	if ana.count("first") != 1 || twice.count("first") != 1 || bob.count("first") != 0 || bob.count("third")+ana.count("third") != 0 {
		t.Errorf("ana heard %v, at /mcp %v, bob %v", ana.heard, twice.heard, bob.heard)
	}

	got := async(func() (answer, error) {
		return r.post(Path("a"), ana.session, call(7, "tick", `{"key":"k","n":400}`), "X-Who: ana")
	})
	r.event("k", "tick")
	if n := tell("ana", "busy"); n != 1 {
		t.Errorf("%d were told while 7 is in flight in one of two sessions", n)
	}
	r.must(r.post(Path("a"), ana.session, cancelOf("7"), "X-Who: ana"))
	r.wait(got, 5*time.Second)
	r.eventually("the other one hears of it", func() bool { return twice.count("busy") == 1 })
	if ana.count("busy") != 0 {
		t.Error("the session was told in which the id is in flight")
	}

	ctx, end := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	end(why)
	if n, err := r.hub.Tell(ctx, "", "7", frameOf("late")); n != 0 || !errors.Is(err, why) {
		t.Errorf("told %d, %v", n, err)
	}
}

// TestTellWithoutPrincipals: where nobody is asked who they are, all sessions are
// those of the hub's owner.
func TestTellWithoutPrincipals(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.apply(r.fake("a"))
	l, j := r.listens(Path("a"), ""), r.listens(JoinedPath, "")
	for owner, want := range map[string]int{"tester": 2, "": 2, "local": 0} {
		if n, err := r.hub.Tell(t.Context(), owner, "7", frameOf("to "+owner)); n != want || err != nil {
			t.Errorf("%q: %d, %v", owner, n, err)
		}
	}
	r.eventually("both hear of it", func() bool { return l.count("to tester") == 1 && j.count("to tester") == 1 })
}

// TestTellWaitsForNobody: a caller that does not read costs neither whoever
// tells nor other callers anything.
func TestTellWaitsForNobody(t *testing.T) {
	r := newRig(t, nil)
	r.apply(r.fake("a"))
	deaf, fine := r.begin("a"), r.listens(Path("a"), "")
	conn := r.dial()
	defer conn.Close()
	fmt.Fprintf(conn, "GET /mcp/a HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\nMcp-Session-Id: %s\r\n\r\n", deaf)
	pad := strings.Repeat("x", 16<<10)
	const times = 1500 // some 24 MB: more than what is kept and what sockets take
	began := time.Now()
	for i := range times {
		if _, err := r.hub.Tell(t.Context(), "", "7", frameOf(fmt.Sprint("n", i, "-", pad))); err != nil {
			t.Fatal(err)
		}
		if i%50 == 0 { // the other one reads as fast as it can
			r.eventually("the other caller hears of it", func() bool { return fine.count(fmt.Sprint("n", i, "-")) == 1 })
		}
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("%d times took %v", times, took)
	}
	r.eventually("all of it", func() bool { return fine.count("n") >= times })
}
