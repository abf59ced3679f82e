package rap

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/rappeer"
)

// stage is a runtime with its callback handler on loopback.
type stage struct {
	*Runtime
	t    *testing.T
	tree *belay.Tree
	web  *httptest.Server
}

// newStage makes a runtime; change may alter its options.
func newStage(t *testing.T, change func(*RuntimeOptions)) *stage {
	t.Helper()
	s := &stage{t: t, tree: belay.NewTree(belay.Options{})}
	s.web = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.ServeHTTP(w, r) }))
	o := RuntimeOptions{Tree: s.tree, Callback: s.web.URL + "/rap/callback"}
	if change != nil {
		change(&o)
	}
	var err error
	if s.Runtime, err = NewRuntime(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.shut() })
	return s
}

func (s *stage) shut() {
	ctx, end := context.WithTimeout(context.Background(), 5*time.Second)
	defer end()
	if err := s.Close(ctx, belay.Cancellation{}); err != nil {
		s.t.Errorf("the runtime has not ended: %v", err)
	}
	s.web.Close()
	now, over := context.WithTimeout(ctx, time.Millisecond) // what nobody confirms is not waited for
	defer over()
	_ = s.tree.Close(now)
	sharedTransport.CloseIdleConnections()
}

// peer starts a tool server.
func peer(t *testing.T, p *rappeer.ToolServer) *rappeer.ToolServer {
	t.Helper()
	if _, err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	return p
}

// thread opens a thread with its tools loaded.
func (s *stage) thread(o ThreadOptions) *Thread {
	s.t.Helper()
	th, err := s.Open(o)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := th.Load(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	return th
}

func (s *stage) invoke(th *Thread, tool string) *Pending {
	s.t.Helper()
	c, err := th.Invoke(CallOptions{Tool: tool, Arguments: json.RawMessage(`{}`)})
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// soon bounds what is awaited in tests.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, end := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(end)
	return ctx
}

// stop cancels a run as a person does.
func (s *stage) stop(r *belay.Run) {
	s.t.Helper()
	if !r.Cancel(belay.Cancellation{Cause: belay.CauseUser, Via: "test", Reason: "enough"}) {
		s.t.Fatal("nothing was stopped")
	}
}

// until waits until a condition holds that no event announces.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within 10 s", what)
		}
	}
}

func steps(r *belay.Receipt, kind belay.EvidenceKind) (n int) {
	for _, s := range r.Steps {
		if s.Evidence != nil && s.Evidence.Kind == kind {
			n++
		}
	}
	return n
}

// waits blocks until the request is over.
func waits(ctx context.Context, _ []byte) int { <-ctx.Done(); return 0 }
