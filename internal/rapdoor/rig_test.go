package rapdoor_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/config"
	"github.com/belayhq/belay/internal/faketool"
	"github.com/belayhq/belay/internal/rapdoor"
	"github.com/belayhq/belay/internal/rappeer"
	"github.com/belayhq/belay/mcp/httpserver"
	"github.com/belayhq/belay/proc"
	"github.com/belayhq/belay/rap"
	"github.com/belayhq/belay/serve"
)

func TestMain(m *testing.M) {
	proc.Main() // never returns in a guardian
	faketool.MaybeRun()
	goleak.VerifyTestMain(m)
}

const (
	annToken = "ann-0123456789abcdef"
	bobToken = "bob-0123456789abcdef"
)

func bearer(token string) func(*http.Request, []byte) {
	return func(r *http.Request, _ []byte) { r.Header.Set("Authorization", "Bearer "+token) }
}

// rig is a hub with fake MCP servers, the door in front of it, and a runtime that
// knows nothing of Belay.
type rig struct {
	*rappeer.Runtime
	t    *testing.T
	ctx  context.Context
	tree *belay.Tree
	hub  *serve.Hub
	door *rapdoor.Door
	web  *httptest.Server
	wit  *faketool.Witness
	logs *faketool.Text
}

func newRig(t *testing.T, defs func(r *rig) []serve.Definition, change func(*rapdoor.Options)) *rig {
	t.Helper()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, tree: belay.NewTree(belay.Options{}), logs: &faketool.Text{}, wit: faketool.NewWitness(filepath.Join(t.TempDir(), "witness"))}
	log := slog.New(slog.NewTextHandler(r.logs, nil))
	r.hub = serve.New(serve.Options{
		Tree: r.tree, Owner: "tester", Version: "test", Stderr: null, Log: log, NameRuns: true,
		Identify: func(*http.Request) (httpserver.Identity, error) { return httpserver.Identity{Principal: "tester"}, nil },
	})
	if _, err := r.hub.Apply(defs(r)); err != nil {
		t.Fatal(err)
	}
	callers, err := rap.Bearer(map[string]string{annToken: "ann", bobToken: "bob"})
	if err != nil {
		t.Fatal(err)
	}
	o := rapdoor.Options{Tree: r.tree, Authenticator: callers, Servers: r.hub.Backend, Log: log, Version: "test"}
	if change != nil {
		change(&o)
	}
	if r.door, err = rapdoor.New(o); err != nil {
		t.Fatal(err)
	}
	r.hub.Handle(rapdoor.Prefix, r.door)
	r.web = httptest.NewServer(r.hub)
	r.Runtime = &rappeer.Runtime{Base: r.web.URL + "/rap/tools", Sign: bearer(annToken)}
	r.Start()
	ctx, cut := context.WithTimeout(context.Background(), 60*time.Second)
	r.ctx = ctx
	t.Cleanup(func() {
		defer cut()
		shut := belay.Cancellation{Cause: belay.CauseShutdown}
		done := make(chan error, 1)
		go func() { done <- r.door.Close(ctx, shut) }()
		if err := r.hub.Close(ctx, shut); err != nil {
			t.Errorf("the hub has not ended: %v", err)
		}
		if err := <-done; err != nil {
			t.Errorf("the door has not ended: %v", err)
		}
		r.Stop()
		r.web.Close()
		if err := r.tree.Close(ctx); err != nil {
			t.Errorf("runs are left: %v", err)
		}
		null.Close()
		if t.Failed() {
			t.Log(r.logs.String())
		}
	})
	return r
}

// fake defines a server of fake tools.
func (r *rig) fake(name string, flags ...string) serve.Definition {
	s := config.New(name, config.Policy{})
	s.Command = faketool.Command(append([]string{"server", "-witness", r.wit.Path, "-name", name}, flags...)...)
	s.Grace, s.KillAfter = config.Some(200*time.Millisecond), config.Some(300*time.Millisecond)
	return serve.Definition{Server: s}
}

func tools(flags ...string) func(r *rig) []serve.Definition {
	return func(r *rig) []serve.Definition { return []serve.Definition{r.fake("tools", flags...)} }
}

func (r *rig) invoke(operation, thread, id string, arguments any) {
	r.t.Helper()
	if a, err := r.Do("POST", "/invoke", r.Invocation(operation, thread, id, arguments, nil)); err != nil || a.Status != 200 || a.Body != "" {
		r.t.Fatalf("invoke %s: %+v, %v", operation, a, err)
	}
}

func (r *rig) cancel(thread, id string) {
	r.t.Helper()
	if a, err := r.Cancel(thread, id); err != nil || a.Status != 200 || a.Body != "" {
		r.t.Fatalf("cancel: %+v, %v", a, err)
	}
}

func (r *rig) message(thread, id string) rappeer.Message {
	r.t.Helper()
	m, err := r.Wait(r.ctx, thread, id, 1)
	if err != nil {
		r.t.Fatal(err)
	}
	return m
}

func (r *rig) event(key, name string) {
	r.t.Helper()
	if _, err := r.wit.WaitFor(key, name, 20*time.Second); err != nil {
		r.t.Fatal(err)
	}
}

// runs are those of the call with these ids: its own, and what lies below.
func (r *rig) runs(thread, id string) (own belay.Info, below []belay.Info) {
	r.t.Helper()
	list, err := r.tree.List(r.ctx, belay.Filter{Labels: map[string]string{"thread_id": thread, "tool_call_id": id}, Ended: true})
	if err != nil || len(list) != 1 {
		r.t.Fatalf("the runs of (%s, %s): %+v, %v", thread, id, list, err)
	}
	all, err := r.tree.List(r.ctx, belay.Filter{Under: list[0].ID, Ended: true})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, i := range all {
		if i.ID != list[0].ID {
			below = append(below, i)
		}
	}
	return list[0], below
}

// receipt waits until the call is over.
func (r *rig) receipt(thread, id string) (belay.Info, *belay.Receipt) {
	r.t.Helper()
	own, _ := r.runs(thread, id)
	run, err := r.tree.Run(own.ID)
	if err != nil {
		r.t.Fatal(err)
	}
	receipt, err := run.Wait(r.ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	return run.Info(), receipt
}
