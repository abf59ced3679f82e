package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/faketool"
)

// sent is one call of a stress client: its nonce goes in, and comes back in
// its answer and in no other.
type sent struct {
	nonce     string
	id        string
	cancelled bool // by the client: it may have an answer that was on its way
	stopped   bool // by an operator: it has an answer, which may be -32800
	answers   int
}

// stressClient is one caller with a session to itself.
type stressClient struct {
	t    *testing.T
	n    int
	s    *Session
	tree *belay.Tree
	rng  *rand.Rand
	wit  *faketool.Witness
	ops  sync.WaitGroup // operators

	again string // an id to be used again; of the goroutine of run

	mu    sync.Mutex
	calls map[string]*sent // by nonce
	byID  map[string]*sent // the newest with an id
	open  []*sent          // that may be cancelled
	news  chan struct{}    // capacity 1: an answer came
}

const (
	stressClients = 32
	stressCalls   = 10_000
	stressOpen    = 16 // calls in flight for each client
)

// Issue: 10,000 calls with random cancels at random moments from 32 concurrent
// clients: every call is settled exactly once, none with another's answer, and
// no run, goroutine, process or table entry is left.
func TestStress(t *testing.T) {
	tree := belay.NewTree(belay.Options{KeepRuns: 2 * stressCalls})
	clients := make([]*stressClient, stressClients)
	var starts sync.WaitGroup
	room := make(chan struct{}, 8) // a busy machine does not start 64 processes at once within the guardian's time
	for i := range clients {
		starts.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			clients[i] = openStress(t, tree, i)
		})
	}
	starts.Wait()
	if t.Failed() {
		t.FailNow()
	}
	begun := time.Now()
	var work sync.WaitGroup
	for _, c := range clients {
		work.Go(func() { c.run(stressCalls / stressClients) })
	}
	work.Wait()
	t.Logf("%d calls in %v", stressCalls, time.Since(begun).Round(time.Millisecond))
	var ends sync.WaitGroup
	for _, c := range clients {
		ends.Go(c.end)
	}
	ends.Wait()
	stressRuns(t, tree)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := tree.Close(ctx); err != nil {
		t.Error(err)
	}
}

// stressRuns holds what the tree remembers: as many runs as calls, each settled.
func stressRuns(t *testing.T, tree *belay.Tree) {
	t.Helper()
	if n := tree.InFlight(); n != 0 {
		t.Errorf("%d runs are in flight after the end", n)
	}
	list, err := tree.List(context.Background(), belay.Filter{Ended: true, Kinds: []belay.Kind{belay.KindCall}})
	if err != nil {
		t.Fatal(err)
	}
	count := map[belay.Outcome]int{}
	for _, i := range list {
		count[i.Outcome]++
		if !i.Outcome.Terminal() || i.Work != belay.Stopped && i.Work != belay.Unconfirmed {
			t.Errorf("run %s is %s, %s", i.ID, i.Outcome, i.Work)
		}
	}
	if want := stressCalls / stressClients * stressClients; len(list) != want {
		t.Errorf("%d runs for %d calls", len(list), want)
	}
	t.Logf("outcomes %v", count)
	if count[belay.Cancelled] < stressCalls/20 || count[belay.Completed] < stressCalls/20 {
		t.Errorf("that was no mixture: %v", count)
	}
}

// openStress opens a session; every fourth replaces its process by force.
func openStress(t *testing.T, tree *belay.Tree, n int) *stressClient {
	witness := filepath.Join(t.TempDir(), "w")
	flags := []string{"server", "-witness=" + witness, "-reply=" + []string{"none", "result", "iserror", "-32800"}[n%4]}
	out, in := io.Pipe()
	cfg := Config{
		Name: fmt.Sprint("stress", n), Command: faketool.Command(flags...), Tree: tree,
		Log: slog.New(slog.DiscardHandler), Owner: "stress", Policy: Policy{Ladder: shortLadder},
	}
	if n%8 == 4 {
		cfg.RestartSafe, cfg.Enforce = true, EnforceStrict
	}
	s, err := Open(context.Background(), cfg, in)
	if err != nil {
		t.Error(err)
		return nil
	}
	c := &stressClient{
		t: t, n: n, s: s, tree: tree, rng: rand.New(rand.NewPCG(uint64(n), 7)), wit: faketool.NewWitness(witness),
		calls: map[string]*sent{}, byID: map[string]*sent{}, news: make(chan struct{}, 1),
	}
	ready := make(chan struct{})
	go c.read(out, ready)
	s.Receive([]byte(`{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"s","version":"1"}}}`))
	<-ready
	s.Receive([]byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
	return c
}

// read judges every answer; it ends with the session.
func (c *stressClient) read(out io.Reader, ready chan struct{}) {
	in := bufio.NewReader(out)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Result struct {
				Content []struct{ Text string } `json:"content"`
			} `json:"result"`
			Error *faketool.Error `json:"error"`
		}
		if err := json.Unmarshal(line, &m); err != nil {
			c.t.Errorf("client %d got %q", c.n, line)
			continue
		}
		switch {
		case string(m.ID) == `"init"`:
			close(ready)
		case m.Method != "":
			c.t.Errorf("client %d got %s", c.n, line)
		case m.Error != nil:
			c.refused(string(m.ID), m.Error)
		case len(m.Result.Content) == 0:
			c.t.Errorf("client %d got %s", c.n, line)
		default:
			c.answered(string(m.ID), m.Result.Content[0].Text)
		}
		select {
		case c.news <- struct{}{}:
		default:
		}
	}
}

// answered takes a result: it must carry the nonce of a call with this id.
func (c *stressClient) answered(id, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	nonce := text
	if i := strings.LastIndex(text, "nonce-"); i >= 0 {
		nonce = text[i:]
	}
	nonce = strings.TrimRight(strings.FieldsFunc(nonce, func(r rune) bool { return r == ':' || r == '"' || r == ' ' })[0], "}")
	k := c.calls[nonce]
	switch {
	case k == nil && c.byID[id] != nil && c.byID[id].stopped: // a partial result without the nonce
		k = c.byID[id]
	case k == nil:
		c.t.Errorf("client %d: id %s was answered with %q, of nobody", c.n, id, text)
		return
	}
	if k.id != id {
		c.t.Errorf("client %d: id %s got the answer of %s", c.n, id, k.id)
	}
	c.settleLocked(k)
}

// refused takes an error: only a call that an operator stopped may have one.
func (c *stressClient) refused(id string, e *faketool.Error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.byID[id]
	if k == nil || !k.stopped || e.Code != belay.CodeCancelled {
		c.t.Errorf("client %d: id %s (%+v) got the error %d %s %s", c.n, id, k, e.Code, e.Message, e.Data)
		return
	}
	c.settleLocked(k)
}

func (c *stressClient) settleLocked(k *sent) {
	if k.answers++; k.answers > 1 {
		c.t.Errorf("client %d: id %s (%s) was answered %d times", c.n, k.id, k.nonce, k.answers)
	}
	c.open = slices.DeleteFunc(c.open, func(o *sent) bool { return o == k })
}

// run makes its calls and cancels at random, then waits for every answer that
// is due.
func (c *stressClient) run(calls int) {
	for made := 0; made < calls; {
		c.mu.Lock()
		open := len(c.open)
		c.mu.Unlock()
		switch dice := c.rng.IntN(10); {
		case dice < 6 && open < stressOpen:
			c.call(made)
			made++
		case dice < 8:
			c.cancel()
		case dice == 8 && c.rng.IntN(4) == 0:
			c.operate()
		default:
			runtime.Gosched()
			if open >= stressOpen {
				time.Sleep(time.Duration(c.rng.IntN(3000)) * time.Microsecond)
			}
		}
	}
	c.ops.Wait()
	for end := time.Now().Add(60 * time.Second); ; {
		c.mu.Lock()
		due := ""
		for _, k := range c.calls {
			if k.answers == 0 && !k.cancelled {
				due = k.id
			}
		}
		c.mu.Unlock()
		if due == "" {
			return
		}
		if time.Now().After(end) {
			c.t.Errorf("client %d: id %s was never answered", c.n, due)
			return
		}
		select {
		case <-c.news:
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// call sends one call: an echo, or a tool that takes a moment and listens.
func (c *stressClient) call(n int) {
	k := &sent{nonce: fmt.Sprintf("nonce-%d-%d", c.n, n), id: fmt.Sprint(n)}
	if n%3 == 0 {
		k.id = fmt.Sprintf(`"%d"`, n)
	}
	if c.again != "" {
		k.id, c.again = c.again, ""
	}
	args := fmt.Sprintf(`{"name":"echo","arguments":{"x":"%s"}}`, k.nonce)
	if c.rng.IntN(2) == 0 {
		deaf := c.s.cfg.RestartSafe && c.rng.IntN(40) == 0
		ticks := 1 + c.rng.IntN(5)
		if deaf {
			ticks = 60
		}
		args = fmt.Sprintf(`{"name":"tick","arguments":{"key":"%s","n":%d,"ms":%d,"deaf":%v}}`, k.nonce, ticks, 1+c.rng.IntN(4), deaf)
	}
	c.mu.Lock()
	c.calls[k.nonce], c.byID[k.id] = k, k
	c.open = append(c.open, k)
	c.mu.Unlock()
	c.s.Receive(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":%s}`, k.id, args))
}

// cancel cancels one of the own calls, now and then twice; now and then the
// next call uses its id again.
func (c *stressClient) cancel() {
	c.mu.Lock()
	if len(c.open) == 0 {
		c.mu.Unlock()
		return
	}
	k := c.open[c.rng.IntN(len(c.open))]
	k.cancelled = true
	c.open = slices.DeleteFunc(c.open, func(o *sent) bool { return o == k })
	c.mu.Unlock()
	frame := fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`, k.id)
	c.s.Receive(frame)
	if c.rng.IntN(3) == 0 {
		c.s.Receive(frame)
	}
	if !k.stopped && c.rng.IntN(2) == 0 {
		c.again = k.id
	}
}

// operate stops one of the calls from outside.
func (c *stressClient) operate() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.open) == 0 {
		return
	}
	k := c.open[c.rng.IntN(len(c.open))]
	k.stopped = true
	c.s.mu.Lock()
	var run *belay.Run
	for _, call := range c.s.calls {
		if call.id.Raw() == k.id {
			run = call.run
		}
	}
	c.s.mu.Unlock()
	if run == nil {
		return // its answer is on its way
	}
	c.ops.Go(func() {
		_, err := c.tree.Cancel(context.Background(), belay.CancelRequest{
			Filter:       belay.Filter{IDs: []belay.RunID{run.ID()}},
			Cancellation: belay.Cancellation{Cause: belay.CauseOperator, By: "operator"}, Escalate: true,
		})
		if err != nil {
			c.t.Error(err)
		}
	})
}

// end closes the session and looks for what is left.
func (c *stressClient) end() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := c.s.Close(ctx, belay.Cancellation{Cause: belay.CauseDisconnect}); err != nil {
		c.t.Errorf("client %d: close: %v", c.n, err)
		return
	}
	(&rig{t: c.t, s: c.s}).empty()
	if left := faketool.WaitDead(c.wit.Pids("server"), 5*time.Second); len(left) > 0 {
		c.t.Errorf("client %d: processes are left: %v", c.n, left)
	}
	if v := c.wit.Violations(); len(v) > 0 {
		c.t.Errorf("client %d: the server saw what no peer may send: %v", c.n, v)
	}
}

// Issue: 2,000 calls in flight through one session, all stopped at once: each
// is told within a second, by the server's own word, and the memory is back.
func TestStressManyAtOnce(t *testing.T) {
	const calls = 2000
	inTime(t, slower*time.Second, func() (from, to time.Time) {
		tree := belay.NewTree(belay.Options{KeepRuns: 1})
		r := newRig(t, func(c *Config) { c.Tree, c.Enforce, c.Ladder = tree, EnforceNever, belay.Ladder{} }, "-reply=result")
		r.tree = tree
		defer r.close()
		before := heap()
		var lines []byte
		for i := range calls {
			lines = fmt.Appendf(lines, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"tick","arguments":{"key":"k","n":100,"ms":1000}}}`+"\n", i)
		}
		r.ok(r.SendBytes(lines))
		r.until("every call runs", 30*time.Second, func() bool { return r.lines(" k start") == calls })
		full := heap()
		at := time.Now()
		_, err := tree.Cancel(context.Background(), belay.CancelRequest{
			Filter:       belay.Filter{Kinds: []belay.Kind{belay.KindCall}},
			Cancellation: belay.Cancellation{Cause: belay.CauseOperator}, Escalate: true,
		})
		r.ok(err)
		r.until("every call was told", 30*time.Second, func() bool { return r.lines(" k signal") == calls })
		last, _ := r.w.Last("k", "signal")
		for i := range calls {
			if _, err := r.Expect(fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
		r.until("every receipt is final", 20*time.Second, func() bool { return tree.InFlight() == 1 })
		r.echo()
		r.until("the tables are empty", 5*time.Second, func() bool {
			r.s.mu.Lock()
			defer r.s.mu.Unlock()
			u := r.s.current
			return len(r.s.calls) == 0 && len(u.calls) == 0 && u.busy == 0
		})
		r.s.mu.Lock()
		r.s.current.pruneStoppingLocked()
		stopping := len(r.s.current.stopping)
		r.s.mu.Unlock()
		if after := heap(); stopping != 0 || after > before+8<<20 {
			t.Errorf("heap before %d KiB, with the calls %d KiB, after %d KiB; %d calls are still noted", before>>10, full>>10, after>>10, stopping)
		}
		return at, last.Time
	})
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
