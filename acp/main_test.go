package acp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/belayhq/belay/acp"
	"github.com/belayhq/belay/jsonrpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 20 * time.Second

// wire remembers what passed over a connection, in both directions, and has each
// line that the library wrote compared with the schema.
type wire struct {
	t     *testing.T
	mu    sync.Mutex
	lines []string // "> " from the client, "< " from the agent
	judge judge
}

// tap is one end of a transport with a wire beside it.
type tap struct {
	acp.Transport
	wire *wire
	mark string
	own  bool // the library writes here
}

func (p *tap) Write(m []byte) error {
	p.wire.add(p.mark, string(m), p.own)
	return p.Transport.Write(m)
}

func (w *wire) add(mark, line string, own bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, mark+line)
	if why := w.judge.look(mark, line, own); why != "" {
		w.t.Errorf("not as the schema has it: %s%s\n%s", mark, line, why)
	}
}

func (w *wire) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.lines...)
}

// count is how many lines contain all of the texts.
func (w *wire) count(texts ...string) int {
	n := 0
	for _, line := range w.all() {
		if containsAll(line, texts) {
			n++
		}
	}
	return n
}

// index is the place of the first line that contains all of the texts, -1 if none
// does.
func (w *wire) index(texts ...string) int {
	for i, line := range w.all() {
		if containsAll(line, texts) {
			return i
		}
	}
	return -1
}

func containsAll(line string, texts []string) bool {
	for _, text := range texts {
		if !strings.Contains(line, text) {
			return false
		}
	}
	return true
}

// newWire returns a pipe's two ends, the client's first.
func newWire(t *testing.T, clientIsOurs, agentIsOurs bool) (client, agent acp.Transport, w *wire) {
	w = &wire{t: t}
	c, a := acp.NewPipe()
	return &tap{c, w, "> ", clientIsOurs}, &tap{a, w, "< ", agentIsOurs}, w
}

// raw is a peer that is played by hand.
type raw struct {
	t     *testing.T
	tr    acp.Transport
	lines chan string
}

func newRaw(t *testing.T, tr acp.Transport) *raw {
	r := &raw{t: t, tr: tr, lines: make(chan string, 1000)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer close(r.lines)
		for {
			m, err := tr.Read()
			if err != nil {
				return
			}
			r.lines <- string(m)
		}
	}()
	t.Cleanup(func() {
		_ = tr.Close()
		<-ended
	})
	return r
}

func (r *raw) send(format string, args ...any) {
	r.t.Helper()
	line := format
	if len(args) > 0 {
		line = fmt.Sprintf(format, args...)
	}
	if err := r.tr.Write([]byte(line)); err != nil {
		r.t.Fatalf("write %s: %v", line, err)
	}
}

// next returns the next line.
func (r *raw) next() string {
	r.t.Helper()
	select {
	case line, ok := <-r.lines:
		if !ok {
			r.t.Fatal("the connection has ended")
		}
		return line
	case <-time.After(patience):
		r.t.Fatal("no line came")
	}
	return ""
}

// want reads the next line and compares it.
func (r *raw) want(line string) {
	r.t.Helper()
	if got := r.next(); got != line {
		r.t.Fatalf("got  %s\nwant %s", got, line)
	}
}

// wantPart reads the next line, which must contain all of the texts.
func (r *raw) wantPart(texts ...string) string {
	r.t.Helper()
	got := r.next()
	if !containsAll(got, texts) {
		r.t.Fatalf("got %s\nwant one with %q", got, texts)
	}
	return got
}

// silent checks that nothing comes for a while. In a bubble the time is virtual.
func (r *raw) silent(d time.Duration) {
	r.t.Helper()
	select {
	case line, ok := <-r.lines:
		if ok {
			r.t.Fatalf("got %s, want nothing", line)
		}
	case <-time.After(d):
	}
}

// call sends a request and returns the line of its answer; lines before it are
// dropped.
func (r *raw) answer(id string) string {
	r.t.Helper()
	for {
		line := r.next()
		var e jsonrpc.Envelope
		if err := jsonrpc.Parse([]byte(line), &e); err != nil {
			r.t.Fatalf("%s: %v", line, err)
		}
		if e.Kind == jsonrpc.Response && e.ID.Raw() == id {
			return line
		}
	}
}

const (
	helloClient     = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{},"clientInfo":{"name":"hand","version":"1"}}}`
	helloClientSeed = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{"cancellation":{"request":true}},"clientInfo":{"name":"hand","version":"1"}}}`
)

// hello makes r, the client, open the connection.
func (r *raw) hello(line string) string {
	r.t.Helper()
	r.send("%s", line)
	return r.answer("0")
}

// endConn closes a connection at the end of the test.
func endConn(t *testing.T, c *acp.Conn) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
}

// agentConn is the library as an agent, served by handler, and a client by hand.
func agentConn(t *testing.T, o acp.Options) (*acp.Conn, *raw, *wire) {
	t.Helper()
	client, agent, w := newWire(t, false, true)
	o.Role = acp.RoleAgent
	if o.Handler == nil {
		o.Handler = echo
	}
	inner := o.Handler
	o.Handler = func(ctx context.Context, r *acp.Request) (any, error) {
		if r.Method() == acp.MethodInitialize {
			return json.RawMessage(`{"protocolVersion":1,"agentCapabilities":{}}`), nil
		}
		return inner(ctx, r)
	}
	c := acp.NewConn(agent, o)
	endConn(t, c)
	return c, newRaw(t, client), w
}

// clientConn is the library as a client, and an agent by hand.
func clientConn(t *testing.T, o acp.Options) (*acp.Conn, *raw, *wire) {
	t.Helper()
	client, agent, w := newWire(t, true, false)
	o.Role = acp.RoleClient
	c := acp.NewConn(client, o)
	endConn(t, c)
	return c, newRaw(t, agent), w
}

// greet opens a client's connection to an agent by hand that has these
// capabilities.
func greet(t *testing.T, c *acp.Conn, agent *raw, version int, caps string) {
	t.Helper()
	done := async(func() error {
		return c.Call(t.Context(), acp.MethodInitialize, map[string]any{"protocolVersion": version, "info": map[string]string{"name": "x", "version": "1"}}, nil)
	})
	id := idOf(t, agent.wantPart(`"initialize"`))
	name := "agentCapabilities"
	if version >= acp.Version2 {
		name = "capabilities"
	}
	agent.send(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":%d,"%s":%s,"info":{"name":"hand","version":"1"}}}`, id, version, name, caps)
	if err := <-done; err != nil {
		t.Fatalf("initialize: %v", err)
	}
}

func async(fn func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- fn() }()
	return done
}

func idOf(t *testing.T, line string) string {
	t.Helper()
	var e jsonrpc.Envelope
	if err := jsonrpc.Parse([]byte(line), &e); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return e.ID.Raw()
}

// echo answers with the params, and waits first if the method says so.
func echo(ctx context.Context, r *acp.Request) (any, error) {
	if strings.HasPrefix(r.Method(), "_wait") {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	return r.Params(), nil
}
