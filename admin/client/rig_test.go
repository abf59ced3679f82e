package client_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/admin"
	"github.com/belayhq/belay/admin/client"
	"github.com/belayhq/belay/lease"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// person is a principal; the token is its name and "-token".
type person struct {
	name string
	may  []string
}

func (p person) Name() string          { return p.name }
func (p person) May(perm string) bool  { return slices.Contains(p.may, perm) }
func (p person) Permissions() []string { return p.may }
func (p person) Has(perm string) bool  { return p.May(perm) }
func (p person) String() string        { return p.name }

type people []person

func (p people) Principal(r *http.Request) (admin.Principal, error) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return nil, admin.ErrNoCredentials
	}
	for _, who := range p {
		if token == who.name+"-token" {
			return who, nil
		}
	}
	return nil, admin.ErrBadCredentials
}

var everybody = people{
	{"op", []string{
		"admin.system_config", "runs.read", "runs.cancel", "runs.register", "latch.set", "latch.lift", "tools.approve",
		"runs.read.own", "runs.cancel.own",
	}},
	{"ann", []string{"runs.read.own", "runs.cancel.own", "runs.register"}},
	{"nothing", nil},
}

// rig is a real admin API over a tree, behind a real server.
type rig struct {
	*testing.T
	tree   *belay.Tree
	api    *admin.API
	server *httptest.Server
	front  func(http.Handler) http.Handler
}

func newRig(t *testing.T, o admin.Options, front func(http.Handler) http.Handler) *rig {
	t.Helper()
	r := &rig{T: t, tree: belay.NewTree(belay.Options{}), front: front}
	leases := lease.New(r.tree, lease.Options{})
	t.Cleanup(leases.Close)
	o.Control, o.Authorizer, o.Leases, o.Approvals = r.tree, everybody, leases, r.tree
	if o.Limiter == nil {
		o.Limiter = admin.NewRates(1e6, 1e6)
	}
	var err error
	if r.api, err = admin.New(o); err != nil {
		t.Fatal(err)
	}
	var h http.Handler = r.api
	if front != nil {
		h = front(h)
	}
	r.server = httptest.NewServer(h)
	t.Cleanup(func() {
		r.api.Close()
		r.server.CloseClientConnections()
		r.server.Close()
		ctx, end := context.WithCancel(context.Background())
		end()
		_ = r.tree.Close(ctx)
	})
	return r
}

// as is a client with this person's token.
func (r *rig) as(name string) *client.Client {
	r.Helper()
	c, err := client.New(client.Options{Server: r.server.URL, Token: name + "-token"})
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(c.CloseIdle)
	return c
}

func (r *rig) call(name, owner string, more ...func(*belay.Spec)) *belay.Run {
	r.Helper()
	spec := belay.Spec{Kind: belay.KindCall, Name: name, Server: "s", Owner: owner, Address: `"` + name + `"`, Stopper: &stopper{}}
	for _, f := range more {
		f(&spec)
	}
	run, err := r.tree.Register(spec)
	if err != nil {
		r.Fatal(err)
	}
	return run
}

// within fails the test unless the condition becomes true.
func (r *rig) within(what string, ok func() bool) {
	r.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	r.Fatalf("never: %s", what)
}

// stopper is a backend whose handler returns when it is let go.
type stopper struct {
	gone chan struct{} // nil: at once
	once sync.Once
}

func newStopper() *stopper { return &stopper{gone: make(chan struct{})} }

func (s *stopper) release() { s.once.Do(func() { close(s.gone) }) }

func (s *stopper) Tell(ctx context.Context, _ *belay.Cancellation) (*belay.Evidence, error) {
	if s.gone != nil {
		select {
		case <-s.gone:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return &belay.Evidence{Kind: belay.SeenHandlerReturned, Scope: belay.ScopeHandler}, nil
}

func with(s belay.Stopper) func(*belay.Spec) { return func(spec *belay.Spec) { spec.Stopper = s } }
