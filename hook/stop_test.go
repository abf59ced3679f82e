package hook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/calm"
)

func call(d *daemon) Call {
	return Call{Run: belay.NewRunID(), Server: "docker", Tool: "build", RequestID: "7", Args: []byte(` {"box":{"name":"b 1"},"secret":"hunter2"} `)}
}

// hooksOf are hooks for a daemon, by HTTP or by its command line client.
func hooksOf(d *daemon, byHTTP bool) *Hooks {
	do := func(method, what string) *Action {
		url := d.URL + "/containers/{args.box.name}" + what
		if byHTTP {
			return &Action{HTTP: &HTTP{Method: method, URL: url}}
		}
		return program("ctl", method, strings.Replace(url, "{args.box.name}", "b%201", 1))
	}
	return &Hooks{Tell: do("POST", "/stop"), Terminate: do("POST", "/stop"), Kill: do("POST", "/kill"), Alive: do("GET", "")}
}

// DESIGN 11, 6: work behind a daemon, which is nobody's descendant, is stopped
// by hooks, and the alive hook is the evidence.
func TestHooksStopWorkThatBelayDidNotStart(t *testing.T) {
	for _, byHTTP := range []bool{false, true} {
		for _, deaf := range []bool{false, true} {
			t.Run(fmt.Sprintf("http %t, deaf %t", byHTTP, deaf), func(t *testing.T) {
				t.Parallel()
				d := newDaemon(t)
				d.deaf = deaf
				d.start(t, "b 1")
				d.start(t, "other")
				h := hooksOf(d, byHTTP)
				if !deaf {
					h.Tell = nil
				}
				receipt := stopRun(t, h, call(d), usual)
				if !d.still("b 1") || d.still("other") {
					t.Errorf("b 1 still %t, other still %t", d.still("b 1"), d.still("other"))
				}
				if receipt.Verdict != belay.Confirmed || receipt.Scope != belay.ScopeHook {
					t.Errorf("receipt %+v", receipt)
				}
				last := receipt.Steps[len(receipt.Steps)-1]
				if last.Evidence == nil || last.Evidence.Kind != belay.SeenHookGone || !strings.Contains(last.Detail, "alive hook") {
					t.Errorf("last step %+v", last)
				}
				if killed := slices.ContainsFunc(receipt.Steps, func(s belay.Step) bool { return s.Step == belay.StepKill }); deaf && !killed {
					t.Errorf("killed %t, deaf %t: %+v", killed, deaf, receipt.Steps)
				}
			})
		}
	}
}

// Work that ends when it is told, or before the next step is taken, is seen to.
func TestTheToldEnd(t *testing.T) {
	d := newDaemon(t)
	d.start(t, "b 1")
	if receipt := stopRun(t, hooksOf(d, true), call(d), usual); receipt.Verdict != belay.Confirmed || receipt.Took() > 1500*time.Millisecond {
		t.Errorf("a terminate hook that found nothing to do: %+v", receipt)
	}
	d.start(t, "b 1")
	s := hooksOf(d, true).For(call(d))
	if err := s.Tell(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	var seen atomic.Int64
	for range 3 {
		all.Go(func() {
			if e := s.Watch(t.Context(), nil); e != nil && e.Kind == belay.SeenHookGone {
				seen.Add(1)
			}
		})
	}
	all.Wait()
	if e, err := s.Kill(t.Context(), nil); e != nil || err == nil {
		t.Errorf("a kill hook that found nothing, after the evidence: %v, %v", e, err)
	}
	if seen.Load() != 1 || !d.still("b 1") {
		t.Errorf("%d watchers saw the end", seen.Load())
	}
}

// With a watcher at work a step does not wait for the effect of its hook.
func TestAStepLeavesTheWatchingToTheWatcher(t *testing.T) {
	d := newDaemon(t)
	d.start(t, "b 1")
	h := hooksOf(d, true)
	h.Terminate = program("exit", "0") // does nothing
	s := h.For(call(d))
	watching, end := context.WithCancelCause(t.Context())
	seen := make(chan *belay.Evidence, 1)
	go func() { seen <- s.Watch(watching, nil) }()
	eventually(t, "the watcher is at work", func() bool { return len(s.baton) == 0 })
	if e, err := s.Terminate(t.Context(), nil); e != nil || err != nil {
		t.Errorf("%v, %v", e, err)
	}
	if _, err := s.Kill(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if e := <-seen; e == nil || e.Kind != belay.SeenHookGone {
		t.Errorf("the watcher saw %v", e)
	}
	end(nil)
}

// Only an alive hook that said yes and then no is proof: not the success of the
// others, not a no from the beginning, not an answer that means neither.
func TestNoProofWithoutAliveThatSaidYes(t *testing.T) {
	t.Parallel()
	for name, alive := range map[string]*Action{
		"none":          nil,
		"always no":     program("exit", "1"),
		"always yes":    program("exit", "0"),
		"neither":       program("exit", "7"),
		"cannot be run": {Command: []string{"/no/such/program"}},
		"hangs":         {Command: program("deaf").Command, Timeout: 50 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDaemon(t)
			d.start(t, "b 1")
			h := hooksOf(d, true)
			h.Tell, h.Alive = nil, alive
			receipt := stopRun(t, h, call(d), quick)
			if !d.still("b 1") {
				t.Error("the worker runs on")
			}
			if receipt.Verdict != belay.Signalled || receipt.Work != belay.Unconfirmed {
				t.Errorf("receipt %+v", receipt)
			}
		})
	}
}

// A hook that fails or hangs is an error of its step, and the next is taken.
func TestAHookThatFailsDelaysNoLaterStep(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pids")
	for name, bad := range map[string]*Action{
		"fails":   program("exit", "3"),
		"hangs":   {Command: program("hang", file).Command, Timeout: 150 * time.Millisecond},
		"missing": {Command: []string{"true", "{args.nobody}"}},
		"refused": {HTTP: &HTTP{URL: "http://127.0.0.1:1/"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDaemon(t)
			d.start(t, "b 1")
			h := hooksOf(d, true)
			h.Tell, h.Terminate = nil, bad
			receipt := stopRun(t, h, call(d), usual)
			if receipt.Verdict != belay.Confirmed || !d.still("b 1") {
				t.Errorf("receipt %+v", receipt)
			}
			if !slices.ContainsFunc(receipt.Steps, func(s belay.Step) bool {
				return s.Step == belay.StepTerminate && strings.Contains(s.Error, "terminate hook") && !strings.Contains(s.Error, "secret-output")
			}) {
				t.Errorf("steps %+v", receipt.Steps)
			}
		})
	}
	for _, pid := range pids(t, file) {
		if !dead(pid) {
			t.Errorf("process %d of the hook that hung is alive", pid)
		}
	}
}

// What a command starts does not outlive it, and its output is bounded.
func TestACommandLeavesNothingBehind(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pids")
	s := (&Hooks{Tell: program("leave", file), Kill: program("shout")}).For(Call{})
	if err := s.Tell(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids(t, file) {
		if !dead(pid) {
			t.Errorf("child %d is alive", pid)
		}
	}
	if _, err := s.Kill(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// The end of the ladder ends a hook that still runs.
func TestTheEndOfTheLadderEndsAHook(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pids")
	s := (&Hooks{Kill: program("hang", file)}).For(Call{})
	why := errors.New("over")
	ctx, end := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := s.Kill(ctx, nil)
		done <- err
	}()
	list := pids(t, file)
	end(why)
	if err := <-done; !errors.Is(err, why) {
		t.Errorf("error %v", err)
	}
	for _, pid := range list {
		if !dead(pid) {
			t.Errorf("process %d is alive", pid)
		}
	}
}

// DESIGN 11, 16: observe mode tells and looks, and never forces.
func TestObserveNeverForces(t *testing.T) {
	d := newDaemon(t)
	d.deaf = true
	d.start(t, "b 1")
	c := call(d)
	c.Observe = true
	s := hooksOf(d, true).For(c)
	if s.Forceful() {
		t.Error("forceful")
	}
	if err := s.Tell(t.Context(), nil); err != nil {
		t.Error(err)
	}
	for _, do := range []func(context.Context, *belay.Cancellation) (*belay.Evidence, error){s.Terminate, s.Kill} {
		if e, err := do(t.Context(), nil); e != nil || !errors.Is(err, belay.ErrRestrained) {
			t.Errorf("%v, %v", e, err)
		}
	}
	if alive, known, err := s.Alive(t.Context(), nil); !alive || !known || err != nil || d.still("b 1") {
		t.Errorf("alive %t, known %t, %v", alive, known, err)
	}
}

// A command gets its values as single arguments and in its environment, and
// what looks like a shell's business is text.
func TestACommandGetsItsValuesAsData(t *testing.T) {
	file := filepath.Join(t.TempDir(), "said")
	a := program("say", file, "--name={args.n}", "{args.deep.er}", "{tool}:{request_id}", "{{.State}}", "--", "{args.dash}")
	run := belay.NewRunID()
	s := (&Hooks{Tell: a}).For(Call{
		Run: run, Server: "srv", Tool: "t", RequestID: "1.0",
		Args: []byte(`{"n":"$(touch /tmp/x); 'a\" b","deep":{"er":12345678901234567890},"dash":"-rf"}`),
	})
	if err := s.Tell(t.Context(), &belay.Cancellation{Cause: belay.CauseUser, Reason: "a\nb"}); err != nil {
		t.Fatal(err)
	}
	got, _ := os.ReadFile(file)
	for _, line := range []string{
		`--name=$(touch /tmp/x); 'a" b`, `12345678901234567890`, `t:1.0`, `{{.State}}`, `--`, `-rf`,
		"BELAY_RUN=" + run.String(), "BELAY_SERVER=srv", "BELAY_TOOL=t", "BELAY_REQUEST_ID=1.0", "BELAY_REASON=a b", "BELAY_CAUSE=user", "BELAY_STEP=tell",
	} {
		if !slices.Contains(strings.Split(string(got), "\n"), line) {
			t.Errorf("%q is missing in:\n%s", line, got)
		}
	}
}

// A request carries its values where they belong; redirects are not followed,
// and a body without end is not waited for.
func TestARequestIsBoundedAndGoesNowhereElse(t *testing.T) {
	var mu sync.Mutex
	var seen []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := make([]byte, 100)
		n, _ := r.Body.Read(body)
		mu.Lock()
		seen = append(seen, r.Method+" "+r.RequestURI+" "+r.Header.Get("X-Why")+" "+string(body[:n]))
		mu.Unlock()
		switch r.URL.Path {
		case "/redirect":
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		case "/endless":
			_, _ = w.Write([]byte("x"))
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
	}))
	defer srv.Close()
	do := func(h HTTP) error {
		h.URL = srv.URL + h.URL
		hooks := &Hooks{Kill: &Action{HTTP: &h, Timeout: 5 * time.Second}}
		if err := hooks.Validate(); err != nil {
			return err
		}
		_, err := hooks.For(Call{Args: []byte(`{"n":"a/b?c&d","x":7,"q":"say \"hi\""}`)}).Kill(t.Context(), &belay.Cancellation{Reason: "a\r\nX-Evil: 1"})
		return err
	}
	if err := do(HTTP{URL: "/jobs/{args.n}?who={args.n}", Header: []Header{{"X-Why", "{reason}"}}, Body: `{"n":{args.x},"q":"<{args.q}>","s":{args.q}}`}); err != nil {
		t.Error(err)
	}
	if err := do(HTTP{URL: "/redirect"}); !errors.Is(err, ErrFailed) || !strings.Contains(err.Error(), "307") {
		t.Errorf("redirect: %v", err)
	}
	look, began := calm.Start(t), time.Now()
	if err := do(HTTP{Method: "DELETE", URL: "/endless"}); err != nil {
		t.Errorf("endless: %v", err)
	}
	look.Within(t, time.Since(began), 3*time.Second, "an endless answer")
	want := []string{
		`POST /jobs/a%2Fb%3Fc&d?who=a%2Fb%3Fc%26d a  X-Evil: 1 {"n":7,"q":"<say \"hi\">","s":"say \"hi\""}`,
		`POST /redirect  `, `DELETE /endless  `,
	}
	if !slices.Equal(seen, want) {
		t.Errorf("seen %q", seen)
	}
}

// At most 64 actions run at once, 48 of them checks: checks that hang do not
// hold up a kill.
func TestSoManyAtOnce(t *testing.T) {
	var now, most, kills atomic.Int64
	release := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			kills.Add(1)
			return
		}
		if n := now.Add(1); n > most.Load() {
			most.Store(n)
		}
		<-release
		now.Add(-1)
	}))
	defer srv.Close()
	h := &Hooks{Kill: &Action{HTTP: &HTTP{URL: srv.URL}}, Alive: &Action{HTTP: &HTTP{URL: srv.URL}}}
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() { _, _, _ = h.For(Call{}).Alive(t.Context(), nil) })
	}
	eventually(t, "the checks run", func() bool { return now.Load() == maxChecks })
	kill := &Hooks{Kill: h.Kill}
	for range 20 {
		if _, err := kill.For(Call{}).Kill(t.Context(), nil); err != nil {
			t.Error(err)
		}
	}
	close(release)
	all.Wait()
	if most.Load() != maxChecks || kills.Load() != 20 {
		t.Errorf("%d checks at once, %d kills", most.Load(), kills.Load())
	}
}

// A nil Stop and hooks without actions do nothing.
func TestNoHooks(t *testing.T) {
	var none *Hooks
	for _, s := range []*Stop{none.For(Call{}), (&Hooks{}).For(Call{})} {
		_, force := s.Terminate(t.Context(), nil)
		if s != nil || s.Has(Kill) || s.Forceful() || s.Tell(t.Context(), nil) != nil || force != nil || s.Watch(t.Context(), nil) != nil || s.Plan() != "" {
			t.Errorf("%+v", s)
		}
	}
	if err := none.Validate(); err != nil {
		t.Error(err)
	}
}
