package admin

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/belayhq/belay"
)

func names(runs []belay.Info) (list []string) {
	for _, i := range runs {
		list = append(list, i.Name)
	}
	return list
}

func named(name string) func(*belay.Spec) { return func(s *belay.Spec) { s.Name = name } }

// GET /v1/runs: filters, ages, states, and only what the caller may see.
func TestListRuns(t *testing.T) {
	r := newRig(t, Options{})
	tick := func() { time.Sleep(2 * time.Millisecond) } // ids sort by millisecond
	r.call("ann", "1", named("a"), func(s *belay.Spec) { s.Labels = map[string]string{"trace": "t=1"} })
	tick()
	r.call("bob", "1", named("b"), func(s *belay.Spec) { s.Server = "other" })
	tick()
	r.call("ann", "2", named("c"), func(s *belay.Spec) { s.Kind = belay.KindTurn })
	tick()
	r.call("ann", "3", named("d")).Finish(belay.Completed)
	tests := []struct {
		token, query string
		want         string
	}{
		{"op", "", "c b a"},
		{"reader", "?state=all", "d c b a"},
		{"op", "?state=ended", "d"},
		{"op", "?state=running", "c b a"},
		{"op", "?state=stopping", ""},
		{"op", "?owner=bob", "b"},
		{"op", "?server=other", "b"},
		{"op", "?kind=turn", "c"},
		{"op", "?kind=turn&kind=call", "c b a"},
		{"op", "?label=trace%3Dt%3D1", "a"},
		{"op", "?older_than=3600", ""},
		{"op", "?newer_than=3600", "c b a"},
		{"ann", "?state=all", "d c a"},
		{"ann", "?owner=bob", ""},
		{"bob", "", "b"},
	}
	for _, tt := range tests {
		got := into[runList](r, r.do("GET", "/v1/runs"+tt.query, tt.token, ""), 200)
		if list := strings.Join(names(got.Runs), " "); list != tt.want {
			t.Errorf("%s %s: %q, want %q", tt.token, tt.query, list, tt.want)
		}
	}
	var paged []string
	for next := ""; ; {
		got := into[runList](r, r.do("GET", "/v1/runs?state=all&limit=1&cursor="+next, "op", ""), 200)
		paged = append(paged, names(got.Runs)...)
		if next = got.Next; next == "" || len(paged) > 9 {
			break
		}
	}
	if !slices.Equal(paged, []string{"d", "c", "b", "a"}) {
		t.Errorf("pages %v", paged)
	}
}

// Every error of /v1 is a problem (RFC 9457) that does not repeat what was sent.
func TestProblems(t *testing.T) {
	r := newRig(t, Options{})
	mine := r.call("ann", "1")
	gone := r.call("ann", "2")
	gone.Finish(belay.Completed)
	foreign := "/v1/runs/" + mine.ID().String()
	unknown := "/v1/runs/" + belay.NewRunID().String()
	tests := []struct {
		method, path, token, body string
		status                    int
		kind                      string
	}{
		{"GET", "/v1/runs", "", "", 401, ""},
		{"GET", "/v1/runs", "wrong", "", 401, ""},
		{"GET", "/v1/runs", "nothing", "", 403, ""},
		{"GET", "/v1/nowhere", "op", "", 404, ""},
		{"PUT", "/v1/runs", "op", "", 405, ""},
		{"POST", "/v1/events", "op", "", 405, ""},
		{"GET", "/v1/runs?state=sekret", "op", "", 422, ""},
		{"GET", "/v1/runs?limit=0", "op", "", 422, ""},
		{"GET", "/v1/runs?cursor=sekret", "op", "", 400, "bad_request"},
		{"GET", "/v1/runs?label=sekret", "op", "", 400, "bad_request"},
		{"GET", "/v1/events?label=sekret", "op", "", 400, ""},
		{"GET", foreign, "bob", "", 404, "not_found"},
		{"GET", unknown, "bob", "", 404, "not_found"},
		{"GET", "/v1/runs/sekret", "bob", "", 404, "not_found"},
		{"POST", foreign + "/cancel", "bob", "{}", 404, "not_found"},
		{"POST", unknown + "/cancel", "bob", "{}", 404, "not_found"},
		{"POST", foreign + "/cancel", "reader", "{}", 403, ""},
		{"POST", "/v1/runs/" + gone.ID().String() + "/cancel", "ann", "{}", 409, "ended"},
		{"POST", foreign + "/cancel", "ann", "{", 400, ""},
		{"POST", foreign + "/cancel", "ann", `{"reason":7}`, 422, ""},
		{"POST", foreign + "/cancel", "ann", `{"other":true}`, 422, ""},
		{"POST", foreign + "/cancel", "ann", `{"wait":31}`, 422, ""},
		{"POST", foreign + "/cancel", "ann", `{"reason":"` + strings.Repeat("r", 1001) + `"}`, 422, ""},
		{"POST", foreign + "/cancel", "ann", `{"reason":"` + strings.Repeat("r", maxBody) + `"}`, 413, ""},
		{"POST", "/v1/cancel", "op", `{}`, 400, "bad_request"},
		{"POST", "/v1/cancel", "op", `{"all":true,"owner":"ann"}`, 400, "bad_request"},
		{"POST", "/v1/cancel", "op", `{"ids":["sekret"]}`, 400, "bad_request"},
		{"GET", "/v1/receipts/" + mine.ID().String(), "ann", "", 404, "not_found"},
		{"GET", "/v1/receipts?stop=sekret", "ann", "", 400, "bad_request"},
		{"GET", "/v1/receipts?newer_than=1h&format=csv", "ann", "", 422, ""}, // it would export all
		{"GET", "/v1/runs?lable=a=b", "ann", "", 422, ""},
		{"GET", "/v1/events?since=1h", "ann", "", 422, ""},
		{"GET", "/v1/latch", "op", "", 501, "unsupported"},
		{"POST", "/v1/latch", "ann", "{}", 403, ""},
	}
	for _, tt := range tests {
		got := r.do(tt.method, tt.path, tt.token, tt.body)
		var p huma.ErrorModel
		err := json.Unmarshal([]byte(got.body), &p)
		kind := "about:blank"
		if tt.kind != "" {
			kind = "urn:belay:error:" + tt.kind
		}
		if err != nil || got.status != tt.status || p.Status != tt.status || got.header.Get("Content-Type") != "application/problem+json" ||
			p.Type != kind || strings.Contains(got.body, "sekret\"") {
			t.Errorf("%s %.60s as %q: %d %s %s (%v)", tt.method, tt.path, tt.token, got.status, got.header.Get("Content-Type"), got.body, err)
		}
	}
	r.alive(mine)
	a, b := r.do("GET", foreign, "bob", ""), r.do("GET", unknown, "bob", "")
	if a.body != b.body {
		t.Errorf("a foreign run differs from an unknown one:\n%s\n%s", a.body, b.body)
	}
}

// One run with its subtree; cancel with a wait returns the receipts.
func TestCancelRun(t *testing.T) {
	cry := &crier{}
	r := newRig(t, Options{Broadcaster: cry})
	turn := r.call("ann", `"t"`, named("turn"), with(&stopper{}))
	call := r.call("ann", `"c"`, named("call"), with(&stopper{}), func(s *belay.Spec) { s.Parent = turn })
	path := "/v1/runs/" + turn.ID().String()
	tree := into[runTree](r, r.do("GET", path, "ann", ""), 200)
	if tree.Run.Name != "turn" || !slices.Equal(names(tree.Below), []string{"call"}) {
		t.Errorf("tree %+v", tree)
	}
	plan := into[cancelDone](r, r.do("POST", path+"/cancel", "ann", `{"dry_run":true}`), 200)
	if len(plan.Results) != 2 || plan.Results[0].Plan == nil {
		t.Errorf("dry run %+v", plan)
	}
	r.alive(turn, call)
	got := into[cancelDone](r, r.do("POST", path+"/cancel", "ann", `{"reason":"en\nough\u001b","wait":5}`), 200)
	if !got.Final || len(got.Results) != 2 || got.Results[1].Receipt.Cancellation.Cause != belay.CauseParent {
		t.Errorf("%+v", got)
	}
	for _, res := range got.Results {
		if !res.Affected || res.Receipt.Verdict != belay.Confirmed {
			t.Errorf("result %+v", res)
		}
	}
	if c := turn.Cancellation(); c.Cause != belay.CauseUser || c.By != "ann" || c.Via != "rest" || c.Reason != "en ough" && c.Reason != "en ough " {
		t.Errorf("cancellation %+v", c)
	}
	again := into[cancelDone](r, r.do("POST", path+"/cancel", "ann", ""), 200)
	if again.Results[0].Affected || !again.Final {
		t.Errorf("again %+v", again)
	}
	if n := cry.notices(); len(n) != 1 || n[0].RequestID != "t" {
		t.Errorf("broadcasts %+v", n)
	}
	list := into[receiptList](r, r.do("GET", "/v1/receipts?stop="+got.Stop.String(), "ann", ""), 200)
	if len(list.Receipts) != 2 {
		t.Errorf("receipts %+v", list)
	}
	if other := into[receiptList](r, r.do("GET", "/v1/receipts", "bob", ""), 200); len(other.Receipts) != 0 {
		t.Errorf("bob sees %+v", other)
	}
}

// Without a wait: 202, and the receipt is where Location says.
func TestCancelRunLater(t *testing.T) {
	r := newRig(t, Options{})
	s := &stopper{gone: make(chan struct{})}
	run := r.call("ann", `"x"`, with(s))
	got := r.do("POST", "/v1/runs/"+run.ID().String()+"/cancel", "op", `{"reason":"why"}`)
	done := into[cancelDone](r, got, 202)
	where := got.header.Get("Location")
	if done.Final || where != "/v1/receipts/"+run.ID().String() {
		t.Fatalf("%+v at %q", done, where)
	}
	if early := into[belay.Receipt](r, r.do("GET", where, "op", ""), 200); early.Final {
		t.Errorf("final already: %+v", early)
	}
	if esc := into[cancelDone](r, r.do("POST", "/v1/runs/"+run.ID().String()+"/cancel", "op", `{"escalate":true}`), 202); !esc.Results[0].Affected {
		t.Errorf("escalated: %+v", esc)
	}
	close(s.gone)
	r.wait(run)
	if late := into[belay.Receipt](r, r.do("GET", where, "op", ""), 200); !late.Final || late.Verdict != belay.Confirmed {
		t.Errorf("receipt %+v", late)
	}
}

// By filter and all, within the caller's reach only.
func TestCancelMany(t *testing.T) {
	r := newRig(t, Options{})
	label := func(s *belay.Spec) { s.Labels = map[string]string{"trace": "1"} }
	a, b, c := r.call("ann", "1", label), r.call("bob", "1", label), r.call("ann", "2")
	got := into[cancelDone](r, r.do("POST", "/v1/cancel", "ann", `{"labels":{"trace":"1"}}`), 200+2)
	if len(got.Results) != 1 || a.Cancellation() == nil {
		t.Errorf("%+v", got)
	}
	r.alive(b, c)
	into[cancelDone](r, r.do("POST", "/v1/cancel", "ann", `{"owner":"bob"}`), 200)
	r.alive(b)
	into[cancelDone](r, r.do("POST", "/v1/cancel", "ann", `{"all":true}`), 202)
	r.alive(b)
	if c.Cancellation() == nil {
		t.Error("all did not reach ann's second run")
	}
	into[cancelDone](r, r.do("POST", "/v1/cancel", "op", `{"all":true,"reason":"fire"}`), 202)
	if b.Cancellation() == nil || b.Cancellation().Cause != belay.CauseOperator {
		t.Errorf("bob's run: %+v", b.Cancellation())
	}
}

// The latch refuses first and stops then; it says who and why; only an operator turns it.
func TestLatch(t *testing.T) {
	latch := &Switch{}
	r := newRig(t, Options{Latch: latch})
	run := r.call("ann", "1")
	if got := into[LatchState](r, r.do("GET", "/v1/latch", "ann", ""), 200); got.Engaged {
		t.Errorf("%+v", got)
	}
	type engaged struct {
		Latch   LatchState
		Stopped *cancelDone
	}
	got := into[engaged](r, r.do("POST", "/v1/latch", "op", `{"reason":"incident 7","keep":true}`), 200)
	if !got.Latch.Engaged || got.Latch.By != "op" || got.Latch.Reason != "incident 7" || got.Stopped != nil || latch.Refuses() == nil {
		t.Errorf("%+v", got)
	}
	r.alive(run)
	got = into[engaged](r, r.do("POST", "/v1/latch", "op", `{"reason":"again"}`), 202)
	if got.Latch.Reason != "incident 7" || got.Stopped == nil || len(got.Stopped.Results) != 1 || run.Cancellation() == nil {
		t.Errorf("%+v", got)
	}
	if got := r.do("DELETE", "/v1/latch", "ann", ""); got.status != 403 || latch.Refuses() == nil {
		t.Errorf("ann lifted it: %d", got.status)
	}
	if got := into[LatchState](r, r.do("DELETE", "/v1/latch?reason=over", "op", ""), 200); got.Engaged || got.Reason != "over" || latch.Refuses() != nil {
		t.Errorf("%+v", got)
	}
}

// Nobody is redirected to another path: one that is not written plainly is none.
func TestNoRedirects(t *testing.T) {
	r := newRig(t, Options{})
	for _, path := range []string{"/v1/", "/v1//runs", "/v1/runs/", "/v1/./runs", "/v1/x/../runs", "/v1/runs/../../v1/whoami"} {
		for _, method := range []string{"GET", "POST"} {
			req, err := http.NewRequest(method, r.url+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer op")
			resp, err := http.DefaultTransport.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusNotFound || resp.Header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("%s %s: %d to %q", method, path, resp.StatusCode, resp.Header.Get("Location"))
			}
		}
	}
}

// A latch that refuses and cannot be written down stops what is in flight all the
// same, and says so.
func TestLatchOnFullDisk(t *testing.T) {
	latch := &Switch{Keep: func(LatchState) error { return errors.New("no space left on device") }}
	r := newRig(t, Options{Latch: latch})
	run := r.call("ann", "1", with(&stopper{}))
	type engaged struct {
		Latch   LatchState
		Stored  *bool
		Stopped *cancelDone
	}
	got := into[engaged](r, r.do("POST", "/v1/latch", "op", `{"reason":"fire","wait":5}`), 200)
	if !got.Latch.Engaged || got.Stored == nil || *got.Stored || got.Stopped == nil || run.Cancellation() == nil || latch.Refuses() == nil {
		t.Errorf("%+v, cancelled %v", got, run.Cancellation())
	}
	if got := r.do("DELETE", "/v1/latch", "op", ""); got.status != 503 || !strings.Contains(got.body, "stays engaged") || latch.Refuses() == nil {
		t.Errorf("lifted: %d %s", got.status, got.body)
	}
}

// What stops everything leaves sessions, which are no work: clients find their
// servers again. A session is stopped where it is named, or its kind is.
func TestStopAllLeavesSessions(t *testing.T) {
	latch := &Switch{}
	r := newRig(t, Options{Latch: latch})
	labels := func(s *belay.Spec) { s.Labels = map[string]string{"team": "a"} }
	session := r.call("ann", "", labels, func(s *belay.Spec) { s.Kind = belay.KindSession })
	under := `"under":"` + session.ID().String() + `"`
	for _, step := range []struct {
		path, body string
		session    bool
	}{
		{"/v1/cancel", `{"all":true}`, false},
		{"/v1/cancel", `{"labels":{"team":"a"}}`, false},
		{"/v1/cancel", `{"owner":"ann","states":["active"]}`, false},
		{"/v1/latch", `{}`, false},
		{"/v1/cancel", `{` + under + `,"kinds":["call"]}`, false},
		{"/v1/cancel", `{` + under + `}`, true},
	} {
		call := r.call("ann", "1", labels, func(s *belay.Spec) { s.Parent = session })
		into[map[string]any](r, r.do("POST", step.path, "op", step.body), 202)
		if call.Cancellation() == nil || (session.Cancellation() != nil) != step.session {
			t.Errorf("%s %s: call %v, session %v", step.path, step.body, call.Cancellation(), session.Cancellation())
		}
	}
	byKind := r.call("ann", "", func(s *belay.Spec) { s.Kind = belay.KindSession })
	if into[map[string]any](r, r.do("POST", "/v1/cancel", "op", `{"kinds":["session"]}`), 202); byKind.Cancellation() == nil {
		t.Error("a session was asked for by its kind, and lives")
	}
}

// DESIGN 12: the cause is user where all that is stopped is the asker's own.
func TestCauseOfMany(t *testing.T) {
	r := newRig(t, Options{})
	mine, own, other := r.call("op", "1"), r.call("op", "2"), r.call("ann", "3")
	into[cancelDone](r, r.do("POST", "/v1/cancel", "op", `{"ids":["`+mine.ID().String()+`"]}`), 202)
	into[cancelDone](r, r.do("POST", "/v1/cancel", "op", `{"all":true}`), 202)
	if c := mine.Cancellation(); c == nil || c.Cause != belay.CauseUser {
		t.Errorf("one's own: %+v", c)
	}
	for _, run := range []*belay.Run{own, other} {
		if c := run.Cancellation(); c == nil || c.Cause != belay.CauseOperator {
			t.Errorf("among others': %+v", c)
		}
	}
}

// The order of ORC-32 holds for /v1, too: who asks, may they, how often, media
// type, size, body, look-up.
func TestOrderOfChecks(t *testing.T) {
	r := newLeaseRig(t, Options{Limiter: NewRates(0.001, 1), LeaseLimiter: NewRates(0.001, 1)})
	run := r.call("ann", `"x"`)
	big := strings.Repeat(" ", maxBody+1)
	steps := []struct {
		token, body, kind string
		status            int
	}{
		{"", big, "text/plain", 401},
		{"nothing", big, "text/plain", 403},
		{"reader", big, "text/plain", 403}, // and nothing is taken from any allowance
		{"op", big, "text/plain", 415},
		{"op", big, "text/plain", 429},
		{"ann", big, "application/json", 413},
	}
	for _, tt := range steps {
		if got := r.do("POST", "/v1/runs/"+run.ID().String()+"/cancel", tt.token, tt.body, "Content-Type", tt.kind); got.status != tt.status {
			t.Errorf("%q %.10q %s: %d, want %d", tt.token, tt.body, tt.kind, got.status, tt.status)
		}
	}
	if got := r.do("POST", "/v1/runs/"+belay.NewRunID().String()+"/cancel", "bob", `{`); got.status != 400 {
		t.Errorf("a bad body of an unknown run: %d", got.status)
	}
	if got := r.do("POST", "/v1/runs", "nothing", `{`); got.status != 403 {
		t.Errorf("registration without permission: %d", got.status)
	}
	r.alive(run)
}
