package admin

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belayhq/belay"
)

type cancelled struct {
	Status            string
	RequestID         string
	Run               *belay.RunID
	Affected, Pending bool
	Work, Verdict     *string
	Outcome           string
	Candidates        []struct{ Run string }
	More              int
}

// ORC-9, ORC-38, ORC-48, ORC-76: an unknown id waits for nothing, or as a tombstone.
func TestUnknownID(t *testing.T) {
	r := newRig(t, Options{})
	r.want(r.cancel("op", `{"requestId":"call-99"}`), 200, `{"status":"queued","requestId":"call-99","reason":null,"run":null,"affected":false,"pending":false,"work":null,"verdict":null}`)
	early := NewTombstones()
	r = newRig(t, Options{Early: early, Permissions: ownerDoors})
	r.want(r.cancel("ann", `{"requestId":"call-99"}`), 200, `{"status":"queued","requestId":"call-99","reason":null,"run":null,"affected":false,"pending":true,"work":null,"verdict":null}`)
	if _, ok := early.Take("bob", "call-99"); ok {
		t.Error("a stranger's call would be stopped (ORC-79)")
	}
	if c, ok := early.Take("ann", "call-99"); !ok || c.By != "ann" || c.Cause != belay.CauseUser {
		t.Errorf("tombstone %+v, %v", c, ok)
	}
	id := belay.NewRunID().String()
	if got := into[cancelled](r, r.cancel("ann", `{"requestId":"`+id+`"}`), 200); got.Pending || got.Run != nil {
		t.Errorf("a run id that nobody knows: %+v (ORC-79)", got)
	}
}

// ORC-40, ORC-75, DESIGN 11, 11: a run that ended by itself.
func TestEndedRun(t *testing.T) {
	r := newRig(t, Options{Early: NewTombstones()})
	run := r.call("ann", `"done"`)
	run.Finish(belay.Completed)
	for _, name := range []string{"done", run.ID().String()} {
		r.want(r.cancel("op", `{"requestId":"`+name+`"}`), 200, `{"status":"queued","requestId":"`+name+`","reason":null,"run":"`+run.ID().String()+`","affected":false,"pending":false,"outcome":"completed"}`)
	}
	r.alive(run)
	if got := r.status("op", "done"); got.status != 200 || !strings.Contains(got.body, `"outcome":"completed"`) {
		t.Errorf("status %d %s", got.status, got.body)
	}
}

// ORC-35, ORC-71, ORC-72, §5: what exists but is not the caller's has the same
// bytes as what does not exist.
func TestForeignIsUnknown(t *testing.T) {
	r := newRig(t, Options{Permissions: ownerDoors})
	run := r.call("bob", `"secret"`)
	same := func(known, invented string) {
		t.Helper()
		a := r.cancel("ann", `{"requestId":"`+known+`"}`)
		b := r.cancel("ann", `{"requestId":"`+invented+`"}`)
		if a.status != b.status || strings.ReplaceAll(a.body, known, invented) != b.body {
			t.Errorf("cancel tells them apart:\n%s\n%s", a.body, b.body)
		}
		c, d := r.status("ann", known), r.status("ann", invented)
		if c.status != 404 || c.body != d.body || d.status != 404 {
			t.Errorf("status tells them apart:\n%s\n%s", c.body, d.body)
		}
	}
	same("secret", "invent")
	same(run.ID().String(), belay.NewRunID().String())
	r.alive(run)
	if got := into[cancelled](r, r.cancel("bob", `{"requestId":"secret"}`), 200); !got.Affected {
		t.Errorf("the owner: %+v", got)
	}
	if c := run.Cancellation(); c.Cause != belay.CauseUser || c.By != "bob" {
		t.Errorf("cancellation %+v", c)
	}
}

// ORC-35: runs.read opens status, not cancel.
func TestPermissionsOpenTheirVerb(t *testing.T) {
	r := newRig(t, Options{Permissions: []string{PermRead}})
	run := r.call("ann", `"x"`)
	if got := r.status("reader", "x"); got.status != 200 {
		t.Errorf("status %d", got.status)
	}
	r.want(r.cancel("reader", `{"requestId":"x"}`), 403, `{"detail":"Access denied"}`)
	r.alive(run)
}

// ORC-69, ORC-70, ORC-74, acceptance 35: 1 and "1" of two sessions.
func TestAmbiguous(t *testing.T) {
	r := newRig(t, Options{})
	a := r.call("ann", `1`)
	b := r.call("bob", `"1"`)
	got := into[cancelled](r, r.cancel("op", `{"requestId":"1"}`), 409)
	if len(got.Candidates) != 2 || got.Candidates[0].Run != b.ID().String() || got.Candidates[1].Run != a.ID().String() || got.More != 0 {
		t.Errorf("candidates %+v, newest first", got)
	}
	if s := r.status("op", "1"); s.status != 409 || !strings.HasPrefix(s.body, `{"detail":"Request id is ambiguous","candidates":[{"run":"`+b.ID().String()+`","name":"tool:slow","registered_at":`) {
		t.Errorf("status %d %s", s.status, s.body)
	}
	r.alive(a, b)
	r.cancel("op", `{"requestId":"`+a.ID().String()+`"}`)
	if a.Cancellation() == nil {
		t.Error("its run id did not stop it")
	}
	r.alive(b)
}

// ORC-74: at most 100, and how many more.
func TestManyCandidates(t *testing.T) {
	r := newRig(t, Options{})
	for range 103 {
		r.call("ann", `1`)
	}
	if got := into[cancelled](r, r.cancel("op", `{"requestId":"1"}`), 409); len(got.Candidates) != 100 || got.More != 3 {
		t.Errorf("%d candidates, %d more", len(got.Candidates), got.More)
	}
}

// ORC-72, ORC-73, acceptance 36: strangers' ids do not make the owner's ambiguous.
func TestOwnersOne(t *testing.T) {
	r := newRig(t, Options{Permissions: ownerDoors})
	others := []*belay.Run{r.call("bob", `1`), r.call("bob", `"1"`), r.call("op", `1`)}
	mine := r.call("ann", `1`)
	if got := into[cancelled](r, r.cancel("ann", `{"requestId":"1"}`), 200); !got.Affected || *got.Run != mine.ID() {
		t.Errorf("%+v", got)
	}
	r.alive(others...)
}

// ORC-71: an id that looks like a run id does not shadow the run.
func TestNoShadow(t *testing.T) {
	r := newRig(t, Options{})
	named := r.call("ann", `1`)
	fake := r.call("bob", `"`+named.ID().String()+`"`)
	if got := into[cancelled](r, r.cancel("op", `{"requestId":"`+named.ID().String()+`"}`), 200); *got.Run != named.ID() {
		t.Errorf("%+v", got)
	}
	r.alive(fake)
}

// ORC-30: percent-decoded once.
func TestPathID(t *testing.T) {
	r := newRig(t, Options{})
	r.call("ann", `"a/b%2F c"`)
	if got := r.status("op", "a%2Fb%252F%20c"); got.status != 200 {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// ORC-39: a second cancel changes nothing, and escalates only when told to.
func TestSecondCancel(t *testing.T) {
	r := newRig(t, Options{})
	s := &stopper{gone: make(chan struct{})}
	run := r.call("ann", `"x"`, with(s))
	r.cancel("op", `{"requestId":"x","reason":"first"}`)
	got := into[cancelled](r, r.cancel("op", `{"requestId":"x","reason":"second"}`), 200)
	if got.Status != "cancelled" || got.Affected || *got.Work != "stopping" || got.Verdict != nil {
		t.Errorf("second: %+v", got)
	}
	if c := run.Cancellation(); c.Reason != "first" {
		t.Errorf("reason %q", c.Reason)
	}
	if got := into[cancelled](r, r.cancel("op", `{"requestId":"x","escalate":true}`), 200); !got.Affected {
		t.Errorf("escalated: %+v", got)
	}
	if !hasStep(run.Receipt(), belay.StepEscalated) {
		t.Errorf("no escalation in %+v", run.Receipt().Steps)
	}
	close(s.gone)
	r.wait(run)
	if n := len(s.times()); n != 1 {
		t.Errorf("told %d times", n)
	}
}

func hasStep(r *belay.Receipt, m belay.Means) bool {
	for _, s := range r.Steps {
		if s.Step == m {
			return true
		}
	}
	return false
}

// 200 concurrent cancels have one effect and one receipt (ORC-39).
func TestConcurrentCancels(t *testing.T) {
	cry := &crier{}
	r := newRig(t, Options{Broadcaster: cry})
	s := &stopper{}
	run := r.call("ann", `"x"`, with(s))
	var affected int
	var mu sync.Mutex
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() {
			got := r.cancel("op", `{"requestId":"x","wait":5}`)
			mu.Lock()
			defer mu.Unlock()
			if got.status != 200 || !strings.Contains(got.body, `"status":"cancelled"`) || !strings.Contains(got.body, `"verdict":"confirmed"`) {
				t.Errorf("%d %s", got.status, got.body)
			}
			if strings.Contains(got.body, `"affected":true`) {
				affected++
			}
		})
	}
	all.Wait()
	if told := len(s.times()); affected != 1 || told != 1 || len(cry.notices()) != 1 {
		t.Errorf("%d had an effect, %d told, %d broadcasts", affected, told, len(cry.notices()))
	}
	if run.Receipt().Verdict != belay.Confirmed {
		t.Error("not confirmed")
	}
}

// ORC-41, acceptance 5: a stopper that fails does not undo the cancel.
func TestStopperFails(t *testing.T) {
	r := newRig(t, Options{})
	run := r.call("ann", `"x"`, with(&stopper{fail: errors.New("broken")}))
	if got := into[cancelled](r, r.cancel("op", `{"requestId":"x"}`), 200); got.Status != "cancelled" || !got.Affected {
		t.Errorf("%+v", got)
	}
	run.Observe(belay.Evidence{Kind: belay.SeenResult})
	if receipt := r.wait(run); receipt.Cancellation == nil {
		t.Errorf("receipt %+v", receipt)
	}
}

// ORC-37, acceptance 39: wait holds the answer, but not for ever.
func TestWait(t *testing.T) {
	r := newRig(t, Options{})
	s := &stopper{gone: make(chan struct{})}
	r.call("ann", `"slow"`, with(s))
	start := time.Now()
	got := into[cancelled](r, r.cancel("op", `{"requestId":"slow","wait":0.2}`), 200)
	if took := time.Since(start); took < 200*time.Millisecond || got.Verdict != nil || *got.Work != "stopping" || !got.Affected {
		t.Errorf("after %v: %+v", took, got)
	}
	time.AfterFunc(50*time.Millisecond, func() { close(s.gone) })
	got = into[cancelled](r, r.cancel("op", `{"requestId":"slow","wait":10}`), 200)
	if got.Verdict == nil || *got.Verdict != "confirmed" || got.Affected {
		t.Errorf("%+v", got)
	}
}

// ORC-42, acceptance 43: the subtree stops with cause parent.
func TestSubtree(t *testing.T) {
	r := newRig(t, Options{})
	turn := r.call("ann", `"turn"`)
	var below []*belay.Run
	for i := range 3 {
		below = append(below, r.call("ann", fmt.Sprint(i), func(s *belay.Spec) { s.Parent = turn }, with(&stopper{})))
	}
	other := r.call("ann", `"other"`)
	r.cancel("op", `{"requestId":"turn"}`)
	for _, b := range below {
		if receipt := r.wait(b); receipt.Cancellation.Cause != belay.CauseParent || receipt.Verdict != belay.Confirmed {
			t.Errorf("receipt %+v", receipt)
		}
	}
	r.alive(other)
}

// ORC-37, acceptance 41: a repeat with the key never reaches a later run.
func TestIdempotencyKey(t *testing.T) {
	r := newRig(t, Options{Permissions: ownerDoors})
	first := r.call("ann", `"x"`, with(&stopper{}))
	a := into[cancelled](r, r.cancel("op", `{"requestId":"x","wait":5}`, "Idempotency-Key", "k"), 200)
	second := r.call("ann", `"x"`)
	b := into[cancelled](r, r.cancel("op", `{"requestId":"x"}`, "Idempotency-Key", "k"), 200)
	if !a.Affected || b.Affected || *b.Run != first.ID() || b.Status != "cancelled" {
		t.Errorf("first %+v\nrepeat %+v", a, b)
	}
	r.alive(second)
	if got := r.cancel("op", `{"requestId":"y"}`, "Idempotency-Key", "k"); got.status != 422 {
		t.Errorf("the key with another id: %d %s", got.status, got.body)
	}
	if got := into[cancelled](r, r.cancel("ann", `{"requestId":"x"}`, "Idempotency-Key", "k"), 200); *got.Run != second.ID() {
		t.Errorf("keys are the principal's own: %+v", got)
	}
}

// ORC-37: the repeat of a cancel that found nothing does not find a later run.
func TestIdempotentUnknown(t *testing.T) {
	r := newRig(t, Options{})
	r.cancel("op", `{"requestId":"x"}`, "Idempotency-Key", "k")
	run := r.call("ann", `"x"`)
	if got := into[cancelled](r, r.cancel("op", `{"requestId":"x"}`, "Idempotency-Key", "k"), 200); got.Status != "queued" {
		t.Errorf("%+v", got)
	}
	r.alive(run)
}

// ORC-7, ORC-44: the seed's frame, once, to the owner's sessions.
func TestBroadcast(t *testing.T) {
	cry := &crier{}
	r := newRig(t, Options{Broadcaster: cry})
	run := r.call("ann", `"x"`)
	r.cancel("op", `{"requestId":"x","reason":"why <not>"}`)
	r.cancel("op", `{"requestId":"x"}`)
	r.cancel("op", `{"requestId":"unknown"}`)
	got := cry.notices()
	if len(got) != 2 {
		t.Fatalf("%d broadcasts: %+v", len(got), got)
	}
	if want := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"x","reason":"why <not>","run":"` + run.ID().String() + `"}}`; string(got[0].Frame) != want || got[0].Owner != "ann" || got[0].Audience != ToOwner {
		t.Errorf("%s to %s of %s\nwant %s", got[0].Frame, got[0].Audience, got[0].Owner, want)
	}
	if want := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"unknown"}}`; string(got[1].Frame) != want || got[1].Owner != "op" {
		t.Errorf("%s to %s\nwant %s", got[1].Frame, got[1].Owner, want)
	}
}

// ORC-45, acceptance 13, 14, 19: what the broadcast does wrong changes nothing.
func TestBroadcastFails(t *testing.T) {
	for name, do := range map[string]func() error{
		"error": func() error { return errors.New("no list") },
		"panic": func() error { panic("broken") },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Options{Broadcaster: &crier{do: do}})
			run := r.call("ann", `"x"`)
			if got := into[cancelled](r, r.cancel("op", `{"requestId":"x"}`), 200); !got.Affected || run.Cancellation() == nil {
				t.Errorf("%+v", got)
			}
		})
	}
}

// stored is an error that says that the cancel was written down.
type storedError struct{}

func (storedError) Error() string { return "written down" }
func (storedError) Queued() bool  { return true }

// ORC-47 and ORC-49: the owner's node is silent, or nothing could be written.
func TestRemote(t *testing.T) {
	tree := belay.NewTree(belay.Options{})
	far := &remote{Tree: tree, err: storedError{}}
	r := newRig(t, Options{Control: far})
	defer func() { _ = tree.Close(t.Context()) }()
	run, err := tree.Register(belay.Spec{Kind: belay.KindCall, Name: "far", Address: `"x"`})
	if err != nil {
		t.Fatal(err)
	}
	defer run.Finish(belay.Completed)
	r.want(r.cancel("op", `{"requestId":"x"}`), http.StatusOK, `{"status":"queued","requestId":"x","reason":null,"run":"`+run.ID().String()+`","affected":false,"pending":true,"work":null,"verdict":null}`)
	far.err = belay.ErrUnreachable
	r.want(r.cancel("op", `{"requestId":"x"}`), http.StatusServiceUnavailable, `{"detail":"Cancel could not be recorded"}`)
}
