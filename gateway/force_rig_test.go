package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/calm"
	"github.com/belayhq/belay/internal/faketool"
)

// The ladder of most tests here: short, but longer than a busy machine's
// hiccups.
var shortLadder = belay.Ladder{Grace: 300 * time.Millisecond, KillAfter: 300 * time.Millisecond}

// slack is how much later than the ladder's times a forced stop may be
// (issue: the ladder's times + 250 ms).
const slack = 250 * time.Millisecond

// rig is a session with a raw client in front of it and a fake server, whose
// witness tells the truth, behind it.
type rig struct {
	*faketool.Client
	t    *testing.T
	s    *Session
	tree *belay.Tree
	w    *faketool.Witness
	logs *faketool.Text
	seq  int
	fed  chan struct{} // closed when nothing more is read from the client
	shut sync.Once
}

// newRig opens a session in front of a fake server with these flags. change
// may alter the configuration: enforce strict and shortLadder by default.
func newRig(t *testing.T, change func(*Config), flags ...string) *rig {
	t.Helper()
	witness := filepath.Join(t.TempDir(), "w")
	argv := faketool.Command(append([]string{"server", "-witness=" + witness}, flags...)...)
	r := rawRig(t, argv, witness, change)
	if _, err := r.Initialize("2025-06-18"); err != nil {
		t.Fatalf("initialize: %v\n%s", err, r.logs)
	}
	return r
}

// rawRig is newRig with any command and without the handshake.
func rawRig(t *testing.T, argv []string, witness string, change func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t, tree: belay.NewTree(belay.Options{}), w: faketool.NewWitness(witness), logs: &faketool.Text{}, fed: make(chan struct{})}
	cfg := Config{
		Name: "fake", Command: argv, Policy: Policy{Enforce: EnforceStrict, Ladder: shortLadder}, Tree: r.tree,
		Log: slog.New(slog.NewTextHandler(r.logs, &slog.HandlerOptions{Level: slog.LevelDebug})), Owner: "tester",
	}
	if change != nil {
		change(&cfg)
	}
	fromBelay, toClient := io.Pipe()
	fromClient, toBelay := io.Pipe()
	s, err := Open(context.Background(), cfg, toClient)
	if err != nil {
		t.Fatal(err)
	}
	r.s = s
	r.Client = faketool.NewClient(fromBelay, toBelay)
	r.Timeout = 30 * time.Second
	go r.feed(fromClient)
	t.Cleanup(r.close)
	return r
}

func (r *rig) feed(in io.Reader) {
	defer close(r.fed)
	_ = r.s.Feed(in)
}

// close ends the session and holds what must be true of every end: no run, no
// process that any fake wrote of itself, nothing in a table, no violation.
func (r *rig) close() { r.shut.Do(r.end) }

func (r *rig) end() {
	r.t.Helper()
	_ = r.CloseStdin()
	<-r.fed
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := r.s.Close(ctx, belay.Cancellation{Cause: belay.CauseDisconnect}); err != nil {
		r.t.Errorf("close: %v", err)
	}
	_ = r.Close()
	if err := r.tree.Close(ctx); err != nil {
		r.t.Errorf("tree: %v", err)
	}
	if n := r.tree.InFlight(); n != 0 {
		r.t.Errorf("%d runs are left in flight", n)
	}
	r.empty()
	if v := r.w.Violations(); len(v) > 0 {
		r.t.Errorf("the server saw what no peer may send: %v", v)
	}
	if left := faketool.WaitDead(r.w.Pids("server"), 5*time.Second); len(left) > 0 {
		r.t.Errorf("server processes are left: %v", left)
	}
	if r.t.Failed() {
		r.t.Logf("log of the session:\n%s", r.logs)
	}
}

// empty looks into the tables of a closed session.
func (r *rig) empty() {
	r.t.Helper()
	s := r.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.calls)+len(s.asks)+len(s.queue)+len(s.idle)+len(s.all)+s.leased != 0 {
		r.t.Errorf("left in the session: %d calls, %d asks, %d waiting, %d idle, %d processes, %d leased",
			len(s.calls), len(s.asks), len(s.queue), len(s.idle), len(s.all), s.leased)
	}
}

func (r *rig) ok(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatalf("%v\n%s", err, r.logs)
	}
}

// start sends a tools/call and waits until the witness saw its first event.
func (r *rig) start(id, tool, args string) {
	r.t.Helper()
	r.ok(r.Call(id, tool, args, ""))
	var a struct{ Key string }
	_ = json.Unmarshal([]byte(args), &a)
	r.seen(a.Key, "start")
}

// ask sends a tools/call under a fresh id and returns the answer.
func (r *rig) ask(tool, args string) faketool.Message {
	r.t.Helper()
	r.seq++
	id := fmt.Sprintf(`"ask-%d"`, r.seq)
	r.ok(r.Call(id, tool, args, ""))
	m, err := r.Expect(id)
	r.ok(err)
	return m
}

// lines counts the lines of the witness that hold a text. It parses nothing: a
// test that polls must not take the machine from what it waits for.
func (r *rig) lines(text string) int {
	b, err := os.ReadFile(r.w.Path)
	if err != nil && !os.IsNotExist(err) {
		r.t.Fatal(err)
	}
	return bytes.Count(b, []byte(text))
}

// seen waits until the witness has an event.
func (r *rig) seen(key, name string) {
	r.t.Helper()
	r.until("the witness has "+key+" "+name, 30*time.Second, func() bool {
		return r.lines(" "+key+" "+name) > 0
	})
}

// works reports whether the tool ticks within the time.
func (r *rig) works(key string, window time.Duration) bool {
	before := r.lines(" " + key + " tick ")
	for end := time.Now().Add(window); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if r.lines(" "+key+" tick ") > before {
			return true
		}
	}
	return false
}

// echo fails unless the session answers.
func (r *rig) echo() {
	r.t.Helper()
	r.seq++
	want := fmt.Sprintf(`{"n":%d}`, r.seq)
	if got := r.ask("echo", want).Text(); got != want {
		r.t.Fatalf("echo of %s: %s", want, got)
	}
}

type serverState struct {
	Pid, Start, Initialized, Ready int
}

// state asks the server who it is.
func (r *rig) state() (s serverState) {
	r.t.Helper()
	m := r.ask("state", "{}")
	if err := json.Unmarshal([]byte(m.Text()), &s); err != nil {
		r.t.Fatalf("state: %v in %s", err, m.Raw)
	}
	return s
}

// run finds the newest run with the caller's id.
func (r *rig) run(id string) *belay.Run {
	r.t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		list, _ := r.tree.List(context.Background(), belay.Filter{Ended: true, Kinds: []belay.Kind{belay.KindCall}})
		for _, l := range slices.Backward(list) {
			if l.Address == id {
				run, err := r.tree.Run(l.ID)
				r.ok(err)
				return run
			}
		}
	}
	r.t.Fatalf("no run has the id %s", id)
	return nil
}

// receipt waits for the final receipt of a call.
func (r *rig) receipt(id string) *belay.Receipt {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	receipt, err := r.run(id).Wait(ctx)
	if err != nil || receipt == nil {
		r.t.Fatalf("receipt of %s: %v, %v\n%s", id, receipt, err, r.logs)
	}
	return receipt
}

// stop presses Stop on a call as a person does at the command line.
func (r *rig) stop(id string, now bool) {
	r.t.Helper()
	req := belay.CancelRequest{
		Filter:       belay.Filter{IDs: []belay.RunID{r.run(id).ID()}},
		Cancellation: belay.Cancellation{Cause: belay.CauseUser, By: "tester", Via: "cli", Reason: "pressed"},
		Escalate:     true, Now: now,
	}
	results, err := r.tree.Cancel(context.Background(), req)
	r.ok(err)
	if len(results) != 1 || !results[0].Affected {
		r.t.Fatalf("the Stop of %s had no effect: %+v", id, results)
	}
}

// wantVerdict fails unless the receipt says this.
func (r *rig) wantVerdict(receipt *belay.Receipt, want belay.Verdict, scope belay.Scope) {
	r.t.Helper()
	if receipt.Verdict != want || receipt.Scope != scope {
		r.t.Errorf("verdict %q, scope %q, want %q, %q\n%s", receipt.Verdict, receipt.Scope, want, scope, timeline(receipt))
	}
	if want == belay.Confirmed && len(receipt.Survivors) > 0 {
		r.t.Errorf("confirmed with survivors: %v", receipt.Survivors)
	}
}

func timeline(receipt *belay.Receipt) string {
	var b strings.Builder
	for _, s := range receipt.Steps {
		fmt.Fprintf(&b, "%8v %s %s %s", s.At.Sub(receipt.Cancellation.At).Round(time.Millisecond), s.Step, s.Detail, s.Error)
		if s.Evidence != nil {
			fmt.Fprintf(&b, " [%s %s]", s.Evidence.Kind, s.Evidence.Scope)
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "held: %s", receipt.Held)
	return b.String()
}

// silent answers nothing more to an id.
func (r *rig) silent(id string) {
	r.t.Helper()
	if got := r.Responses(id); len(got) > 0 {
		r.t.Errorf("id %s was answered after its own cancel: %s", id, got[0].Raw)
	}
}

// dead fails unless every process that wrote under the key is gone soon.
func (r *rig) dead(key string) {
	r.t.Helper()
	pids := r.w.Pids(key)
	if len(pids) == 0 {
		r.t.Fatalf("nobody ever wrote under %q", key)
	}
	if left := faketool.WaitDead(pids, 10*time.Second); len(left) > 0 {
		r.t.Errorf("processes of %q are alive: %v", key, left)
	}
}

// until polls a condition.
func (r *rig) until(what string, within time.Duration, cond func() bool) {
	r.t.Helper()
	for end := time.Now().Add(within); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("%s: not within %v\n%s", what, within, r.logs)
		}
	}
}

// inTime holds that what is measured takes at most limit, whatever else the
// machine does meanwhile; see package calm.
func inTime(t *testing.T, limit time.Duration, measure func() (from, to time.Time)) {
	t.Helper()
	calm.Within(t, limit, measure)
}
