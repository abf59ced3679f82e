package gateway

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/calm"
	"github.com/belayhq/belay/internal/faketool"
)

// Issue, MCP-G28: a server that crashes in the middle of calls gives each
// caller an error at once; the processes of those calls are ended, what an
// earlier call left behind lives on; for the next call the server is started
// again and put into the session.
func TestCrash(t *testing.T) {
	t.Parallel()
	for _, isolation := range []Isolation{IsolationShared, IsolationCall} {
		t.Run(string(isolation), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(c *Config) { c.Isolation = isolation }, "-no-subscribe")
			r.ask("devserver", `{"key":"dev"}`)
			r.seen("dev/setsid", "tick")
			time.Sleep(2 * time.Duration(bornUnit))
			var victims []string
			if isolation == IsolationShared { // with isolation call the crash is nobody else's
				r.start("1", "fork", tickForever("k", `"fork":["daemon","termproof"]`))
				for _, how := range []string{"daemon", "termproof"} {
					r.seen("k/"+how, "tick")
				}
				victims = append(victims, "1")
			}
			w := calm.Start(t)
			r.ok(r.Call("2", "crash", "{}", ""))
			for _, id := range append(victims, "2") {
				m, err := r.Expect(id)
				r.ok(err)
				if m.Error == nil || !strings.Contains(m.Error.Message, "ended before it answered") {
					t.Errorf("the caller of %s got %s", id, m.Raw)
				}
				crash, _ := r.w.Last("crash", "crash")
				w.Within(t, m.Time.Sub(crash.Time), time.Second, "the word to the caller of "+id)
			}
			if isolation == IsolationShared {
				r.dead("k/")
			}
			r.echo()
			if s := r.state(); isolation == IsolationShared && (s.Start != 2 || s.Initialized != 1 || s.Ready != 1) {
				t.Errorf("%+v: want the second process in the same session", s)
			}
			if !r.works("dev/setsid", 2*time.Second) {
				t.Error("what an earlier call left behind was ended")
			}
		})
	}
}

// A call that is being stopped gets its proof when its server crashes.
func TestCrashWhileStopping(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.Ladder, c.Enforce = belay.Ladder{}, EnforceAuto })
	r.start("1", "fork", tickForever("k", `"deaf":true`, `"fork":["daemon"]`))
	r.seen("k/daemon", "tick")
	r.ok(r.Cancel("1", "enough"))
	r.ok(r.Call("2", "crash", "{}", ""))
	r.wantVerdict(r.receipt("1"), belay.Confirmed, belay.ScopeLocalTree)
	r.dead("k/")
	r.silent("1")
	r.echo()
}

// A server that crashes at each call is started again each time, without a
// storm: only when somebody wants it.
func TestCrashAgainAndAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	for i := range 5 {
		id := fmt.Sprint(i)
		r.ok(r.Call(id, "crash", "{}", ""))
		if m, err := r.Expect(id); err != nil || m.Error == nil {
			t.Fatalf("%v %s", err, m.Raw)
		}
	}
	time.Sleep(300 * time.Millisecond)
	if n := faketool.Starts(r.w.Path + ".starts"); n != 5 {
		t.Errorf("%d starts for 5 calls", n)
	}
	r.echo()
}

// A server that cannot be started again gives each waiting call an error that
// says so; the next call tries again.
func TestCrashAndNoRestart(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil, "-die-from=2")
	r.ok(r.Call("1", "crash", "{}", ""))
	_, err := r.Expect("1")
	r.ok(err)
	for _, id := range []string{"2", "3"} {
		r.ok(r.Call(id, "echo", "{}", ""))
		m, err := r.Expect(id)
		r.ok(err)
		if m.Error == nil || !strings.Contains(m.Error.Message, "could not be started again") {
			t.Errorf("%s", m.Raw)
		}
	}
	if n := faketool.Starts(r.w.Path + ".starts"); n != 3 {
		t.Errorf("%d starts, want one for each call", n)
	}
}

// A server that dies before the handshake ends the session with a clear error.
func TestCrashBeforeHandshake(t *testing.T) {
	t.Parallel()
	witness := filepath.Join(t.TempDir(), "w")
	r := rawRig(t, faketool.Command("server", "-witness="+witness, "-die"), witness, nil)
	select {
	case <-r.s.Ended():
	case <-time.After(20 * time.Second):
		t.Fatal("the session goes on")
	}
	if err := r.s.Err(); !errors.Is(err, belay.ErrUnreachable) || !strings.Contains(err.Error(), "exit code 41") {
		t.Errorf("error %v", err)
	}
}

// Close ends calls, processes and goroutines, whatever is going on.
func TestCrashClose(t *testing.T) {
	t.Parallel()
	cases := map[string]func(r *rig){
		"a deaf call": func(r *rig) {
			r.start("1", "fork", tickForever("k", `"deaf":true`, `"fork":["daemon","respawn","termproof"]`))
		},
		"during grace": func(r *rig) {
			r.start("1", "tick", tickForever("k", `"deaf":true`))
			r.ok(r.Cancel("1", "enough"))
		},
		"during the drain": func(r *rig) {
			r.start("1", "tick", tickForever("k", `"deaf":true`))
			r.start("2", "tick", tickForever("other"))
			r.ok(r.Cancel("1", "enough"))
			r.until("the ladder waits", 5*time.Second, func() bool { return draining(r.s) })
			r.ok(r.Call("3", "echo", "{}", ""))
		},
		"during force": func(r *rig) {
			r.start("1", "tick", tickForever("k", `"deaf":true`))
			r.ok(r.Cancel("1", "enough"))
			r.seen("server", "sigterm")
		},
		"during the restart": func(r *rig) {
			r.start("1", "tick", tickForever("k", `"deaf":true`))
			r.stop("1", true)
			r.ok(r.Call("2", "echo", "{}", ""))
		},
	}
	for name, begin := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil, "-deaf-term", "-stay")
			begin(r)
			w, at := calm.Start(t), time.Now()
			r.close()
			w.Within(t, time.Since(at), 10*time.Second, "the end")
			if left := faketool.WaitDead(append(r.w.Pids("k/"), r.w.Pids("server")...), time.Second); len(left) > 0 {
				t.Errorf("processes are left: %v", left)
			}
		})
	}
}
