//go:build unix

package acceptance

import (
	"testing"
	"time"

	"github.com/belayhq/belay"
)

// ORC-53, ORC-54, acceptance 40: after a restart status still answers, and
// after a kill the runs that were in flight are lost.
func TestAcceptance40Restart(t *testing.T) {
	t.Parallel()
	s := start(t, forOwners)
	c := s.begin(t, "ann", "tools")
	got := c.tick(t, `"stopped-40"`, "40-stopped")
	stopped := s.cancel(t, "op", "stopped-40", `"reason":"before the restart"`, `"wait":10`)
	wait(t, got)
	wait(t, c.call(t, `"done-40"`, "echo", `{}`))
	wait(t, c.call(t, `40`, "echo", `{}`))
	before := map[string]string{}
	for _, id := range []string{"stopped-40", "done-40", "40", stopped.Run.String()} {
		before[id] = s.tryStatus(t, "op", id).body
	}
	receipt := s.do(t, "GET", "/v1/receipts/"+stopped.Run.String(), "op", "").body
	if err := s.end(); err != nil {
		t.Fatal(err)
	}

	s = s.again(t)
	for id, body := range before {
		want(t, "status of "+id+" after the restart", s.tryStatus(t, "op", id), 200, body)
	}
	want(t, "receipt after the restart", s.do(t, "GET", "/v1/receipts/"+stopped.Run.String(), "op", ""), 200, receipt)
	want(t, "a stranger's status", s.tryStatus(t, "bob", "stopped-40"), 404, `{"detail":"Run not found"}`)
	if st := s.status(t, "ann", "stopped-40"); !st.Cancelled || deref(st.CancelReason) != "before the restart" {
		t.Errorf("%+v", st)
	}
	if again := s.cancel(t, "op", stopped.Run.String()); again.Status != "cancelled" || again.Affected {
		t.Errorf("cancel of a run of the process before: %+v", again)
	}

	c = s.begin(t, "ann", "tools")
	c.tick(t, `"lost-40"`, "40-lost")
	lost := s.status(t, "op", "lost-40").Run
	time.Sleep(500 * time.Millisecond) // the ledger promises what is older than its batch
	s.kill()
	s.quiet(t, "40-lost") // the guardian ended it

	s = s.again(t)
	for _, id := range []string{"lost-40", lost.String()} {
		if st := s.status(t, "op", id); st.Run != lost || st.Outcome != belay.Lost || st.Work != belay.Unconfirmed || st.Cancelled {
			t.Errorf("status of %s after the kill: %+v", id, st)
		}
	}
	want(t, "cancel of a lost run", s.tryCancel(t, "op", lost.String()), 200,
		`{"status":"queued","requestId":"`+lost.String()+`","reason":null,"run":"`+lost.String()+`","affected":false,"pending":false,"outcome":"lost"}`)
	for id, body := range before {
		want(t, "status of "+id+" after the kill", s.tryStatus(t, "op", id), 200, body)
	}
}

// The latch outlives a kill: nothing is let in that somebody has shut out.
func TestLatchOutlivesKill(t *testing.T) {
	t.Parallel()
	s := start(t)
	c := s.begin(t, "ann", "tools")
	got := c.tick(t, `"latched"`, "latched")
	a := s.do(t, "POST", "/v1/latch", "op", `{"reason":"fire","wait":10}`)
	if a.status != 200 {
		t.Fatalf("engage: %d %s", a.status, a.body)
	}
	if r := wait(t, got); r.code() != -32800 {
		t.Errorf("a call in flight: %s", r.raw)
	}
	s.quiet(t, "latched")
	refused := func(what string, c *session) {
		t.Helper()
		if r := wait(t, c.call(t, `"shut-out"`, "tick", tickArgs("shut-out"))); r.Error == nil || s.wit.count("shut-out", "") != 0 {
			t.Errorf("%s: let in: %s", what, r.raw)
		}
	}
	refused("engaged", c)
	s.kill()
	s = s.again(t)
	c = s.begin(t, "ann", "tools")
	refused("after the kill", c)
	if a := s.do(t, "DELETE", "/v1/latch", "ann", ""); a.status != 403 {
		t.Errorf("lifted by a user: %d %s", a.status, a.body)
	}
	if a := s.do(t, "DELETE", "/v1/latch", "op", ""); a.status != 200 {
		t.Errorf("lift: %d %s", a.status, a.body)
	}
	if r := wait(t, c.call(t, `"let-in"`, "echo", `{}`)); r.Result == nil {
		t.Errorf("after the lift: %s", r.raw)
	}
}
