package acceptance

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
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
	time.Sleep(100 * time.Millisecond) // the ledger promises what is a few milliseconds old
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

// rank orders verdicts: evidence that comes later makes one better, never worse.
func rank(v belay.Verdict) int {
	return slices.Index([]belay.Verdict{belay.Unreachable, belay.Signalled, belay.Acknowledged, belay.Confirmed}, v)
}

// Numbers of the crash test.
const (
	crashRuns    = 1000
	crashAfter   = 500 // receipts that were returned
	crashWorkers = 32
)

// A kill -9 in the middle of 1,000 receipts that clients wait for: none that was
// returned is missing or torn afterwards, and runs that were in flight are lost
// (DESIGN 12: acknowledged receipt).
func TestCrashInTheMiddleOfReceipts(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *settings) {
		c.servers["answers"] = c.tool(map[string]any{"grace": "20s"}, "-name", "answers", "-reply", "iserror")
	})
	begun := time.Now()
	var answered []<-chan reply
	for n := range crashRuns / 50 {
		c := s.begin(t, "ann", "answers")
		for i := range 50 {
			id := fmt.Sprintf("crash-%d", n*50+i)
			answered = append(answered, c.call(t, `"`+id+`"`, "tick", `{"key":"crash","n":1,"ms":100000}`))
		}
	}
	if _, err := s.wit.wait("crash", "start", crashRuns, 60*time.Second); err != nil {
		t.Fatal(err)
	}
	runs := s.runs(t, "op", "?kind=call&owner=ann&limit=1000")
	if len(runs) != crashRuns {
		t.Fatalf("%d runs in flight", len(runs))
	}
	t.Logf("%v: %d runs are in flight", time.Since(begun), crashRuns)
	spared := runs[crashRuns-50:] // of which nobody asks for a cancel
	todo := make(chan belay.RunID, crashRuns)
	for _, i := range runs[:crashRuns-50] {
		todo <- i.ID
	}
	close(todo)

	var all sync.WaitGroup
	var mu sync.Mutex
	returned := map[belay.RunID]belay.Receipt{}
	var dead atomic.Bool
	enough := make(chan struct{})
	for range crashWorkers {
		all.Go(func() {
			for run := range todo {
				if dead.Load() {
					return
				}
				a, err := s.try("POST", "/v1/runs/"+run.String()+"/cancel", "op", `{"reason":"crash test","wait":30}`)
				if err != nil {
					return // killed
				}
				var got struct {
					Final   bool                 `json:"final"`
					Results []belay.CancelResult `json:"results"`
				}
				if err := json.Unmarshal([]byte(a.body), &got); err != nil || a.status != 200 && a.status != 202 {
					t.Errorf("%d %.300s", a.status, a.body)
					return
				}
				mu.Lock()
				for _, r := range got.Results {
					if r.Receipt != nil && r.Receipt.Final {
						returned[r.Run.ID] = *r.Receipt
					}
				}
				if len(returned) == crashAfter {
					close(enough)
				}
				mu.Unlock()
			}
		})
	}
	select {
	case <-enough:
	case <-time.After(60 * time.Second):
		mu.Lock()
		defer mu.Unlock()
		t.Fatalf("only %d receipts were returned", len(returned))
	}
	s.kill()
	t.Logf("%v: killed", time.Since(begun))
	dead.Store(true)
	all.Wait()
	for _, a := range answered { // the callers are not left waiting
		wait(t, a)
	}

	s = s.again(t)
	there := map[belay.RunID]belay.Receipt{}
	for _, r := range into[struct{ Receipts []belay.Receipt }](t, s.do(t, "GET", "/v1/receipts?limit=1000", "op", ""), 200).Receipts {
		there[r.Run] = r
	}
	for run, r := range returned {
		now, ok := there[run]
		if !ok || !now.Final || rank(now.Verdict) < rank(r.Verdict) || len(now.Steps) < len(r.Steps) || now.Cancellation == nil ||
			now.Cancellation.Stop != r.Cancellation.Stop || now.Cancellation.Reason != "crash test" || now.Outcome != belay.Cancelled {
			t.Fatalf("returned %+v\nnow %v %+v", r, ok, now)
		}
	}
	lost, known := 0, map[belay.RunID]belay.Info{}
	for _, i := range s.runs(t, "op", "?state=all&kind=call&limit=1000") {
		known[i.ID] = i
	}
	for _, i := range runs {
		switch now := known[i.ID]; now.Outcome {
		case belay.Lost:
			lost++
		case belay.Cancelled:
		default:
			t.Errorf("run %s is %+v", i.ID, now)
		}
	}
	for _, i := range spared {
		if st := s.status(t, "op", i.ID.String()); st.Outcome != belay.Lost || st.Work != belay.Unconfirmed {
			t.Errorf("in flight at the kill: %+v", st)
		}
	}
	t.Logf("%v: %d receipts were returned and are there; %d runs are lost", time.Since(begun), len(returned), lost)
}
