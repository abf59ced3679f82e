package serve

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/config"
	"github.com/belayhq/belay/internal/sdkfake"
	"github.com/belayhq/belay/mcp/httpclient"
)

// mob is many callers who do at random whatever callers can do.
type mob struct {
	*rig
	posts   atomic.Int64 // that have begun
	ended   atomic.Int64 // that have ended, in any way
	results atomic.Int64 // that brought an answer
	left    atomic.Int64 // callers who left before they knew their session
	keys    atomic.Int64
}

// postLimit is how long a POST of the mob may take: no tool of it works longer
// than a second, and no ladder here takes three.
const postLimit = 20 * time.Second

// do sends one request and reads its response to the end, in which its id must
// be answered once at most. A caller that leaves goes when its ctx ends.
func (m *mob) do(ctx context.Context, path, id, body string, headers ...string) (answers int, text string) {
	m.posts.Add(1)
	began := time.Now()
	ctx, end := context.WithTimeout(ctx, postLimit)
	defer end()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, m.web.URL+path, strings.NewReader(body))
	if err != nil {
		m.t.Error(err)
		return 0, ""
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	var got []byte
	resp, err := m.client.Do(req)
	if err == nil {
		got, _ = io.ReadAll(resp.Body) // a cut stream shows as a missing answer
		_ = resp.Body.Close()
	}
	m.ended.Add(1)
	if time.Since(began) >= postLimit {
		m.t.Errorf("a POST to %s did not end within %v: %s", path, postLimit, body)
	}
	text = string(got)
	answers = strings.Count(text, `"id":`+id+`,"result"`) + strings.Count(text, `"id":`+id+`,"error"`)
	if answers > 1 {
		m.t.Errorf("%d answers to one request: %s", answers, text)
	}
	m.results.Add(int64(answers))
	return answers, text
}

// tool is a call that a caller of the mob makes.
func (m *mob) tool(rnd *rand.Rand) (name, args string) {
	if rnd.IntN(3) == 0 {
		return "echo", `{"text":"x"}`
	}
	return "tick", fmt.Sprintf(`{"key":"m%d","n":%d,"deaf":%v}`, m.keys.Add(1), 1+rnd.IntN(10), rnd.IntN(8) == 0)
}

// leaving is a context that may end in the middle of a call.
func leaving(ctx context.Context, rnd *rand.Rand) (context.Context, context.CancelFunc) {
	if rnd.IntN(3) > 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, time.Duration(rnd.IntN(80))*time.Millisecond)
}

// legacy is a caller with a session: it begins, calls, cancels, begins again
// within the session, leaves streams, and deletes the session or does not.
func (m *mob) legacy(ctx context.Context, rnd *rand.Rand, path string) {
	hello := `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"mob","version":"1"}}}`
	if rnd.IntN(10) == 0 { // gone while the session is opened
		short, end := context.WithTimeout(ctx, time.Duration(rnd.IntN(20))*time.Millisecond)
		defer end()
		m.left.Add(1)
		m.do(short, path, "0", hello)
		return
	}
	a, err := m.postIn(ctx, path, "", hello)
	if err != nil || a.session == "" {
		return // it came in the middle of a change
	}
	head := []string{"Mcp-Session-Id: " + a.session, "Mcp-Protocol-Version: 2025-11-25"}
	m.do(ctx, path, "none", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, head...)
	var calls sync.WaitGroup
	if rnd.IntN(2) == 0 {
		calls.Go(func() { m.get(ctx, path, head) })
	}
	for n := range 2 + rnd.IntN(8) {
		id := fmt.Sprint(n + 1)
		name, args := m.tool(rnd)
		in, end := leaving(ctx, rnd)
		calls.Go(func() {
			defer end()
			m.do(in, path, id, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, id, prefixFor(path)+name, args), head...)
		})
		time.Sleep(time.Duration(rnd.IntN(20)) * time.Millisecond)
		switch rnd.IntN(8) {
		case 0, 1, 2: // also of what is unknown, ended, or still to come
			m.do(ctx, path, "none", cancelOf(fmt.Sprint(1+rnd.IntN(n+2))), head...)
		case 3: // twice in one session
			m.do(ctx, path, "0", hello, head...)
		case 4: // an id that is in flight
			m.do(ctx, path, id, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"ping"}`, id), head...)
		}
	}
	if rnd.IntN(3) > 0 {
		m.drop(ctx, path, head)
	}
	calls.Wait()
}

// get holds the session's own stream for a while.
func (m *mob) get(ctx context.Context, path string, head []string) {
	ctx, end := context.WithTimeout(ctx, 100*time.Millisecond)
	defer end()
	m.plain(ctx, http.MethodGet, path, head)
}

func (m *mob) drop(ctx context.Context, path string, head []string) {
	ctx, end := context.WithTimeout(ctx, postLimit)
	defer end()
	m.plain(ctx, http.MethodDelete, path, head)
	if ctx.Err() != nil {
		m.t.Error("a DELETE did not end")
	}
}

func (m *mob) plain(ctx context.Context, method, path string, head []string) {
	req, err := http.NewRequestWithContext(ctx, method, m.web.URL+path, nil)
	if err != nil {
		m.t.Error(err)
		return
	}
	req.Header.Set("Accept", "text/event-stream")
	for _, h := range head {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	resp, err := m.client.Do(req)
	if err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
}

// stateless is a caller of 2026-07-28; all of them use the same id.
func (m *mob) stateless(ctx context.Context, rnd *rand.Rand, path string) {
	name, args := m.tool(rnd)
	name = prefixFor(path) + name
	in, end := leaving(ctx, rnd)
	defer end()
	n, text := m.do(in, path, "0", fmt.Sprintf(`{"jsonrpc":"2.0","id":0,"method":"tools/call","params":{"name":%q,"arguments":%s,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"mob","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`, name, args),
		"Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", "Mcp-Name: "+name)
	if n != 1 && in == ctx {
		m.t.Errorf("%d answers to a caller who stayed: %q", n, text)
	}
}

// prefixFor is what stands before a tool's name at the joined path: one of the
// servers there.
func prefixFor(path string) string {
	if path == JoinedPath {
		return "pipe__"
	}
	return ""
}

// operator stops whatever it finds, sessions now and then, some of it twice.
func (m *mob) operator(ctx context.Context, rnd *rand.Rand) {
	for pause(ctx, time.Duration(20+rnd.IntN(60))*time.Millisecond) {
		kind := belay.KindCall
		if rnd.IntN(10) == 0 {
			kind = belay.KindSession
		}
		list, err := m.tree.List(ctx, belay.Filter{Kinds: []belay.Kind{kind}})
		if err != nil || len(list) == 0 {
			continue
		}
		id := list[rnd.IntN(len(list))].ID
		for range 1 + rnd.IntN(2) {
			_, _ = m.tree.Cancel(ctx, belay.CancelRequest{ // it may have ended meanwhile
				Filter:       belay.Filter{IDs: []belay.RunID{id}},
				Cancellation: belay.Cancellation{Cause: belay.CauseOperator, By: "operator", Via: "test", Reason: "at random"},
			})
		}
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// TestStress: callers of both eras call, cancel, leave, and delete sessions of
// servers on pipes and on HTTP, while an operator stops calls and sessions and
// the definitions change. Every POST ends, no request is answered twice, and at
// the end nothing is in flight (MCP-G24, MCP-G25, MCP-G28).
func TestStress(t *testing.T) {
	const seed = 3
	r := newRig(t, nil)
	m := &mob{rig: r}
	old, forget := r.sdk(sdkfake.Options{})
	fresh := r.remote(sdkfake.Options{Stateless: true, Propagate: true})
	old.Name, fresh.Name = "old", "fresh"
	define := func(n int) []Definition {
		pipe, safe := r.fake("pipe"), r.fake("safe")
		safe.Restart = config.Some("safe")
		both := []*Definition{&pipe, &safe}
		for _, d := range both {
			d.Drain = config.Some(time.Second)
			d.Disconnect = config.Some(config.Disconnect{Mode: config.Cancel})
		}
		both[n%2].Labels = map[string]string{"n": fmt.Sprint(n)} // one of them changes each time
		return []Definition{pipe, safe, old, fresh}
	}
	r.apply(define(0)...)
	ctx, end := context.WithTimeout(t.Context(), 4*time.Second)
	defer end()
	var all sync.WaitGroup
	as := func(n uint64, f func(*rand.Rand)) {
		all.Go(func() { f(rand.New(rand.NewPCG(seed, n))) })
	}
	for n := range uint64(12) {
		as(n, func(rnd *rand.Rand) {
			for ctx.Err() == nil {
				m.legacy(t.Context(), rnd, []string{Path("pipe"), Path("safe"), Path("old"), JoinedPath}[rnd.IntN(4)])
			}
		})
		as(100+n, func(rnd *rand.Rand) {
			for ctx.Err() == nil {
				m.stateless(t.Context(), rnd, []string{Path("pipe"), Path("safe"), Path("fresh"), JoinedPath}[rnd.IntN(4)])
			}
		})
	}
	as(200, func(rnd *rand.Rand) { m.operator(ctx, rnd) })
	as(201, func(rnd *rand.Rand) {
		for n := 1; pause(ctx, time.Duration(300+rnd.IntN(500))*time.Millisecond); n++ {
			r.apply(define(n)...)
		}
	})
	all.Wait()
	if m.posts.Load() != m.ended.Load() {
		t.Errorf("%d POSTs were made, %d have ended", m.posts.Load(), m.ended.Load())
	}
	if m.results.Load() < 20 {
		t.Errorf("only %d answers came", m.results.Load())
	}
	t.Logf("%d POSTs, %d answers", m.posts.Load(), m.results.Load())
	r.close(belay.Cancellation{Cause: belay.CauseShutdown})
	r.within(20*time.Second, "no run is in flight", func() bool { // a remote server's stop is given up after 10 s
		left, err := r.tree.List(context.Background(), belay.Filter{})
		return err == nil && !slices.ContainsFunc(left, func(i belay.Info) bool { return !i.Over() })
	})
	httpclient.CloseIdleConnections()
	if left, short := forget(), int(m.left.Load()); left > short {
		t.Errorf("%d sessions are left at the server, and only %d callers left before they knew theirs", left, short)
	}
}

// sdk is remote for a server that can be made to forget the sessions of clients
// who left before they learnt their session's id: nobody else can end those.
func (r *rig) sdk(o sdkfake.Options) (Definition, func() int) {
	o.Witness = r.wit.Path
	s := sdkfake.Server(o)
	web := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil))
	r.t.Cleanup(web.Close)
	d := Definition{Server: config.New("tools", config.Policy{})}
	d.URL = web.URL
	d.Grace, d.KillAfter = config.Some(200*time.Millisecond), config.Some(300*time.Millisecond)
	return d, func() (n int) {
		for session := range s.Sessions() {
			n++
			_ = session.Close()
		}
		return n
	}
}
