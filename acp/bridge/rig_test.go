package bridge

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/belayhq/belay"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a bridge between two peers which the test plays, in a bubble of virtual
// time.
type rig struct {
	*testing.T
	tree   *belay.Tree
	bridge *Bridge
	editor *peer
	agent  *peer
	stop   context.CancelCauseFunc
	result Result
	served chan struct{}
}

// peer is one end of the bridge: it writes lines and keeps what it reads.
type peer struct {
	t    *testing.T
	name string
	in   *io.PipeWriter // to the bridge
	out  *io.PipeReader // from the bridge

	mu    sync.Mutex
	lines []string
	deaf  chan struct{} // not nil: does not read until it is closed
	gone  bool
}

// pause makes the peer read no more after the next line; resume ends that.
func (p *peer) pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deaf = make(chan struct{})
}

func (p *peer) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.deaf)
	p.deaf = nil
}

func newPeer(t *testing.T, name string) (*peer, Pipes) {
	fromPeer, in := io.Pipe()
	out, toPeer := io.Pipe()
	return &peer{t: t, name: name, in: in, out: out}, Pipes{In: fromPeer, Out: toPeer}
}

func (p *peer) read() {
	lines := bufio.NewReaderSize(p.out, 1<<16)
	for {
		p.mu.Lock()
		deaf := p.deaf
		p.mu.Unlock()
		if deaf != nil {
			<-deaf
		}
		line, err := lines.ReadString('\n')
		p.mu.Lock()
		if line != "" {
			p.lines = append(p.lines, strings.TrimSuffix(line, "\n"))
		}
		p.gone = err != nil
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// say writes one line.
func (p *peer) say(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p.in, line+"\n"); err != nil {
		p.t.Errorf("the %s could not say %.100s: %v", p.name, line, err)
	}
}

// heard takes what the peer has read since it was asked last.
func (p *peer) heard() []string {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	lines := p.lines
	p.lines = nil
	return lines
}

// hears checks that the peer has read exactly these lines since it was asked last.
func (p *peer) hears(want ...string) {
	p.t.Helper()
	got := p.heard()
	for i := range max(len(got), len(want)) {
		g, w := "(nothing)", "(nothing)"
		if i < len(got) {
			g = runID.ReplaceAllString(got[i], "RUN")
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			p.t.Errorf("the %s heard\n\t%s\nwant\n\t%s", p.name, g, w)
		}
	}
}

// newRig starts a bridge. Call it in a bubble. Who plays is the agent; by default the
// test is.
func newRig(t *testing.T, o Options, plays ...func(in io.Reader, out io.Writer)) *rig {
	t.Helper()
	r := &rig{T: t, tree: o.Tree, served: make(chan struct{})}
	if r.tree == nil {
		r.tree = belay.NewTree(belay.Options{})
		o.Tree = r.tree
	}
	if testing.Verbose() {
		o.Log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	var err error
	if r.bridge, err = New(o); err != nil {
		t.Fatal(err)
	}
	var editor, agent Pipes
	r.editor, editor = newPeer(t, "editor")
	r.agent, agent = newPeer(t, "agent")
	go r.editor.read()
	if len(plays) > 0 {
		go plays[0](r.agent.out, r.agent.in)
	} else {
		go r.agent.read()
	}
	ctx, stop := context.WithCancelCause(context.Background())
	r.stop = stop
	go func() {
		defer close(r.served)
		r.result, err = r.bridge.Serve(ctx, editor, agent)
		if err != nil {
			t.Error(err)
		}
	}()
	return r
}

// end ends the bridge as a shutdown would, and checks that nothing is left.
func (r *rig) end() Result {
	r.Helper()
	r.stop(context.Canceled)
	<-r.served
	for _, p := range []*peer{r.editor, r.agent} {
		_ = p.in.Close()
		_ = p.out.Close()
	}
	ctx, end := context.WithTimeout(context.Background(), time.Minute)
	defer end()
	if err := r.tree.Close(ctx); err != nil {
		r.Error(err)
	}
	return r.result
}

// bubble runs f with a bridge in virtual time.
func bubble(t *testing.T, o Options, f func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, o)
		defer r.end()
		f(r)
	})
}

// greet takes the connection through initialize in version v.
func (r *rig) greet(v string) {
	r.Helper()
	r.editor.say(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":` + v + `}}`)
	r.agent.hears(`{"jsonrpc":"2.0","id":"b-1","method":"initialize","params":{"protocolVersion":` + v + `}}`)
	r.agent.say(`{"jsonrpc":"2.0","id":"b-1","result":{"protocolVersion":` + v + `,"agentCapabilities":{"sessionCapabilities":{"close":{}}}}}`)
	r.editor.hears(`{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":` + v + `,"agentCapabilities":{"sessionCapabilities":{"close":{}}}}}`)
}

// session opens session s_7 with request id 1 here, b-2 there.
func (r *rig) session() {
	r.Helper()
	r.editor.say(`{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/w/belay","mcpServers":[]}}`)
	r.agent.hears(`{"jsonrpc":"2.0","id":"b-2","method":"session/new","params":{"cwd":"/w/belay","mcpServers":[]}}`)
	r.agent.say(`{"jsonrpc":"2.0","id":"b-2","result":{"sessionId":"s_7"}}`)
	r.editor.hears(`{"jsonrpc":"2.0","id":1,"result":{"sessionId":"s_7"}}`)
}

// prompt starts a turn with request id 9 here, b-3 there.
func (r *rig) prompt() {
	r.Helper()
	r.editor.say(`{"jsonrpc":"2.0","id":9,"method":"session/prompt","params":{"sessionId":"s_7","prompt":[]}}`)
	r.agent.hears(`{"jsonrpc":"2.0","id":"b-3","method":"session/prompt","params":{"sessionId":"s_7","prompt":[]}}`)
}

// turn opens a session of version 1 with a prompt in flight.
func (r *rig) turn() {
	r.Helper()
	r.greet("1")
	r.session()
	r.prompt()
}

// run returns the one run of a kind that was registered last.
func (r *rig) run(kind belay.Kind) belay.Detail {
	r.Helper()
	synctest.Wait()
	list, err := r.tree.List(context.Background(), belay.Filter{Kinds: []belay.Kind{kind}, Ended: true})
	if err != nil || len(list) == 0 {
		r.Fatalf("no run of kind %s: %v", kind, err)
	}
	d, err := r.tree.Get(context.Background(), list[len(list)-1].ID)
	if err != nil {
		r.Fatal(err)
	}
	return d
}
