package admin

import (
	"strings"
	"testing"

	"github.com/belayhq/belay"
)

// DESIGN 11, 10: whoever speaks from inside a run stops what lies at or below it,
// and nothing else; it never approves, latches, erases, or uses the doors that
// find runs by name, whatever its permissions are.
func TestInside(t *testing.T) {
	everything := append([]string{}, permissions...)
	who := crowd{}
	latch := &Switch{}
	r := newLeaseRig(t, Options{Authorizer: who, Latch: latch, Erase: eraser(nil)})
	turn := r.call("ann", `"turn"`, named("turn"))
	mine := r.call("ann", `"call"`, func(s *belay.Spec) { s.Parent = turn })
	deep := r.call("ann", `"deep"`, func(s *belay.Spec) { s.Parent = mine })
	beside := r.call("ann", `"beside"`)
	foreign := r.call("bob", `"foreign"`)
	above := r.call("ann", `"above"`)
	inner := r.call("ann", `"inner"`, func(s *belay.Spec) { s.Parent = above })
	question := r.ask(beside)
	who["agent"] = insider{person{"ann", everything}, []string{turn.ID().String()}}
	who["bare"] = insider{person{"ann", []string{PermReadOwn, PermRegister}}, []string{inner.ID().String()}}
	who["lost"] = insider{person{"ann", everything}, []string{"a process that is gone"}}

	for _, tt := range []struct {
		token  string
		run    *belay.Run
		status int
	}{
		{"agent", beside, 404},
		{"agent", foreign, 404},
		{"agent", above, 404},
		{"bare", above, 404},
		{"bare", turn, 404},
		{"lost", turn, 404},
		{"lost", beside, 404},
	} {
		if got := r.do("POST", "/v1/runs/"+tt.run.ID().String()+"/cancel", tt.token, `{"force":true}`); got.status != tt.status {
			t.Errorf("%s stops %s: %d %s", tt.token, tt.run.Info().Address, got.status, got.body)
		}
	}
	for _, tt := range []struct {
		method, path, body string
		status             int
	}{
		{"POST", "/v1/cancel", `{"all":true}`, 403},
		{"POST", "/v1/cancel", `{"ids":["` + mine.ID().String() + `"]}`, 403},
		{"POST", "/orchestrate/cancel", `{"requestId":"` + mine.ID().String() + `"}`, 403},
		{"GET", "/orchestrate/status/" + mine.ID().String(), ``, 403},
		{"POST", "/notifications", notified(`"call"`), 403},
		{"POST", "/v1/latch", `{}`, 403},
		{"DELETE", "/v1/latch", ``, 403},
		{"GET", "/v1/approvals", ``, 403},
		{"POST", "/v1/approvals/" + question, `{"decision":"approve"}`, 403},
		{"POST", "/v1/approvals/" + question + "/preview", ``, 403},
		{"DELETE", "/v1/principals/bob", ``, 403},
		{"GET", "/v1/runs", ``, 200},
	} {
		if got := r.do(tt.method, tt.path, "agent", tt.body); got.status != tt.status {
			t.Errorf("%s %s: %d %s", tt.method, tt.path, got.status, got.body)
		}
	}
	if got := r.do("POST", "/rpc", "agent", `{"jsonrpc":"2.0","id":1,"method":"notifications/cancelled","params":{"requestId":"call"}}`); !strings.Contains(got.body, "-32003") {
		t.Errorf("/rpc: %s", got.body)
	}
	r.alive(turn, mine, deep, beside, foreign, above, inner)
	if latch.Refuses() != nil {
		t.Error("the latch was engaged")
	}

	into[cancelDone](r, r.do("POST", "/v1/runs/"+deep.ID().String()+"/cancel", "agent", `{"wait":0.01}`), 202)
	into[cancelDone](r, r.do("POST", "/v1/runs/"+inner.ID().String()+"/cancel", "bare", `{}`), 202) // without any runs.cancel
	r.alive(turn, mine, above)
	if c := deep.Cancellation(); c == nil || c.By != "ann (inside "+turn.ID().String()+")" || c.Cause != belay.CauseUser {
		t.Errorf("receipt's cancellation %+v", c)
	}
	if inner.Cancellation() == nil {
		t.Error("its own run was not stopped")
	}
	got := into[whoami](r, r.do("GET", "/v1/whoami", "agent", ""), 200)
	if len(got.Inside) != 1 || got.Inside[0] != turn.ID().String() {
		t.Errorf("whoami %+v", got)
	}
}

// What an agent registers hangs below the run that it speaks from, and it cannot
// hang it anywhere else.
func TestInsideRegisters(t *testing.T) {
	who := crowd{}
	r := newLeaseRig(t, Options{Authorizer: who})
	turn, beside := r.call("ann", `"turn"`), r.call("ann", `"beside"`)
	below := r.call("ann", `"below"`, func(s *belay.Spec) { s.Parent = turn })
	who["agent"] = insider{person{"ann", []string{PermRegister, PermCancelOwn}}, []string{turn.ID().String()}}
	who["lost"] = insider{person{"ann", []string{PermRegister, PermCancelOwn}}, []string{"?"}}
	got := into[registered](r, r.do("POST", "/v1/runs", "agent", `{"kind":"turn","name":"x"}`), 201)
	if got.Run.Parent != turn.ID() {
		t.Errorf("parent %s", got.Run.Parent)
	}
	got = into[registered](r, r.do("POST", "/v1/runs", "agent", `{"kind":"turn","name":"x","parent":"`+below.ID().String()+`"}`), 201)
	if got.Run.Parent != below.ID() {
		t.Errorf("parent %s", got.Run.Parent)
	}
	// It speaks for what it registered, and not for the turn that it works in.
	into[beat](r, r.do("POST", "/v1/runs/"+got.Run.ID.String()+"/heartbeat", "agent", ``), 200)
	who["outer"] = insider{person{"ann", []string{PermRegister, PermCancelOwn}}, nil}
	lease := into[registered](r, r.do("POST", "/v1/runs", "outer", `{"kind":"turn","name":"agent's own"}`), 201).Run.ID
	above, _ := r.tree.Run(lease)
	tool := r.call("ann", `"tool"`, func(s *belay.Spec) { s.Parent = above })
	who["tool"] = insider{person{"ann", []string{PermRegister, PermCancelOwn}}, []string{tool.ID().String()}}
	for path, body := range map[string]string{"/report": `{"outcome":"completed"}`, "/heartbeat": ``} {
		if got := r.do("POST", "/v1/runs/"+lease.String()+path, "tool", body); got.status != 404 {
			t.Errorf("%s from inside: %d %s", path, got.status, got.body)
		}
	}
	for token, body := range map[string]string{"agent": `{"kind":"turn","name":"x","parent":"` + beside.ID().String() + `"}`, "lost": `{"kind":"turn","name":"x"}`} {
		if got := r.do("POST", "/v1/runs", token, body); got.status != 404 {
			t.Errorf("%s: %d %s", token, got.status, got.body)
		}
	}
}

// An agent that asks without end, with its user's token, from inside of a run, uses
// up what agents have, and neither its user's Stops nor its user's streams: nobody
// is kept from stopping it by it (DESIGN 11, 10; ORC-36).
func TestInsideHasAnAccountOfItsOwn(t *testing.T) {
	who := crowd{}
	r := newLeaseRig(t, Options{Authorizer: who, Limiter: NewRates(0.001, 2), LeaseLimiter: NewRates(0.001, 2)})
	r.api.calm = 0
	turn := r.call("ann", `"turn"`)
	who["agent"] = insider{person{"ann", permissions}, []string{turn.ID().String()}}
	stop := "/v1/runs/" + turn.ID().String() + "/cancel"
	for range 10 {
		r.do("POST", stop, "agent", `{"dry_run":true}`)
	}
	if got := r.do("POST", stop, "agent", `{}`); got.status != 429 {
		t.Fatalf("agents have no bound: %d", got.status)
	}
	opened := 0
	for range maxStreamsOf + 1 {
		if r.api.streams.open(accountOf(who["agent"])) {
			opened++
			defer r.api.streams.closed(accountOf(who["agent"]))
		}
	}
	if opened != maxStreamsOf {
		t.Errorf("agents have %d streams", opened)
	}
	if !r.api.streams.open(accountOf(everybody["ann"])) {
		t.Fatal("the user gets no stream beside those of an agent")
	}
	r.api.streams.closed("ann")
	if got := r.do("POST", stop, "ann", `{}`); got.status != 200 && got.status != 202 {
		t.Errorf("the user cannot stop it: %d %s", got.status, got.body)
	}
}
