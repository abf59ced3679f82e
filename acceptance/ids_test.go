//go:build unix

package acceptance

import (
	"regexp"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/calm"
)

// regexpStop and regexpTime are what differs between two answers.
var regexpStop = regexp.MustCompile(`stop_[0-9a-z]{26}`)

// ORC-70 to ORC-74: the same id in two sessions is nobody's until a run id says
// whose; nothing is cancelled by the ambiguous one.
func TestAcceptance35AmbiguousID(t *testing.T) {
	t.Parallel()
	s := plain(t)
	annGot, bobGot := s.begin(t, "ann", "tools").tick(t, `35`, "35-ann"), s.begin(t, "bob", "tools").tick(t, `"35"`, "35-bob")
	for what, a := range map[string]answer{"cancel": s.tryCancel(t, "op", "35"), "status": s.tryStatus(t, "op", "35")} {
		got := into[several](t, a, 409)
		if got.Detail != "Request id is ambiguous" || len(got.Candidates) != 2 || got.More != 0 ||
			got.Candidates[0].RegisteredAt < got.Candidates[1].RegisteredAt || got.Candidates[0].Run == got.Candidates[1].Run {
			t.Errorf("%s: %s", what, a.body)
		}
	}
	s.still(t, "35-ann")
	s.still(t, "35-bob")
	list := into[several](t, s.tryCancel(t, "op", "35"), 409).Candidates // bob's came last
	if a := s.cancel(t, "op", list[0].Run.String(), `"wait":10`); !a.Affected || *a.Run != list[0].Run {
		t.Errorf("%+v", a)
	}
	if r := wait(t, bobGot); r.code() != -32800 || r.Error.Data.Run != list[0].Run.String() {
		t.Errorf("bob got %s", r.raw)
	}
	s.quiet(t, "35-bob")
	s.still(t, "35-ann")
	pending(t, annGot)
	if a := s.cancel(t, "op", list[1].Run.String()); !a.Affected {
		t.Errorf("%+v", a)
	}
	if r := wait(t, annGot); r.code() != -32800 || r.Error.Data.Run != list[1].Run.String() {
		t.Errorf("ann got %s", r.raw)
	}
	s.quiet(t, "35-ann")
}

// ORC-79: a cancel that comes before its call stops the sender's own next call
// with that id, once and for ten seconds, and nobody else's.
func TestAcceptance38EarlyCancel(t *testing.T) {
	t.Parallel()
	s := open(t)
	ann, bob := s.begin(t, "ann", "tools"), s.begin(t, "bob", "tools")
	if a := s.cancel(t, "ann", "early-38", `"reason":"never mind"`); a.Status != "queued" || !a.Pending || a.Affected || a.Run != nil {
		t.Errorf("%+v", a)
	}
	bobGot := bob.tick(t, `"early-38"`, "38-bob")
	if r := wait(t, ann.call(t, `"early-38"`, "tick", tickArgs("38-ann"))); r.http != 200 || r.code() != -32800 || r.Error.Data.Reason != "never mind" {
		t.Errorf("the early one's call: %s", r.raw)
	}
	s.still(t, "38-bob")
	pending(t, bobGot)
	again := ann.tick(t, `"early-38"`, "38-again") // one use
	if n := s.wit.count("38-ann", ""); n != 0 {
		t.Errorf("the stopped call did %d things", n)
	}
	s.cancel(t, "ann", "early-38")
	s.cancel(t, "bob", "early-38")
	wait(t, again)
	wait(t, bobGot)

	// Not even an operator's mark hits anybody else.
	if a := s.cancel(t, "op", "early-38-op"); !a.Pending {
		t.Errorf("%+v", a)
	}
	if r := wait(t, ann.call(t, `"early-38-op"`, "echo", `{}`)); r.Result == nil {
		t.Errorf("an operator's mark stopped a call of ann: %s", r.raw)
	}

	// A late cancel makes none.
	if r := wait(t, ann.call(t, `"late-38"`, "echo", `{}`)); r.Result == nil {
		t.Errorf("%s", r.raw)
	}
	if a := s.cancel(t, "ann", "late-38"); a.Status != "queued" || a.Pending || a.Outcome != belay.Completed {
		t.Errorf("%+v", a)
	}
	if r := wait(t, ann.call(t, `"late-38"`, "echo", `{}`)); r.Result == nil {
		t.Errorf("after a late cancel: %s", r.raw)
	}

	// Its time is over.
	s.cancel(t, "ann", "old-38")
	time.Sleep(10*time.Second + 200*time.Millisecond) // what is waited for is that nothing happens
	if r := wait(t, ann.call(t, `"old-38"`, "echo", `{}`)); r.Result == nil {
		t.Errorf("after ten seconds: %s", r.raw)
	}
}

// ORC-37: wait returns with the final verdict, or after its time with what is
// known.
func TestAcceptance39Wait(t *testing.T) {
	t.Parallel()
	s := plain(t)
	got := s.begin(t, "ann", "tools").tick(t, `"call-39"`, "39", `"deaf":true`)
	begun := time.Now()
	a := s.cancel(t, "op", "call-39", `"wait":30`)
	if deref(a.Verdict) != belay.Confirmed || deref(a.Work) != belay.Stopped || time.Since(begun) > 20*time.Second {
		t.Errorf("after %v: %+v", time.Since(begun), a)
	}
	wait(t, got)
	never := deaf(t)
	never.begin(t, "ann", "deaf").tick(t, `"call-39"`, "39")
	w := calm.Start(t)
	begun = time.Now()
	a = never.cancel(t, "op", "call-39", `"wait":2`)
	w.Within(t, time.Since(begun), 3900*time.Millisecond, "the answer after two seconds")
	if took := time.Since(begun); took < 1900*time.Millisecond || a.Verdict != nil || deref(a.Work) != belay.Stopping {
		t.Errorf("after %v: %+v", took, a)
	}
}

// ORC-37: a repeat with the same Idempotency-Key acts on the run that the first
// resolved to, and not on a new call with that id.
func TestAcceptance41Idempotency(t *testing.T) {
	t.Parallel()
	s := plain(t)
	c := s.begin(t, "ann", "tools")
	first := c.tick(t, `"call-41"`, "41-first")
	post := func(who, key string) cancelled {
		t.Helper()
		return into[cancelled](t, s.do(t, "POST", "/orchestrate/cancel", who, cancelBody("call-41", `"wait":10`), "Idempotency-Key", key), 200)
	}
	one := post("op", "key-41")
	wait(t, first)
	second := c.tick(t, `"call-41"`, "41-second")
	two := post("op", "key-41")
	if !one.Affected || two.Affected || *two.Run != *one.Run || two.Status != "cancelled" {
		t.Errorf("first %+v, repeat %+v", one, two)
	}
	s.still(t, "41-second")
	pending(t, second)
	want(t, "another id", s.do(t, "POST", "/orchestrate/cancel", "op", cancelBody("other-41"), "Idempotency-Key", "key-41"), 422,
		`{"detail":[{"type":"value_error","loc":["header","Idempotency-Key"],"msg":"Value error, this Idempotency-Key was used with another requestId"}]}`)
	if three := post("op", "key-41-2"); !three.Affected || *three.Run == *one.Run {
		t.Errorf("another key: %+v", three)
	}
	wait(t, second)
	s.quiet(t, "41-second")
}
