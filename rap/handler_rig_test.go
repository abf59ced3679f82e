package rap_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/rappeer"
	"github.com/belayhq/belay/rap"
)

const (
	annToken = "ann-0123456789abcdef"
	bobToken = "bob-0123456789abcdef"
)

func bearer(token string) func(*http.Request, []byte) {
	return func(r *http.Request, _ []byte) { r.Header.Set("Authorization", "Bearer "+token) }
}

// rig is a tool server of the library, over real HTTP, and a runtime that knows
// nothing of it.
type rig struct {
	*rappeer.Runtime
	t    *testing.T
	h    *rap.Handler
	tree *belay.Tree
	web  *httptest.Server
	ctx  context.Context
}

func newRig(t *testing.T, change func(*rap.HandlerOptions), operations ...rap.Operation) *rig {
	t.Helper()
	auth, err := rap.Bearer(map[string]string{annToken: "ann", bobToken: "bob"})
	if err != nil {
		t.Fatal(err)
	}
	tree := belay.NewTree(belay.Options{})
	o := rap.HandlerOptions{Authenticator: auth, Tree: tree, Server: "files", Retries: []time.Duration{time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond}}
	o.PartialWait = 10 * time.Second // on a busy machine a good tool may take longer than usual
	if o.Toolset, err = rap.NewToolset(rap.Manifest{Name: "files"}, operations...); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(&o)
	}
	h, err := rap.NewHandler(o)
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(http.StripPrefix("/rap/files", h))
	g := &rig{Runtime: &rappeer.Runtime{Base: web.URL + "/rap/files", Sign: bearer(annToken)}, t: t, h: h, tree: tree, web: web}
	g.Start()
	ctx, end := context.WithTimeout(context.Background(), 60*time.Second)
	g.ctx = ctx
	t.Cleanup(func() {
		defer end()
		if err := h.Close(ctx, belay.Cancellation{}); err != nil {
			t.Errorf("the handler has not ended: %v", err)
		}
		g.Stop()
		web.Close()
		if err := tree.Close(ctx); err != nil {
			t.Errorf("the tree has not ended: %v", err)
		}
	})
	return g
}

// as is the same runtime for another caller.
func (g *rig) as(token string) func(method, path, body string) rappeer.Answer {
	return func(method, path, body string) rappeer.Answer {
		a, err := g.DoAs(bearer(token), method, path, "application/json", body)
		if err != nil {
			g.t.Fatal(err)
		}
		return a
	}
}

func (g *rig) invoke(operation, thread, id string, arguments any) {
	g.t.Helper()
	if a, err := g.Invoke(operation, thread, id, arguments); err != nil || a.Status != http.StatusOK || a.Body != "" {
		g.t.Fatalf("invoke %s (%s, %s): %+v, %v", operation, thread, id, a, err)
	}
}

func (g *rig) cancel(thread, id string) {
	g.t.Helper()
	if a, err := g.Cancel(thread, id); err != nil || a.Status != http.StatusOK || a.Body != "" {
		g.t.Fatalf("cancel (%s, %s): %+v, %v", thread, id, a, err)
	}
}

// message waits for the nth message of a call.
func (g *rig) message(thread, id string, n int) rappeer.Message {
	g.t.Helper()
	m, err := g.Wait(g.ctx, thread, id, n)
	if err != nil {
		g.t.Fatal(err)
	}
	return m
}

// only waits for the one message of a call and says that there is no other.
func (g *rig) only(thread, id string) string {
	g.t.Helper()
	m := g.message(thread, id, 1)
	g.settled(thread, id)
	if all := g.Messages(thread, id); len(all) != 1 || m.Type != "tool_result" {
		g.t.Fatalf("(%s, %s) got %d messages, the first is %s", thread, id, len(all), m.Body)
	}
	return m.Text
}

// settled waits until the runs of these ids are over.
func (g *rig) settled(thread, id string) []belay.Info {
	g.t.Helper()
	for g.ctx.Err() == nil {
		list, err := g.tree.List(g.ctx, belay.Filter{Labels: map[string]string{"thread_id": thread, "tool_call_id": id}, Ended: true})
		if err != nil {
			g.t.Fatal(err)
		}
		over := true
		for i := range list {
			over = over && list[i].Over()
		}
		if over {
			return list
		}
		time.Sleep(time.Millisecond)
	}
	g.t.Fatalf("the run of (%s, %s) is not over", thread, id)
	return nil
}

// receipt is that of the one run of these ids, when it is final.
func (g *rig) receipt(thread, id string) (belay.Info, *belay.Receipt) {
	g.t.Helper()
	list := g.settled(thread, id)
	if len(list) != 1 {
		g.t.Fatalf("(%s, %s) has %d runs", thread, id, len(list))
	}
	d, err := g.tree.Get(g.ctx, list[0].ID)
	if err != nil {
		g.t.Fatal(err)
	}
	return d.Info, d.Receipt
}

// witness is a tool that writes its own evidence: it appends to a file as long as
// it works, and says when it began.
type witness struct {
	file  string
	began chan string // ids of calls
	deaf  bool        // it does not look at its context
	end   chan struct{}
}

func newWitness(t *testing.T) *witness {
	return &witness{file: filepath.Join(t.TempDir(), "beats"), began: make(chan string, 1000), end: make(chan struct{})}
}

func (w *witness) op(name string) rap.Operation {
	return rap.Operation{Tool: rap.Tool{Name: name, Description: "works until it is stopped"}, Run: w.run}
}

func (w *witness) run(ctx context.Context, j *rap.Job) (rap.Result, error) {
	f, err := os.OpenFile(w.file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return rap.Result{}, err
	}
	defer f.Close()
	w.began <- j.ID()
	done := ctx.Done()
	if w.deaf {
		done = nil
	}
	for n := 0; ; n++ {
		fmt.Fprintln(f, j.ID(), n)
		var partial struct{ Partial string }
		_ = json.Unmarshal(j.Arguments(), &partial)
		j.Partial(partial.Partial)
		select {
		case <-done:
			return rap.Result{}, context.Cause(ctx)
		case <-w.end:
			return rap.Result{Text: "done"}, nil
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// beats is the size of the evidence.
func (w *witness) beats(t *testing.T) int64 {
	t.Helper()
	s, err := os.Stat(w.file)
	if err != nil {
		return 0
	}
	return s.Size()
}

// stands fails when the tool goes on working.
func (w *witness) stands(t *testing.T) {
	t.Helper()
	before := w.beats(t)
	time.Sleep(50 * time.Millisecond) // 25 beats
	if after := w.beats(t); after != before || before == 0 {
		t.Errorf("the tool's own evidence grew from %d to %d bytes after it was said to have stopped", before, after)
	}
}

func echo() rap.Operation {
	return rap.Operation{
		Tool: rap.Tool{Name: "echo", Description: "says it again", InputSchema: json.RawMessage(`{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}`)},
		Run: func(_ context.Context, j *rap.Job) (rap.Result, error) {
			var a struct{ Text string }
			err := json.Unmarshal(j.Arguments(), &a)
			return rap.Result{Text: a.Text}, err
		},
	}
}
