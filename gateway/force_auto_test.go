package gateway

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/calm"
	"github.com/belayhq/belay/internal/faketool"
)

// inMode makes a rig's session use this way of enforcement.
func inMode(e Enforce, more ...func(*Config)) func(*Config) {
	return func(c *Config) {
		c.Enforce = e
		c.Ladder.ConfirmAfter = time.Second // raised to its floor: grace + kill_after + 2 s
		for _, change := range more {
			change(c)
		}
	}
}

// DESIGN 11.1, MCP-G34: the default uses force on signs of life after the
// grace period: progress or a log message for the call, a process born during
// the call, processor time of the only call.
func TestForceAutoSignsOfLife(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name, tool, args string
		flags            []string
	}{
		{"progress", "tick", tickForever("k", `"deaf":true`), nil},
		{"a child", "fork", `{"key":"k","n":100000,"ms":10,"fork":["daemon"]}`, nil},
		{"processor time", "tick", `{"key":"k","n":100000,"ms":50,"deaf":true,"busy":true}`, []string{"-mute"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, inMode(EnforceAuto), c.flags...)
			r.start("1", c.tool, c.args)
			if c.tool == "fork" {
				r.seen("k/daemon", "tick")
			}
			r.ok(r.Cancel("1", "enough"))
			if c.tool == "fork" { // a later call must not hide whose child it is
				r.echo()
			}
			r.wantVerdict(r.receipt("1"), belay.Confirmed, belay.ScopeLocalTree)
			r.dead("k")
			if c.tool == "fork" {
				r.dead("k/")
			}
			r.echo()
			if s := r.state(); s.Start != 2 {
				t.Errorf("%+v: want the second process", s)
			}
			r.silent("1")
		})
	}
}

// DESIGN 11.1: a log message of the only call is a sign of life, also after
// earlier calls were stopped and obeyed in silence. The test itself is the server.
func TestForceAutoLogIsASign(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "belay") // short, for the socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	servers := make(chan *faketool.Client, 8)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				close(servers)
				return
			}
			servers <- faketool.NewClient(conn, conn)
		}
	}()
	r := rawRig(t, []string{os.Args[0], puppetMarker, socket}, filepath.Join(dir, "w"), inMode(EnforceAuto))
	server := <-servers
	t.Cleanup(func() {
		r.close()
		_ = l.Close()
		_ = server.Close()
		for s := range servers {
			_ = s.Close()
		}
	})
	serve := func(method, result string) {
		m, err := server.Notification(method)
		r.ok(err)
		r.ok(server.Sendf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result))
	}
	r.ok(r.Send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`))
	serve("initialize", `{"protocolVersion":"2025-06-18","capabilities":{"tools":{},"logging":{}},"serverInfo":{"name":"puppet","version":"1"}}`)
	_, err = r.Expect("0")
	r.ok(err)

	call := func(id string) {
		r.ok(r.Call(id, "t"+id, "{}", ""))
		asked, err := server.Await("call "+id, func(m faketool.Message) bool { return strings.Contains(m.Raw, `"t`+id+`"`) })
		r.ok(err)
		r.ok(r.Cancel(id, "enough"))
		_, err = server.Await("cancel", func(m faketool.Message) bool {
			return m.Method == "notifications/cancelled" && strings.Contains(m.Raw, asked.ID)
		})
		r.ok(err)
	}
	call("1") // obeys in silence and is kept
	if got := r.receipt("1"); got.Verdict != belay.Signalled || got.Held == "" {
		t.Errorf("silence: %s", timeline(got))
	}
	call("2")
	for r.run("2").Receipt().Work == belay.Stopping { // what comes before the grace is over does not count
		_ = server.Send(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"still at it"}}`)
		time.Sleep(50 * time.Millisecond)
	}
	r.wantVerdict(r.receipt("2"), belay.Confirmed, belay.ScopeLocalTree)
	if r.run("2").Receipt().StillActive {
		t.Error("still active after its process is gone")
	}
	if m := r.Messages(); strings.Contains(m[len(m)-1].Raw, "still at it") {
		t.Error("the log message of a stopped call was passed on")
	}
}

// DESIGN 11.1, MCP-G34: a server that obeys in silence is kept: same process,
// verdict signalled, and the receipt says that a second Stop uses force. The
// same Stop again by machinery changes nothing; a person's second Stop forces.
func TestForceAutoKeepsTheObedient(t *testing.T) {
	t.Parallel()
	for name, args := range map[string]string{
		"obedient":           `{"key":"k","n":100000,"ms":100}`,
		"deaf, without sign": `{"key":"k","n":100000,"ms":100,"deaf":true}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, inMode(EnforceAuto), "-mute")
			before := r.state()
			r.start("1", "tick", args)
			w := calm.Start(t)
			r.ok(r.Cancel("1", "enough"))
			r.ok(r.Cancel("1", "enough")) // a client that says it twice
			run := r.run("1")
			if run.Cancel(belay.Cancellation{Cause: belay.CauseDisconnect}) {
				t.Error("machinery's second Stop did something")
			}
			receipt := r.receipt("1")
			r.wantVerdict(receipt, belay.Signalled, "")
			if !strings.Contains(receipt.Held, "second Stop uses force") || !strings.Contains(receipt.Held, run.ID().String()) {
				t.Errorf("held %q", receipt.Held)
			}
			w.Within(t, receipt.Ended.Sub(receipt.Cancellation.At), 4*time.Second, "the word that nothing is forced")
			if after := r.state(); after.Pid != before.Pid {
				t.Errorf("the server was replaced: %+v", after)
			}
			if r.w.Count("server", "sigterm") != 0 {
				t.Error("the server was signalled")
			}
			r.stop("1", false)
			r.wantVerdict(r.receipt("1"), belay.Confirmed, belay.ScopeLocalTree)
			r.dead("k")
			r.echo()
			if after := r.state(); after.Pid == before.Pid || after.Start != 2 {
				t.Errorf("after the second Stop: %+v", after)
			}
		})
	}
}

// DESIGN 11.1, 11.16: lenient forces only on a person's second Stop; never and
// observe do not force at all, and say so.
func TestForceModesThatKeep(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name   string
		change func(*Config)
		held   string
		forced bool // by the second Stop
	}{
		{"lenient", inMode(EnforceLenient), "second Stop", true},
		{"lenient, restart safe", inMode(EnforceLenient, func(c *Config) { c.RestartSafe = true }), "second Stop", true},
		{"never", inMode(EnforceNever), "never forced", false},
		{"observe", inMode(EnforceStrict, func(c *Config) { c.Observe = true }), "never forced", false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, c.change)
			before := r.state()
			r.start("1", "tick", tickForever("k", `"deaf":true`))
			r.ok(r.Cancel("1", "enough"))
			receipt := r.receipt("1")
			r.wantVerdict(receipt, belay.Signalled, "")
			if !strings.Contains(receipt.Held, c.held) || !receipt.StillActive {
				t.Errorf("held %q, still active %v", receipt.Held, receipt.StillActive)
			}
			if !r.works("k", time.Second) || r.state().Pid != before.Pid {
				t.Error("force was used")
			}
			r.stop("1", false)
			receipt = r.receipt("1")
			if !c.forced {
				r.wantVerdict(receipt, belay.Signalled, "")
				r.stop("1", true)
				r.wantVerdict(r.receipt("1"), belay.Signalled, "")
				if r.state().Pid != before.Pid || !r.works("k", time.Second) {
					t.Error("force was used")
				}
				return
			}
			r.wantVerdict(receipt, belay.Confirmed, belay.ScopeLocalTree)
			r.dead("k")
			r.echo()
		})
	}
}

// DESIGN 11.3: three forced restarts within a minute open a circuit: told only
// from then on, and the log says so; a person's second Stop still forces.
func TestForceCircuit(t *testing.T) {
	t.Parallel()
	r := newRig(t, inMode(EnforceStrict))
	for i, id := range []string{"1", "2", "3", "4"} {
		key := "k" + id
		r.start(id, "tick", tickForever(key, `"deaf":true`))
		r.ok(r.Cancel(id, "enough"))
		receipt := r.receipt(id)
		if i < 3 {
			r.wantVerdict(receipt, belay.Confirmed, belay.ScopeLocalTree)
			continue
		}
		r.wantVerdict(receipt, belay.Signalled, "")
		if !strings.Contains(receipt.Held, "three forced restarts") {
			t.Errorf("held %q", receipt.Held)
		}
	}
	if n := strings.Count(r.logs.String(), "level=WARN msg=\"three forced restarts"); n != 1 {
		t.Errorf("the log says %d times that the circuit is open", n)
	}
	if n := strings.Count(r.logs.String(), "To choose otherwise"); n != 1 {
		t.Errorf("the log explains %d times why force was used", n)
	}
	if r.state().Start != 4 {
		t.Error("a fourth restart was forced")
	}
	r.stop("4", false)
	r.wantVerdict(r.receipt("4"), belay.Confirmed, belay.ScopeLocalTree)
	r.echo()
}

// Who settles the caller may come late, on a busy machine after the grace: the
// watch for signs of life is under way then, and shares no memory with it.
func TestForceAutoBeforeTheCallerIsSettled(t *testing.T) {
	t.Parallel()
	r := legacy(t, linkOptions{cfg: func(c *Config) { c.Enforce = EnforceNever }})
	r.tick("7", "w", `"n":60,"deaf":true,"quiet":true`)
	r.s.mu.Lock()
	c := r.s.calls["7"]
	r.s.mu.Unlock()
	run := r.runOf("7")
	r.cancel("7", "")
	r.until("the Stop is known", func() bool { return run.Cancellation() != nil })
	var watch sync.WaitGroup
	watch.Go(func() { _ = c.watchForLife(t.Context(), time.Now().Add(300*time.Millisecond), "") })
	for end := time.Now().Add(200 * time.Millisecond); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		r.s.mu.Lock()
		c.alive = make(chan struct{}, 1) // as stopLocked does
		r.s.mu.Unlock()
	}
	watch.Wait()
	r.saw("w", "done")
}
