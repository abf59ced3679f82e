package node

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/auth"
	"github.com/belayhq/belay/internal/builtin"
	"github.com/belayhq/belay/internal/config"
	"github.com/belayhq/belay/internal/faketool"
	"github.com/belayhq/belay/lease"
	"github.com/belayhq/belay/serve"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a server on loopback with the built-in tools.
type rig struct {
	t    *testing.T
	dir  string
	tree *belay.Tree
	node *Server
	url  string
	log  *faketool.Text
	end  func()
}

// start serves with a state of its own in dir.
func start(t *testing.T, dir string, change func(*Options)) *rig {
	t.Helper()
	r := &rig{t: t, dir: dir, tree: belay.NewTree(belay.Options{}), log: &faketool.Text{}}
	o := Options{
		Serve: serve.Options{
			Tree: r.tree, Version: "test",
			Log: slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		},
		TokenFile: filepath.Join(dir, "token"), LatchFile: filepath.Join(dir, "latch.json"),
		Metrics: &MetricsOptions{}, Leases: &lease.Options{},
		Ledger: &LedgerOptions{Path: filepath.Join(dir, "ledger.db"), Required: true},
	}
	if change != nil {
		change(&o)
	}
	var err error
	if r.node, err = Open(o); err != nil {
		t.Fatal(err)
	}
	if _, err := r.node.Hub().Apply([]serve.Definition{{Server: config.New("demo", config.Policy{}), Serve: builtin.Serve}}); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.url = "http://" + l.Addr().String()
	web := r.node.HTTP()
	served := make(chan struct{})
	go func() { defer close(served); _ = web.Serve(l) }()
	r.end = sync.OnceFunc(func() {
		ctx, end := context.WithTimeout(context.Background(), 10*time.Second)
		defer end()
		if err := r.node.CloseRAP(ctx, belay.Cancellation{}); err != nil {
			t.Error(err)
		}
		if err := r.node.Hub().Close(ctx, belay.Cancellation{Cause: belay.CauseShutdown}); err != nil {
			t.Error(err)
		}
		brief, enough := context.WithTimeout(ctx, 2*time.Second)
		defer enough()
		_ = r.tree.Close(brief) // what can only be told has so long to prove its end, as in belay serve
		if err := r.node.Close(ctx); err != nil {
			t.Error(err)
		}
		_ = web.Close()
		<-served
		http.DefaultClient.CloseIdleConnections()
	})
	t.Cleanup(r.end)
	return r
}

// token is this user's own.
func (r *rig) token() string {
	r.t.Helper()
	token, err := auth.ReadLocalToken(filepath.Join(r.dir, "token"))
	if err != nil {
		r.t.Fatal(err)
	}
	return token
}

// ask sends a request with a token, or with none, and returns status and body.
func (r *rig) ask(method, path, token, body string) (int, string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.url+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// call calls the tool wait as a client of the stateless revision, and returns
// the answer's body.
func (r *rig) call(id, token string) (int, string) {
	r.t.Helper()
	body := `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"wait","arguments":{"seconds":60},"_meta":{` +
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, r.url+"/mcp/demo", strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	for name, value := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "wait",
	} {
		req.Header.Set(name, value)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Error(err)
		return 0, ""
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Error(err)
	}
	return res.StatusCode, string(text)
}

// running waits until so many calls are in flight, and returns them.
func (r *rig) running(n int) []belay.Info {
	r.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		runs, err := r.tree.List(r.t.Context(), belay.Filter{Kinds: []belay.Kind{belay.KindCall}})
		if err != nil {
			r.t.Fatal(err)
		}
		var work []belay.Info
		for _, i := range runs {
			if i.Name == "wait" && i.Work == belay.Running {
				work = append(work, i)
			}
		}
		if len(work) == n {
			return work
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("%d calls in flight, want %d: %+v", len(work), n, runs)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
