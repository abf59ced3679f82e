package front_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/acp/bridge"
	"github.com/belayhq/belay/acp/front"
	"github.com/belayhq/belay/internal/faketool"
	"github.com/belayhq/belay/local"
	"github.com/belayhq/belay/proc"
)

// rig is what the bridge has around a front: a tree, a socket, and other
// processes that see them.
type rig struct {
	t      *testing.T
	dir    string
	tree   *belay.Tree
	server *local.Server
	mesh   *local.Mesh
	f      *front.Front
	logs   faketool.Text
	runs   []*belay.Run // of the bridge
}

func newRig(t *testing.T, change ...func(*front.Options)) *rig {
	t.Helper()
	dir, err := os.MkdirTemp("", "belay") // sockets need short paths
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	r := &rig{t: t, dir: dir, tree: belay.NewTree(belay.Options{})}
	log := slog.New(slog.NewTextHandler(&r.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	var at atomic.Pointer[front.Front]
	r.server, err = local.Listen(t.Context(), local.Options{
		Dir: dir, Control: r.tree, InTree: proc.InTree, Log: log,
		Place: func(run belay.RunID, call local.Asked) []belay.RunID {
			if f := at.Load(); f != nil {
				return f.Where(run, call)
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.mesh = local.NewMesh(local.MeshOptions{Dirs: []string{dir}})
	o := front.Options{
		Tree: r.tree, Server: r.server, Mesh: r.mesh, Belay: os.Args[0], Log: log, Owner: "ann",
		Env: []string{local.EnvDir + "=" + dir, "BELAY_LOG=debug", "GORACE=atexit_sleep_ms=0"},
	}
	for _, c := range change {
		c(&o)
	}
	r.f = front.New(o)
	at.Store(r.f)
	t.Cleanup(r.end)
	return r
}

func (r *rig) end() {
	ctx, end := context.WithTimeout(context.Background(), 20*time.Second)
	defer end()
	if err := r.f.End(ctx); err != nil {
		r.t.Errorf("end the front: %v", err)
	}
	_ = r.server.Close()
	for _, run := range r.runs {
		run.Finish(belay.Completed)
		run.Observe(belay.Evidence{Kind: belay.SeenHandlerReturned, Scope: belay.ScopeHandler})
	}
	soon, end := context.WithTimeout(ctx, 200*time.Millisecond) // remote work that was told is waited for in vain
	defer end()
	_ = r.tree.Close(soon)
	if r.t.Failed() {
		r.t.Logf("log:\n%s", r.logs.String())
	}
}

func (r *rig) run(kind belay.Kind, name string, above *belay.Run, labels map[string]string) *belay.Run {
	r.t.Helper()
	run, err := r.tree.Register(belay.Spec{Kind: kind, Name: name, Parent: above, Labels: labels})
	if err != nil {
		r.t.Fatal(err)
	}
	r.runs = append(r.runs, run)
	return run
}

func (r *rig) session() *belay.Run { return r.run(belay.KindSession, "editor", nil, nil) }

// turn begins a turn, as the bridge does.
func (r *rig) turn(session *belay.Run) *belay.Run {
	r.t.Helper()
	turn := r.run(belay.KindTurn, "turn", session, nil)
	r.f.Place(session, turn)
	return turn
}

func (r *rig) toolCall(turn *belay.Run, id, name string) *belay.Run {
	r.t.Helper()
	return r.run(belay.KindCall, name, turn, map[string]string{"tool_call_id": id})
}

// fake is a stdio server with its witness.
type fake struct {
	*faketool.Witness
	argv []string
}

func newFake(t *testing.T, flags ...string) fake {
	t.Helper()
	w := faketool.NewWitness(filepath.Join(t.TempDir(), "w"))
	return fake{w, faketool.Command(append([]string{"server", "-witness=" + w.Path}, flags...)...)}
}

// entry is its entry of version 1; more are further members.
func (f fake) entry(name, more string) string {
	command, _ := json.Marshal(f.argv[0])
	args, _ := json.Marshal(f.argv[1:])
	return fmt.Sprintf(`{"name":%q,"command":%s,"args":%s,"env":[]%s}`, name, command, args, more)
}

func webEntry(kind, name, url, headers string) string {
	return fmt.Sprintf(`{"type":%q,"name":%q,"url":%q,"headers":[%s]}`, kind, name, url, headers)
}

func array(entries ...string) string { return "[" + strings.Join(entries, ",") + "]" }

// got is an entry as the agent reads it.
type got struct {
	Type, Name, Command string
	Args                []string
	Env                 []struct{ Name, Value string }
	URL                 string
	Headers             []struct{ Name, Value string }
	Meta                any `json:"_meta"`
}

func (r *rig) rewrite(session *belay.Run, servers string) (list []got, text string, passed []bridge.Passed) {
	r.t.Helper()
	out, passed, err := r.f.Rewrite(r.t.Context(), session, []byte(servers))
	if err != nil {
		r.t.Fatal(err)
	}
	if err := json.Unmarshal(out, &list); err != nil {
		r.t.Fatalf("%v: %s", err, out)
	}
	return list, string(out), passed
}

// start starts a server as an agent does, with no more environment than it must.
func (r *rig) start(e *got) *faketool.Client {
	r.t.Helper()
	env := []string{"PATH=" + os.Getenv("PATH")}
	for _, v := range e.Env {
		env = append(env, v.Name+"="+v.Value)
	}
	c, err := faketool.StartClient(append([]string{e.Command}, e.Args...), faketool.ClientOptions{Env: env, Alone: true, Stderr: &r.logs})
	if err != nil {
		r.t.Fatal(err)
	}
	c.Timeout = 20 * time.Second
	r.t.Cleanup(func() { _ = c.Close() })
	if _, err := c.Initialize("2025-06-18"); err != nil {
		r.t.Fatal(err)
	}
	return c
}

// fronted starts one stdio server behind the front.
func (r *rig) fronted(session *belay.Run, name string, f fake) *faketool.Client {
	r.t.Helper()
	list, _, passed := r.rewrite(session, array(f.entry(name, "")))
	if len(passed) > 0 {
		r.t.Fatalf("passed: %+v", passed)
	}
	return r.start(&list[0])
}

// tick calls the tick tool and waits for its first tick.
func (r *rig) tick(c *faketool.Client, f fake, id, key, use, more string) {
	r.t.Helper()
	meta := ""
	if use != "" {
		meta = fmt.Sprintf(`,"_meta":{"claudecode/toolUseId":%q}`, use)
	}
	r.ok(c.Sendf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"tick","arguments":{"key":%q,"n":3000%s}%s}}`, id, key, more, meta))
	r.saw(f, key, "tick")
}

func (r *rig) ok(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) saw(f fake, key, name string) {
	r.t.Helper()
	if _, err := f.WaitFor(key, name, 20*time.Second); err != nil {
		r.t.Fatal(err)
	}
}

// lives checks that a tool goes on.
func (r *rig) lives(f fake, key string) {
	r.t.Helper()
	if !f.StillTicking(key, 300*time.Millisecond) {
		r.t.Errorf("the tool %s does not tick any more", key)
	}
}

func (r *rig) expect(c *faketool.Client, id string) faketool.Message {
	r.t.Helper()
	m, err := c.Expect(id)
	r.ok(err)
	return m
}

// call finds the run of an MCP call anywhere, by its address.
func (r *rig) call(address string) belay.Info {
	r.t.Helper()
	var list []belay.Info
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		list, _ = r.mesh.List(r.t.Context(), belay.Filter{Kinds: []belay.Kind{belay.KindCall}, Ended: true})
		if i := slices.IndexFunc(list, func(i belay.Info) bool { return i.Address == address }); i >= 0 {
			return list[i]
		}
	}
	r.t.Fatalf("no run has the address %s: %+v", address, list)
	return belay.Info{}
}

// receipt waits until a run's receipt is final.
func (r *rig) receipt(id belay.RunID) *belay.Receipt {
	r.t.Helper()
	var d belay.Detail
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		var err error
		if d, err = r.mesh.Get(r.t.Context(), id); err == nil && d.Receipt != nil && d.Receipt.Final {
			return d.Receipt
		}
	}
	r.t.Fatalf("no final receipt: %+v", d)
	return nil
}

func stop(run *belay.Run) *belay.Cancellation {
	run.Cancel(belay.Cancellation{Cause: belay.CauseUser, By: "ann", Via: "acp"})
	return run.Cancellation()
}

// recorder is a server by HTTP that remembers what it was asked with.
type recorder struct {
	http.Handler
	mu   sync.Mutex
	seen []http.Header
}

func (h *recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	h.mu.Lock()
	h.seen = append(h.seen, req.Header.Clone())
	h.mu.Unlock()
	h.Handler.ServeHTTP(w, req)
}

func (h *recorder) headers() []http.Header {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.seen)
}

// connect is the official client at a server that is reached by HTTP.
func (r *rig) connect(e *got, version string) *sdk.ClientSession {
	r.t.Helper()
	transport := &http.Transport{}
	r.t.Cleanup(transport.CloseIdleConnections)
	hc := &http.Client{Transport: transport}
	var via sdk.Transport = &sdk.StreamableClientTransport{Endpoint: e.URL, HTTPClient: hc}
	if e.Type == "sse" {
		via = &sdk.SSEClientTransport{Endpoint: e.URL, HTTPClient: hc}
	}
	var o *sdk.ClientSessionOptions
	if version != "" {
		o = &sdk.ClientSessionOptions{ProtocolVersion: version}
	}
	s, err := sdk.NewClient(&sdk.Implementation{Name: "agent", Version: "1"}, nil).Connect(r.t.Context(), via, o)
	r.ok(err)
	r.t.Cleanup(func() { _ = s.Close() })
	return s
}

// belay is the path of Belay's own binary.
func (*rig) belay() string { return os.Args[0] }
