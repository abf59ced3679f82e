package aggregate

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/faketool"
	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
	"github.com/belayhq/belay/mcp/httpserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a member in memory. What it gets, it writes down; requests go to
// handle, and what that leaves alone is open until somebody answers it.
type fake struct {
	name    string
	caps    string // capabilities
	more    string // further members of its initialize or discover result
	version string // default: the caller's
	refuse  error
	hang    bool // initialize is never answered
	handle  func(s *fakeSession, r *fakeCall) bool

	mu       sync.Mutex
	sessions []*fakeSession
	shared   *fakeSession
}

// fakeCall is a request that a fake got.
type fakeCall struct {
	mcp.Message
	s        *fakeSession
	to       mcp.Outlet
	exchange uint64
	about    mcp.Arrival
}

type fakeSession struct {
	*fake
	home  mcp.Outlet
	who   httpserver.Caller
	ended chan struct{}
	once  sync.Once

	// held is locked while the session calls outlets, as those of the gateway are:
	// whoever called back from one would wait for ever.
	held sync.Mutex

	lock   sync.Mutex
	frames []string
	calls  []*fakeCall
	gone   map[uint64]belay.Cancellation
	closed []belay.Cancellation
}

func (f *fake) newSession(out mcp.Outlet) *fakeSession {
	s := &fakeSession{fake: f, home: out, ended: make(chan struct{}), gone: map[uint64]belay.Cancellation{}}
	f.sessions = append(f.sessions, s)
	return s
}

func (f *fake) Open(_ context.Context, who httpserver.Caller, out mcp.Outlet) (httpserver.Session, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse != nil {
		return nil, f.refuse
	}
	s := f.newSession(out)
	s.who = who
	return s, nil
}

func (f *fake) Shared(context.Context, httpserver.Caller) (httpserver.Session, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse != nil {
		return nil, f.refuse
	}
	if f.shared == nil {
		f.shared = f.newSession(nowhere{})
	}
	return f.shared, nil
}

// last is the newest session.
func (f *fake) last() *fakeSession {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.sessions) == 0 {
		return nil
	}
	return f.sessions[len(f.sessions)-1]
}

func (s *fakeSession) Deliver(a mcp.Arrival) {
	s.held.Lock()
	defer s.held.Unlock()
	r := &fakeCall{s: s, to: a.To, exchange: a.Exchange, about: a}
	if err := r.Read(bytes.Clone(a.Frame)); err != nil {
		panic(err)
	}
	s.lock.Lock()
	s.frames = append(s.frames, string(r.Frame))
	if r.Kind == jsonrpc.Request {
		s.calls = append(s.calls, r)
	}
	s.lock.Unlock()
	switch {
	case r.Kind == jsonrpc.Notification && r.Method == mcp.NoticeCancelled:
		cancel, _ := r.ReadCancel()
		s.drop(func(c *fakeCall) bool { return c.ID.Same(cancel.Request) })
	case r.Kind != jsonrpc.Request || s.handle != nil && s.handle(s, r):
	case r.Method == mcp.MethodInitialize && !s.hang:
		version := s.version
		if version == "" {
			at, _, _ := jsonrpc.Member(r.Frame, r.Params, "protocolVersion")
			version = textAt(r.Frame, at, 100)
		}
		r.answer(`{"protocolVersion":%q,"capabilities":{%s},"serverInfo":{"name":%q,"version":"1"}%s}`, version, s.caps, s.name, s.more)
	case r.Method == mcp.MethodDiscover && !s.hang:
		r.answer(`{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{%s},"ttlMs":0,"cacheScope":"private"%s}`, s.caps, s.more)
	}
}

// drop drops the calls that fit, as a member does after its caller's cancel.
func (s *fakeSession) drop(fits func(*fakeCall) bool) {
	s.lock.Lock()
	var hit []*fakeCall
	for _, c := range s.calls {
		if fits(c) {
			hit = append(hit, c)
		}
	}
	s.lock.Unlock()
	for _, c := range hit {
		c.to.Drop()
	}
}

func (s *fakeSession) Abandon(exchange uint64, c belay.Cancellation) {
	s.held.Lock()
	defer s.held.Unlock()
	s.lock.Lock()
	s.gone[exchange] = c
	s.lock.Unlock()
	s.drop(func(r *fakeCall) bool { return r.exchange == exchange })
}

func (s *fakeSession) Ended() <-chan struct{} { return s.ended }
func (s *fakeSession) Err() error             { return nil }
func (s *fakeSession) die()                   { s.once.Do(func() { close(s.ended) }) }

func (s *fakeSession) Close(_ context.Context, c belay.Cancellation) error {
	s.held.Lock()
	defer s.held.Unlock()
	s.lock.Lock()
	s.closed = append(s.closed, c)
	calls := s.calls
	s.lock.Unlock()
	for _, r := range calls {
		_ = r.to.Answer(0, mcp.AppendStopped(nil, r.ID, belay.RunID{}, &c, true))
	}
	s.die()
	return nil
}

func (r *fakeCall) answer(format string, args ...any) {
	_ = r.to.Answer(0, jsonrpc.AppendResponse(nil, r.ID, fmt.Appendf(nil, format, args...)))
}

func (r *fakeCall) fail(code int, text string) {
	_ = r.to.Answer(0, jsonrpc.AppendError(nil, r.ID, code, text, nil))
}

// param is a string parameter.
func (r *fakeCall) param(path ...string) string {
	at, _, _ := jsonrpc.Path(r.Frame, r.Params, path...)
	return textAt(r.Frame, at, 1<<20)
}

// got lists the frames that the session got and that have text in them.
func (s *fakeSession) got(text string) []string {
	if s == nil {
		return nil
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	var list []string
	for _, f := range s.frames {
		if strings.Contains(f, text) {
			list = append(list, f)
		}
	}
	return list
}

// find waits for a request of a method.
func (f *fake) find(t *testing.T, method string) *fakeCall {
	t.Helper()
	var found *fakeCall
	until(t, f.name+" gets "+method, func() bool {
		s := f.last()
		if s == nil {
			return false
		}
		s.lock.Lock()
		defer s.lock.Unlock()
		for _, c := range s.calls {
			if c.Method == method {
				found = c
			}
		}
		return found != nil
	})
	return found
}

// abandoned reports whether the exchange of a request was abandoned.
func (r *fakeCall) abandoned() bool {
	r.s.lock.Lock()
	defer r.s.lock.Unlock()
	_, ok := r.s.gone[r.exchange]
	return ok
}

// box is what a caller was told about one request, or about none.
type box struct {
	mu      sync.Mutex
	told    []string
	answers []string
	dropped int
	settled chan struct{} // closed by the first answer or drop
}

func newBox() *box { return &box{settled: make(chan struct{})} }

func (b *box) Send(frame []byte, edits ...jsonrpc.Edit) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.told = append(b.told, string(jsonrpc.AppendSplice(nil, frame, edits...)))
	return nil
}

func (b *box) Answer(_ int, frame []byte, edits ...jsonrpc.Edit) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answers = append(b.answers, string(jsonrpc.AppendSplice(nil, frame, edits...)))
	b.settleLocked()
	return nil
}

func (b *box) Drop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dropped++
	b.settleLocked()
}

func (b *box) settleLocked() {
	if b.dropped+len(b.answers) == 1 {
		close(b.settled)
	}
}

// heard waits for something that was told and has text in it.
func (b *box) heard(t *testing.T, text string) string {
	t.Helper()
	var found string
	until(t, "the caller hears "+text, func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, f := range b.told {
			if strings.Contains(f, text) {
				found = f
			}
		}
		return found != ""
	})
	return found
}

// silent reports whether nothing with text in it was told.
func (b *box) silent(text string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.told {
		if strings.Contains(f, text) {
			return false
		}
	}
	return true
}

// rig is an aggregate with a caller.
type rig struct {
	t         *testing.T
	b         *Backend
	s         httpserver.Session
	home      *box
	modern    bool
	logs      *logs
	exchanges uint64

	mu      sync.Mutex
	members []Member
	boxes   []*box
}

// logs is what was logged.
type logs struct{ faketool.Text }

func (l *logs) has(text string) bool { return strings.Contains(l.String(), text) }

func (r *rig) set(fakes ...*fake) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.members = nil
	for _, f := range fakes {
		r.members = append(r.members, Member{f.name, f})
	}
}

func newRig(t *testing.T, modern bool, cfg Config, fakes ...*fake) *rig {
	t.Helper()
	r := &rig{t: t, home: newBox(), modern: modern, logs: &logs{}}
	r.set(fakes...)
	cfg.Members = func() []Member {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.members
	}
	cfg.Log = slog.New(slog.NewTextHandler(r.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	r.b = New(cfg)
	var err error
	if modern {
		r.s, err = r.b.Shared(t.Context(), httpserver.Caller{Principal: "tester", Revision: mcp.Revision26})
	} else {
		r.s, err = r.b.Open(t.Context(), httpserver.Caller{Principal: "tester", Revision: "2025-11-25"}, r.home)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.b.Close(context.Background(), belay.Cancellation{Cause: belay.CauseShutdown, Reason: "the test is over"}); err != nil {
			t.Errorf("close: %v", err)
		}
		for _, b := range r.boxes {
			if b.dropped+len(b.answers) != 1 {
				t.Errorf("a request was answered %d times and dropped %d times: %v", len(b.answers), b.dropped, b.answers)
			}
		}
		s := r.s.(*session)
		if len(s.calls)+len(s.passes)+int(s.open.Load()) != 0 {
			t.Errorf("left in the tables: %d calls, %d exchanges", len(s.calls), len(s.passes))
		}
		if t.Failed() {
			t.Logf("the log:\n%s", r.logs.String())
		}
	})
	return r
}

// begin is newRig of a legacy caller with the handshake done.
func begin(t *testing.T, fakes ...*fake) *rig {
	t.Helper()
	r := newRig(t, false, Config{}, fakes...)
	r.hello()
	return r
}

func (r *rig) hello() string {
	r.t.Helper()
	result := r.result(r.ask(`"init"`, "initialize", `{"protocolVersion":"2025-11-25","capabilities":{"roots":{}},"clientInfo":{"name":"t","version":"1"}}`))
	r.notify("notifications/initialized", "")
	return result
}

// send delivers a frame and returns the box and the exchange of it.
func (r *rig) send(frame string) (*box, uint64) {
	r.t.Helper()
	m := &mcp.Message{}
	if err := m.Read([]byte(frame)); err != nil {
		r.t.Fatalf("%v: %s", err, frame)
	}
	if m.Kind != jsonrpc.Request {
		r.s.Deliver(mcp.Arrival{Message: m})
		clear(m.Frame) // nobody may keep it
		return nil, 0
	}
	b := newBox()
	r.mu.Lock()
	r.boxes = append(r.boxes, b)
	r.exchanges++
	n := r.exchanges
	r.mu.Unlock()
	r.s.Deliver(mcp.Arrival{Message: m, To: b, Exchange: n, ByExchange: r.modern})
	clear(m.Frame)
	return b, n
}

const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

// ask sends a request; params is an object or empty.
func (r *rig) ask(id, method, params string) *box {
	r.t.Helper()
	b, _ := r.askExchange(id, method, params)
	return b
}

func (r *rig) askExchange(id, method, params string) (*box, uint64) {
	r.t.Helper()
	if params == "" {
		params = "{}"
	}
	if r.modern {
		rest := params[1:]
		if rest != "}" {
			rest = "," + rest
		}
		params = "{" + modernMeta + rest
	}
	return r.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, method, params))
}

func (r *rig) notify(method, params string) {
	if params != "" {
		params = `,"params":` + params
	}
	r.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":%q%s}`, method, params))
}

func (r *rig) wait(b *box) {
	r.t.Helper()
	select {
	case <-b.settled:
	case <-time.After(10 * time.Second):
		r.t.Fatalf("no answer within 10 s\n%s", r.logs.String())
	}
}

// answer waits for the answer.
func (r *rig) answer(b *box) string {
	r.t.Helper()
	r.wait(b)
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.answers) == 0 {
		r.t.Fatal("the request was dropped")
	}
	return b.answers[0]
}

// result is the result in the answer.
func (r *rig) result(b *box) string {
	r.t.Helper()
	answer := r.answer(b)
	var m struct {
		Result json.RawMessage
		Error  json.RawMessage
	}
	if err := json.Unmarshal([]byte(answer), &m); err != nil || m.Result == nil {
		r.t.Fatalf("no result (%v): %s", err, answer)
	}
	return string(m.Result)
}

// failure is the code of the error in the answer.
func (r *rig) failure(b *box) int {
	r.t.Helper()
	var m struct{ Error struct{ Code int } }
	answer := r.answer(b)
	if err := json.Unmarshal([]byte(answer), &m); err != nil || m.Error.Code == 0 {
		r.t.Fatalf("no error (%v): %s", err, answer)
	}
	return m.Error.Code
}

// droppedBox waits for the request to be dropped.
func (r *rig) dropped(b *box) {
	r.t.Helper()
	r.wait(b)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dropped != 1 || len(b.answers) > 0 {
		r.t.Errorf("want silence, got %v", b.answers)
	}
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within 10 s", what)
		}
	}
}

// names lists the values of one member of each element of an array.
func names(t *testing.T, result, array, key string) []string {
	t.Helper()
	var m map[string]json.RawMessage
	if err := json.Unmarshal([]byte(result), &m); err != nil {
		t.Fatal(err)
	}
	var list []map[string]any
	if err := json.Unmarshal(m[array], &list); err != nil {
		t.Fatalf("%v: %s", err, result)
	}
	out := make([]string, 0, len(list))
	for _, e := range list {
		out = append(out, fmt.Sprint(e[key]))
	}
	return out
}

// member is a string member of a result.
func member(t *testing.T, result, key string) string {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(result), &m); err != nil {
		t.Fatal(err)
	}
	s, _ := m[key].(string)
	return s
}
