package gateway

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/faketool"
	"github.com/belayhq/belay/proc"
)

// tickForever is the arguments of a tool that works until it is stopped.
func tickForever(key string, more ...string) string {
	return `{"key":"` + key + `","n":100000,"ms":10` + strings.Join(append([]string{""}, more...), ",") + `}`
}

// stopTime lets a tool work, cancels it, and returns when, and until when the
// witness of the whole call was still written.
func (r *rig) stopTime(id, key string) (from, to time.Time) {
	r.t.Helper()
	r.seen(key, "tick")
	at := time.Now()
	r.ok(r.Cancel(id, "enough"))
	r.receipt(id)
	if r.works(key, 100*time.Millisecond) {
		r.t.Errorf("%s still works after its receipt", key)
	}
	return at, r.w.LastTick(key)
}

// Issue, MCP-8, MCP-G33: a listening tool stops within 50 ms, a deaf one by
// force within the ladder's times + 250 ms, a SIGTERM-proof one by the kill.
// The receipt is confirmed, scope local-tree; the session lives on, and the
// next call works although the client does not initialize again.
func TestForceStrict(t *testing.T) {
	deaf := []string{"-deaf-term", "-stay"}
	cases := []struct {
		name   string
		flags  []string
		args   string
		ladder belay.Ladder
		limit  time.Duration
	}{
		{"listening", nil, "", shortLadder, 50 * time.Millisecond},
		{"deaf", nil, `"deaf":true`, shortLadder, shortLadder.Grace + slack},
		{"deaf to SIGTERM", deaf, `"deaf":true`, shortLadder, shortLadder.Grace + shortLadder.KillAfter + slack},
		{"deaf, default ladder", deaf, `"deaf":true`, belay.Ladder{}, belay.DefaultGrace + belay.DefaultKillAfter + slack},
	}
	for _, c := range cases {
		for _, mode := range []proc.CgroupMode{proc.CgroupAuto, proc.CgroupOff} {
			if c.ladder == (belay.Ladder{}) && mode == proc.CgroupOff {
				continue // five seconds, once
			}
			name := c.name
			if mode == proc.CgroupOff {
				name += ", no cgroup"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				inTime(t, c.limit, func() (from, to time.Time) {
					r := newRig(t, func(cfg *Config) { cfg.Ladder, cfg.Cgroup = c.ladder, mode }, c.flags...)
					defer r.close()
					before := r.state()
					var more []string
					if c.args != "" {
						more = []string{c.args}
					}
					r.start("1", "tick", tickForever("k", more...))
					from, to = r.stopTime("1", "k")
					r.wantVerdict(r.receipt("1"), belay.Confirmed, belay.ScopeLocalTree)
					r.echo()
					after := r.state()
					if after.Start != 2 || after.Initialized != 1 || after.Ready != 1 || after.Pid == before.Pid {
						t.Errorf("before %+v, after %+v: want a fresh process in the same session", before, after)
					}
					r.silent("1")
					return from, to
				})
			})
		}
	}
}

// Issue, MCP-G35: of a tool that forks in every way no process is left, with a
// cgroup and without.
func TestForceForks(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]proc.CgroupMode{"cgroup": proc.CgroupAuto, "no cgroup": proc.CgroupOff} {
		for _, enforce := range []Enforce{EnforceStrict, EnforceAuto} {
			t.Run(name+"/"+string(enforce), func(t *testing.T) {
				t.Parallel()
				r := newRig(t, func(cfg *Config) { cfg.Cgroup, cfg.Enforce = mode, enforce })
				r.start("1", "fork", tickForever("k", `"fork":["child","setsid","daemon","envi","respawn","termproof"]`, `"deaf":true`))
				for _, how := range []string{"child", "setsid", "daemon", "envi", "respawn", "termproof"} {
					r.seen("k/"+how, "tick")
				}
				r.ok(r.Cancel("1", "enough"))
				r.wantVerdict(r.receipt("1"), belay.Confirmed, belay.ScopeLocalTree)
				r.dead("k/")
				r.echo()
			})
		}
	}
}

// MCP-G33: an error reply does not end the ladder of strict, a result does.
func TestForceAndReplies(t *testing.T) {
	t.Parallel()
	t.Run("error reply, tool goes on", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, nil, "-early", "-reply=error0")
		r.start("1", "tick", tickForever("k", `"deaf":true`))
		r.ok(r.Cancel("1", "enough"))
		r.wantVerdict(r.receipt("1"), belay.Confirmed, belay.ScopeLocalTree)
		if r.works("k", 100*time.Millisecond) {
			t.Error("the tool works on")
		}
		r.silent("1")
		r.echo()
	})
	t.Run("result", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, nil, "-reply=result")
		before := r.state()
		r.start("1", "tick", tickForever("k"))
		r.ok(r.Cancel("1", "enough"))
		r.wantVerdict(r.receipt("1"), belay.Acknowledged, "")
		if after := r.state(); after.Pid != before.Pid {
			t.Errorf("the server was replaced after a result: %+v", after)
		}
		r.silent("1")
	})
	for _, child := range []string{"setsid", "termproof", "respawn"} {
		t.Run("result with a living child: "+child, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil, "-reply=result")
			before := r.state()
			r.start("1", "fork", tickForever("k", `"fork":["`+child+`"]`))
			r.seen("k/"+child, "tick")
			r.ok(r.Cancel("1", "enough"))
			receipt := r.receipt("1")
			r.wantVerdict(receipt, belay.Acknowledged, "")
			if !receipt.OK() {
				t.Errorf("not OK although nothing of the call is alive:\n%s", timeline(receipt))
			}
			r.dead("k/")
			if after := r.state(); after.Pid != before.Pid {
				t.Errorf("the server was replaced, though it had answered: %+v", after)
			}
		})
	}
	t.Run("result while the server is being ended", func(t *testing.T) {
		// The tool is told, is slow to answer, and does so only after SIGTERM
		// was sent: the process must still be ended and replaced.
		t.Parallel()
		r := newRig(t, nil, "-deaf-term", "-stay", "-reply=result", "-late=450ms")
		r.start("1", "tick", tickForever("k"))
		r.ok(r.Cancel("1", "enough"))
		r.receipt("1")
		r.echo()
		r.until("the old process is ended", 5*time.Second, func() bool {
			return len(faketool.WaitDead(r.w.Pids("server")[:1], 0)) == 0
		})
	})
}

// DESIGN 11.7: a tool that is known to clean up slowly, and was only found
// inside the tree, gets ten seconds between SIGTERM and SIGKILL.
func TestForceLetsSlowToolsCleanUp(t *testing.T) {
	t.Parallel()
	// A kill that comes much earlier than this counts as a person's press.
	r := newRig(t, func(c *Config) { c.Ladder.KillAfter = time.Second })
	dir := t.TempDir()
	tool := filepath.Join(dir, "git")
	r.ok(copyProgram("/bin/sh", tool))
	script := filepath.Join(dir, "script")
	r.ok(os.WriteFile(script, []byte(`trap '(trap "" TERM; sleep 1.5); echo >`+dir+`/cleaned; exit' TERM
echo >`+dir+`/runs
while :; do sleep 0.05; done
`), 0o600))
	text, err := json.Marshal("exec " + tool + " " + script + " commit")
	r.ok(err)
	r.start("1", "shell", `{"key":"k","text":`+string(text)+`}`)
	exists := func(name string) bool { _, err := os.Stat(filepath.Join(dir, name)); return err == nil }
	r.until("the slow tool runs", 10*time.Second, func() bool { return exists("runs") })
	r.ok(r.Cancel("1", "enough"))
	r.wantVerdict(r.receipt("1"), belay.Confirmed, belay.ScopeLocalTree)
	if !exists("cleaned") {
		t.Errorf("it was killed before it had cleaned up:\n%s", timeline(r.receipt("1")))
	}
	r.echo()
}
