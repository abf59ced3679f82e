package gateway

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
)

// worker is a server inside this process that works on each call until it is
// told to stop, and counts those it works on.
type worker struct {
	mu      sync.Mutex
	working map[string]bool
	began   int
}

func (w *worker) serve(_ context.Context, in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadSlice('\n')
		if err != nil {
			return nil //nolint:nilerr // the session is over
		}
		var m mcp.Message
		if m.Read(line[:len(line)-1]) != nil {
			continue
		}
		w.mu.Lock()
		switch {
		case m.Method == mcp.MethodCallTool:
			w.working[m.ID.Key()] = true
			w.began++
		case m.Method == mcp.NoticeCancelled:
			if c, err := m.ReadCancel(); err == nil && w.working[c.Request.Key()] {
				delete(w.working, c.Request.Key())
				_, _ = out.Write(append(jsonrpc.AppendError(nil, c.Request, -1, "stopped", nil), '\n'))
			}
		}
		w.mu.Unlock()
	}
}

// TestLatchMissesNothing: who shuts the gate and then stops everything has stopped
// everything, however many calls are arriving at that moment.
func TestLatchMissesNothing(t *testing.T) {
	for range 5 {
		w, d := &worker{working: map[string]bool{}}, &door{}
		tree := belay.NewTree(belay.Options{})
		to := make(answers, 4096)
		s, err := OpenTo(t.Context(), Config{Name: "x", Serve: w.serve, Tree: tree, Log: slog.New(slog.DiscardHandler), Gate: d}, to)
		if err != nil {
			t.Fatal(err)
		}
		var callers sync.WaitGroup
		for caller := range 4 {
			callers.Go(func() {
				for i := range 250 {
					var m mcp.Message
					if err := m.Read(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":"%d-%d","method":"tools/call","params":{"name":"x"}}`, caller, i)); err != nil {
						t.Error(err)
					}
					s.Deliver(mcp.Arrival{Message: &m, To: to})
				}
			})
		}
		for begun := 0; begun < 100; time.Sleep(100 * time.Microsecond) {
			w.mu.Lock()
			begun = w.began
			w.mu.Unlock()
		}
		d.set(func() { d.shut = belay.ErrForbidden })
		list, err := tree.List(t.Context(), belay.Filter{Kinds: []belay.Kind{belay.KindCall}})
		if err != nil {
			t.Fatal(err)
		}
		ids := make([]belay.RunID, len(list))
		for i := range list {
			ids[i] = list[i].ID
		}
		if _, err := tree.Cancel(t.Context(), belay.CancelRequest{Filter: belay.Filter{IDs: ids}, Cancellation: belay.Cancellation{Cause: belay.CauseOperator}}); err != nil {
			t.Fatal(err)
		}
		callers.Wait()
		for range 1000 {
			<-to
		}
		left := -1
		for end := time.Now().Add(5 * time.Second); left != 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
			w.mu.Lock()
			left = len(w.working)
			w.mu.Unlock()
		}
		if left != 0 {
			t.Errorf("the server works on %d calls", left)
		}
		if err := s.Close(context.Background(), belay.Cancellation{Cause: belay.CauseShutdown}); err != nil {
			t.Error(err)
		}
		if err := tree.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

// FuzzNames: whatever stands in _meta, a request goes on as a valid one, and what
// nobody named stays.
func FuzzNames(f *testing.F) {
	tree := belay.NewTree(belay.Options{KeepRuns: 10})
	s, err := OpenTo(context.Background(), Config{Name: "x", Serve: quickest, Tree: tree, Log: slog.New(slog.DiscardHandler), NameRuns: true, Trace: true}, make(answers, 1))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		_ = s.Close(context.Background(), belay.Cancellation{Cause: belay.CauseShutdown})
		_ = tree.Close(context.Background())
	})
	turn, err := tree.Register(belay.Spec{Kind: belay.KindTurn, Name: "turn"})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { // first: the tree would wait for its evidence
		turn.Finish(belay.Completed)
		turn.Observe(belay.Evidence{Kind: belay.SeenHandlerReturned, Scope: belay.ScopeHandler})
	})
	parent := `"io.github.belayhq/parent":"` + turn.ID().String() + `"`
	for _, params := range []string{
		`{}`, `null`, `[]`, `{"_meta":null}`, `{"_meta":{}}`, `{"_meta":{` + parent + `}}`, `{"_meta":{"progressToken":1,` + parent + `,"traceparent":"` + traceparent + `","tracestate":"a"}}`,
		`{"_meta":{"traceparent":1,"traceparent":2}}`, `{"_meta":{},"_meta":{` + parent + `}}`, `{"name":"x","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}`,
	} {
		f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":`+params+`}`), traceparent, "h=1")
	}
	f.Fuzz(func(t *testing.T, frame []byte, header, state string) {
		var m, after mcp.Message
		if m.Read(frame) != nil || m.Kind != jsonrpc.Request || mcp.Handshaking(m.Method) {
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		a := mcp.Arrival{Message: &m, Traceparent: header, Tracestate: state}
		c := s.newCall(&a, nil)
		c.to = make(answers, 1)
		if !s.nameLocked(c, &a, belay.RunID{}) {
			return
		}
		var before stopBefore
		if err := c.register(false, &before); err != nil {
			t.Fatal(err)
		}
		defer c.run.Finish(belay.Completed)
		c.up, c.upID = s.current, s.current.ids.Next()
		sent := jsonrpc.AppendSplice(nil, frame, s.current.editsLocked(c, &m)...)
		if err := after.Read(sent); err != nil || after.ID != c.upID || after.Method != m.Method {
			t.Fatalf("%s goes on as %s: %v", frame, sent, err)
		}
		if n := after.ReadNames(); n.Parents > 0 {
			t.Fatalf("the parent goes on: %s", sent)
		}
	})
}
