package serve

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/gateway"
	"github.com/belayhq/belay/internal/calm"
	"github.com/belayhq/belay/internal/config"
	"github.com/belayhq/belay/internal/faketool"
	"github.com/belayhq/belay/mcp"
	"github.com/belayhq/belay/proc"
)

func TestMain(m *testing.M) {
	proc.Main() // never returns in a guardian
	faketool.MaybeRun()
	_ = flag.Set("test.parallel", "12") // most of the time of a witness test is a ladder's; more at once would measure the machine
	goleak.VerifyTestMain(m)
}

// rig is a hub with a web server in front and fake tools behind.
type rig struct {
	t      *testing.T
	hub    *Hub
	tree   *belay.Tree
	web    *httptest.Server
	client *http.Client
	wit    *faketool.Witness
	logs   *faketool.Text
	sky    *calm.Watch // from the start of the test on
}

func newRig(t *testing.T, change func(*Options)) *rig {
	t.Helper()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{
		t: t, sky: calm.Start(t), tree: belay.NewTree(belay.Options{}), logs: &faketool.Text{},
		wit:    faketool.NewWitness(filepath.Join(t.TempDir(), "witness")),
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}},
	}
	o := Options{Tree: r.tree, Owner: "tester", Version: "test", Stderr: null, Log: slog.New(slog.NewTextHandler(r.logs, nil))}
	o.open = openImpatient
	if change != nil {
		change(&o)
	}
	r.hub = New(o)
	r.web = httptest.NewServer(r.hub)
	t.Cleanup(func() {
		r.close(belay.Cancellation{Cause: belay.CauseShutdown})
		r.client.CloseIdleConnections()
		r.web.Close()
		ctx, end := context.WithTimeout(context.Background(), 40*time.Second) // a remote server's stop is given up after 10 s
		defer end()
		if err := r.tree.Close(ctx); err != nil {
			t.Errorf("runs are left: %v", err)
		}
		null.Close()
		if t.Failed() {
			t.Log(r.logs.String())
		}
	})
	return r
}

// openImpatient opens sessions that give up waiting for evidence sooner than in
// 10 s, which most tests with remote servers would else take.
func openImpatient(ctx context.Context, cfg gateway.Config, out mcp.Outlet) (opened, error) {
	cfg.Ladder.ConfirmAfter = impatient
	cfg.Tools = maps.Clone(cfg.Tools)
	for name, p := range cfg.Tools {
		p.Ladder.ConfirmAfter = impatient
		cfg.Tools[name] = p
	}
	s, err := gateway.OpenTo(ctx, cfg, out)
	if err != nil {
		return nil, err
	}
	return s, nil
}

const impatient = 3 * time.Second

func (r *rig) close(c belay.Cancellation) {
	r.t.Helper()
	ctx, end := context.WithTimeout(context.Background(), 30*time.Second)
	defer end()
	if err := r.hub.Close(ctx, c); err != nil {
		r.t.Errorf("Close: %v", err)
	}
}

// fake defines a server of fake tools that writes into the rig's witness.
func (r *rig) fake(name string, flags ...string) Definition {
	s := config.New(name, config.Policy{})
	s.Command = faketool.Command(append([]string{"server", "-witness", r.wit.Path, "-name", name}, flags...)...)
	s.Grace, s.KillAfter = config.Some(200*time.Millisecond), config.Some(300*time.Millisecond)
	return Definition{Server: s}
}

// apply fails the test if the definitions are refused.
func (r *rig) apply(defs ...Definition) Changes {
	r.t.Helper()
	c, err := r.hub.Apply(defs)
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

// answer is what came back for one POST.
type answer struct {
	status  int
	session string
	body    string
}

// post sends one message and reads the whole response.
func (r *rig) post(path, session, body string, headers ...string) (answer, error) {
	return r.postIn(r.t.Context(), path, session, body, headers...)
}

func (r *rig) postIn(ctx context.Context, path, session, body string, headers ...string) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.web.URL+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if session != "" {
		req.Header.Set("Mcp-Session-Id", session)
		req.Header.Set("Mcp-Protocol-Version", "2025-11-25")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header.Get("Mcp-Session-Id"), string(text)}, err
}

func (r *rig) must(a answer, err error) answer {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
	return a
}

// begin opens a legacy session.
func (r *rig) begin(name string) string {
	r.t.Helper()
	a := r.must(r.post(Path(name), "", `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"rig","version":"1"}}}`))
	if a.status != 200 || a.session == "" {
		r.t.Fatalf("initialize: %+v", a)
	}
	if n := r.must(r.post(Path(name), a.session, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)); n.status != 202 {
		r.t.Fatalf("initialized: %+v", n)
	}
	return a.session
}

// call is a tools/call of a legacy session.
func call(id int, tool, args string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, id, tool, args)
}

// modern sends a tools/call of the 2026-07-28 revision.
func (r *rig) modern(name, tool, args string) (answer, error) {
	return r.modernIn(r.t.Context(), name, tool, args)
}

func (r *rig) modernIn(ctx context.Context, name, tool, args string) (answer, error) {
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":0,"method":"tools/call","params":{"name":%q,"arguments":%s,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"rig","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`, tool, args)
	return r.postIn(ctx, Path(name), "", body, "Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", "Mcp-Name: "+tool)
}

// async runs something whose answer is wanted later.
func async(f func() (answer, error)) <-chan answer {
	got := make(chan answer, 1)
	go func() {
		a, err := f()
		if err != nil {
			a.body += err.Error()
		}
		got <- a
	}()
	return got
}

func (r *rig) wait(got <-chan answer, within time.Duration) answer {
	r.t.Helper()
	a, err := calm.Receive(r.t, got, within)
	if err != nil {
		r.t.Fatalf("no answer: %v\n%s", err, r.logs)
	}
	return a
}

// event waits for a line in the witness.
func (r *rig) event(key, name string) faketool.Event {
	r.t.Helper()
	e, err := r.wit.WaitFor(key, name, 30*time.Second)
	if err != nil {
		r.t.Fatalf("%v\n%s", err, r.logs)
	}
	return e
}

// dial opens a connection of its own.
func (r *rig) dial() net.Conn {
	r.t.Helper()
	c, err := net.Dial("tcp", r.web.Listener.Addr().String())
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

// health reads /healthz.
func (r *rig) health() (h Health) {
	r.t.Helper()
	resp, err := r.client.Get(r.web.URL + "/healthz")
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&h); err != nil {
		r.t.Fatal(err)
	}
	return h
}

func (r *rig) eventually(what string, ok func() bool) {
	r.t.Helper()
	r.within(30*time.Second, what, ok)
}

func (r *rig) within(limit time.Duration, what string, ok func() bool) {
	r.t.Helper()
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	r.t.Fatalf("never: %s\n%s", what, r.logs)
}

// resumeStatus is what a resume is answered with.
func (r *rig) resumeStatus(session, id string) int {
	r.t.Helper()
	req, _ := http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.web.URL+Path("tools"), nil)
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Mcp-Session-Id", session)
	req.Header.Set("Last-Event-ID", id)
	resp, err := r.client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

func cancelAfter(d time.Duration) config.Option[config.Disconnect] {
	return config.Some(config.Disconnect{Mode: config.CancelAfter, After: d})
}
