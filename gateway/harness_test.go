package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/faketool"
)

// link is one session under test: a raw client on one side, a fake server or a
// puppet on the other, and the witness file of the fake.
type link struct {
	*faketool.Client
	t    *testing.T
	tree *belay.Tree
	s    *Session
	wit  *faketool.Witness
	wire string // raw log of the fake
	logs *faketool.Text

	dirty bool // the server may have seen violations: the test provoked them
}

// linkOptions say what is put together.
type linkOptions struct {
	server []string      // flags of the fake
	cfg    func(*Config) // changes of the settings
	before func(*Session)
	in     io.ReadCloser // what the caller writes; nil: a pipe from the link's client
	out    io.WriteCloser
}

// quick is a ladder for tests that wait for its end.
var quick = belay.Ladder{Grace: 200 * time.Millisecond, KillAfter: 300 * time.Millisecond, ConfirmAfter: 3 * time.Second}

// open puts a session in front of a fake server.
func open(t *testing.T, o linkOptions) *link {
	t.Helper()
	dir := t.TempDir()
	r := &link{t: t, logs: &faketool.Text{}, wire: filepath.Join(dir, "wire"), wit: faketool.NewWitness(filepath.Join(dir, "witness"))}
	flags := append([]string{"server", "-witness", r.wit.Path, "-log", r.wire}, o.server...)
	r.start(faketool.Command(flags...), o)
	return r
}

// start opens the session of a link and feeds it what the client writes.
func (r *link) start(command []string, o linkOptions) {
	t := r.t
	t.Helper()
	r.tree = belay.NewTree(belay.Options{})
	cfg := Config{
		Name: "fake", Command: command, Tree: r.tree, Policy: Policy{Ladder: quick}, Owner: "tester", Stderr: devNull(t),
		Log: slog.New(slog.NewTextHandler(r.logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if o.cfg != nil {
		o.cfg(&cfg)
	}
	in, out := o.in, o.out
	if in == nil {
		toSession, fromClient := io.Pipe()
		fromSession, toClient := io.Pipe()
		r.Client = faketool.NewClient(fromSession, fromClient)
		in, out = toSession, toClient
	}
	s, err := Open(t.Context(), cfg, out)
	if err != nil {
		t.Fatal(err)
	}
	r.s = s
	if o.before != nil {
		o.before(s)
	}
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		_ = s.Feed(in)
	}()
	t.Cleanup(func() { r.end(in, fed) })
}

// end closes everything, and holds every test to what must be true of all: no
// run is left, and the server never saw what no peer may send.
func (r *link) end(in io.Closer, fed <-chan struct{}) {
	if r.Client != nil {
		_ = r.CloseStdin()
	}
	_ = in.Close()
	<-fed
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := r.s.Close(ctx, belay.Cancellation{Cause: belay.CauseDisconnect}); err != nil {
		r.t.Errorf("close the session: %v", err)
	}
	if err := r.tree.Close(ctx); err != nil {
		r.t.Errorf("close the tree: %v", err)
	}
	if r.Client != nil && !r.Ended(5*time.Second) {
		r.t.Error("the session did not close its output")
	}
	r.s.mu.Lock()
	calls, asks := len(r.s.calls), len(r.s.asks)
	r.s.mu.Unlock()
	if calls != 0 || asks != 0 {
		r.t.Errorf("%d calls and %d questions are left in the tables", calls, asks)
	}
	if r.wit != nil && !r.dirty {
		for _, v := range r.wit.Violations() {
			r.t.Errorf("the server saw a violation: %s", v.Detail)
		}
	}
	if r.t.Failed() {
		r.t.Logf("the session's log:\n%s", r.logs)
	}
}

// legacy is open with the handshake done.
func legacy(t *testing.T, o linkOptions) *link {
	t.Helper()
	r := open(t, o)
	r.initialize("2025-11-25")
	return r
}

func (r *link) initialize(version string) {
	r.t.Helper()
	if _, err := r.Initialize(version); err != nil {
		r.t.Fatal(err)
	}
}

func devNull(t *testing.T) *os.File {
	f, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// send writes one line or fails the test.
func (r *link) send(format string, args ...any) {
	r.t.Helper()
	if err := r.Sendf(format, args...); err != nil {
		r.t.Fatal(err)
	}
}

// tick starts a tick tool under the raw id and waits for its first tick.
func (r *link) tick(id, key, more string) {
	r.t.Helper()
	if more != "" {
		more = "," + more
	}
	if err := r.Call(id, "tick", fmt.Sprintf(`{"key":%q%s}`, key, more), ""); err != nil {
		r.t.Fatal(err)
	}
	r.saw(key, "tick")
}

// saw waits for an event of the witness.
func (r *link) saw(key, name string) faketool.Event {
	r.t.Helper()
	e, err := r.wit.WaitFor(key, name, 10*time.Second)
	if err != nil {
		r.t.Fatal(err)
	}
	return e
}

// cancel sends the caller's cancel.
func (r *link) cancel(id, reason string) {
	r.t.Helper()
	if err := r.Cancel(id, reason); err != nil {
		r.t.Fatal(err)
	}
}

// expect waits for the answer to a raw id.
func (r *link) expect(id string) faketool.Message {
	r.t.Helper()
	m, err := r.Expect(id)
	if err != nil {
		r.t.Fatalf("%v\n%s", err, r.logs)
	}
	return m
}

// works proves that the session still does: a fresh call is answered. It is a
// barrier too: what the server wrote before has been passed on by then.
func (r *link) works() {
	r.t.Helper()
	probes.Lock()
	probes.n++
	id := fmt.Sprintf(`"probe-%d"`, probes.n)
	probes.Unlock()
	if err := r.Call(id, "echo", `{"probe":`+id+`}`, ""); err != nil {
		r.t.Fatal(err)
	}
	if m := r.expect(id); !strings.Contains(m.Text(), strings.Trim(id, `"`)) {
		r.t.Fatalf("the session does not work any more: %s", m.Raw)
	}
}

var probes struct {
	sync.Mutex
	n int
}

// silent fails if the caller got an answer with this id after its cancel.
func (r *link) silent(id string, cancelled time.Time) {
	r.t.Helper()
	for _, m := range r.Messages() {
		if m.Time.After(cancelled) && m.IsResponse() && m.ID == id {
			r.t.Errorf("after its cancel the caller of %s got %s", id, m.Raw)
		}
	}
}

// muted fails if the caller got progress of a tick tool that the tool made
// after the server had read the cancel. What was made before may be under way.
func (r *link) muted(key, token string) {
	r.t.Helper()
	told, ticks := false, 0
	for _, e := range r.wit.Of(key, "") {
		told = told || e.Name == "signal"
		if e.Name == "tick" && !told {
			ticks++
		}
	}
	if !told {
		r.t.Errorf("the tool %s was never told", key)
	}
	for _, m := range r.Messages() {
		var p struct {
			ProgressToken json.RawMessage
			Progress      int
		}
		if m.Method != "notifications/progress" || json.Unmarshal(m.Params, &p) != nil || string(p.ProgressToken) != token {
			continue
		}
		if p.Progress > ticks {
			r.t.Errorf("%d ticks came before the cancel, but the caller got %s", ticks, m.Raw)
		}
	}
}

// runOf finds the run of the call with this raw id, also when it has ended.
func (r *link) runOf(id string) *belay.Run {
	r.t.Helper()
	var run *belay.Run
	r.until("a run with the id "+id, func() bool {
		list, err := r.tree.List(context.Background(), belay.Filter{Kinds: []belay.Kind{belay.KindCall}, Ended: true})
		if err != nil {
			r.t.Fatal(err)
		}
		for _, info := range list {
			if info.Address == id {
				run, err = r.tree.Run(info.ID)
				return err == nil
			}
		}
		return false
	})
	return run
}

// stop is a person's Stop of one call, from outside.
func (r *link) stop(id, reason string) *belay.Run {
	r.t.Helper()
	run := r.runOf(id)
	_, err := r.tree.Cancel(context.Background(), belay.CancelRequest{
		Filter:       belay.Filter{IDs: []belay.RunID{run.ID()}},
		Cancellation: belay.Cancellation{Cause: belay.CauseOperator, By: "operator", Via: "test", Reason: reason},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return run
}

// receipt waits for the end of a run and returns its receipt.
func (r *link) receipt(run *belay.Run) *belay.Receipt {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	receipt, err := run.Wait(ctx)
	if err != nil {
		r.t.Fatalf("the run does not end: %v (%+v)", err, receipt)
	}
	return receipt
}

// until polls for a condition that no signal tells of.
func (r *link) until(what string, ok func() bool) {
	r.t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("%s: not within 10 s\n%s", what, r.logs)
		}
	}
}

// serverGot returns what the fake read, oldest first, as raw lines.
func (r *link) serverGot() []string {
	data, err := os.ReadFile(r.wire)
	if err != nil {
		r.t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(data)) {
		part := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 4)
		if len(part) == 4 && part[2] == ">" {
			lines = append(lines, part[3])
		}
	}
	return lines
}

// gotWith filters what the fake read.
func (r *link) gotWith(text string) []string {
	var list []string
	for _, line := range r.serverGot() {
		if strings.Contains(line, text) {
			list = append(list, line)
		}
	}
	return list
}

// puppets is a server that the test plays: each process of it that is started
// is one raw client on the other end of its stdio.
type puppets struct {
	t        *testing.T
	listener net.Listener
	command  []string
}

// newPuppets returns a server command whose processes connect back to the test.
func newPuppets(t *testing.T) *puppets {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "puppet") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return &puppets{t: t, listener: listener, command: []string{self, puppetMarker, socket}}
}

// conn waits for the next process and returns its stdio.
func (p *puppets) conn() net.Conn {
	p.t.Helper()
	_ = p.listener.(*net.UnixListener).SetDeadline(time.Now().Add(10 * time.Second))
	conn, err := p.listener.Accept()
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// next waits for the next process of the server.
func (p *puppets) next() *faketool.Client {
	p.t.Helper()
	return newServer(p.t, p.conn())
}

// newServer lets the test read and write a process's stdio.
func newServer(t *testing.T, conn net.Conn) *faketool.Client {
	client := faketool.NewClient(conn, conn)
	t.Cleanup(func() {
		_ = conn.Close()
		client.Ended(5 * time.Second)
	})
	return client
}

// play opens a session in front of a puppet and returns both ends.
func play(t *testing.T, o linkOptions) (*link, *faketool.Client, *puppets) {
	t.Helper()
	p := newPuppets(t)
	r := &link{t: t, logs: &faketool.Text{}}
	r.start(p.command, o)
	return r, p.next(), p
}

// got waits for a message that contains the text, at either end.
func got(t *testing.T, c *faketool.Client, text string) faketool.Message {
	t.Helper()
	m, err := c.Await("a message with "+text, func(m faketool.Message) bool { return strings.Contains(m.Raw, text) })
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// say sends a line from either end.
func say(t *testing.T, c *faketool.Client, format string, args ...any) {
	t.Helper()
	if err := c.Sendf(format, args...); err != nil {
		t.Fatal(err)
	}
}

// never fails if the text was ever seen by c. Call it behind a barrier.
func never(t *testing.T, c *faketool.Client, text string) {
	t.Helper()
	for _, m := range c.Messages() {
		if strings.Contains(m.Raw, text) {
			t.Errorf("%q must not be passed on, but: %s", text, m.Raw)
		}
	}
}

// errorData reads the data of Belay's own answer.
type errorData struct {
	RequestID json.RawMessage `json:"requestId"`
	Run       string          `json:"run"`
	Reason    string          `json:"reason"`
	Cause     string          `json:"cause"`
	Partial   *bool           `json:"partial"`
}
