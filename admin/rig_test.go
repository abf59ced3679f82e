package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/lease"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// person is a principal of the tests; the token is the name.
type person struct {
	name string
	may  []string
}

func (p person) Name() string { return p.name }

func (p person) May(permission string) bool {
	return slices.Contains(p.may, permission)
}

// people is an Authorizer that knows these.
type people map[string]person

func (p people) Principal(r *http.Request) (Principal, error) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return nil, ErrNoCredentials
	}
	if who, ok := p[token]; ok {
		return who, nil
	}
	return nil, ErrBadCredentials
}

var everybody = people{
	"op":      {"op", []string{PermSystemConfig, PermRead, PermCancel}},
	"ann":     {"ann", []string{PermReadOwn, PermCancelOwn}},
	"bob":     {"bob", []string{PermReadOwn, PermCancelOwn}},
	"reader":  {"reader", []string{PermRead}},
	"nothing": {"nothing", nil},
	"rt":      {"rt", []string{PermRegister, PermReadOwn, PermCancelOwn}},
	"rt2":     {"rt2", []string{PermRegister, PermReadOwn, PermCancelOwn}},
	"root":    {"root", permissions},
	"boss":    {"boss", []string{PermApprove, PermRead, PermLatchSet}},
}

// insider is somebody who speaks from within runs.
type insider struct {
	person

	in []string
}

func (i insider) Inside() []string { return i.in }

// crowd is everybody and some insiders.
type crowd map[string]insider

func (c crowd) Principal(r *http.Request) (Principal, error) {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if who, ok := c[token]; ok {
		return who, nil
	}
	return everybody.Principal(r)
}

var ownerDoors = []string{PermSystemConfig, PermCancelOwn, PermReadOwn}

// rig is an API over a tree, behind a real server.
type rig struct {
	*testing.T
	tree *belay.Tree
	api  *API
	url  string
}

func newRig(t *testing.T, o Options) *rig {
	t.Helper()
	tree := belay.NewTree(belay.Options{})
	if o.Control == nil {
		o.Control = tree
	}
	if o.Authorizer == nil {
		o.Authorizer = everybody
	}
	if o.Limiter == nil {
		o.Limiter = NewRates(1e6, 1e6)
	}
	if o.Protocol == nil {
		o.Protocol = func(*belay.Info) string { return "mcp" }
	}
	api, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(api)
	t.Cleanup(func() {
		api.Close()
		server.Close()
		over, end := context.WithCancel(context.Background())
		end()
		_ = tree.Close(over) // what is left is not what the test is about
	})
	return &rig{t, tree, api, server.URL}
}

// newLeaseRig is a rig whose tree takes runs of other runtimes.
func newLeaseRig(t *testing.T, o Options) *rig {
	t.Helper()
	tree := belay.NewTree(belay.Options{})
	leases := lease.New(tree, lease.Options{})
	t.Cleanup(func() {
		over, end := context.WithCancel(context.Background())
		end()
		_ = tree.Close(over)
		leases.Close()
	})
	o.Control, o.Leases, o.Approvals = tree, leases, tree
	r := newRig(t, o)
	r.tree = tree
	return r
}

// call registers a call with this raw id.
func (r *rig) call(owner, rawID string, more ...func(*belay.Spec)) *belay.Run {
	r.Helper()
	spec := belay.Spec{Kind: belay.KindCall, Name: "tool:slow", Server: "s", Owner: owner, Address: rawID}
	for _, f := range more {
		f(&spec)
	}
	run, err := r.tree.Register(spec)
	if err != nil {
		r.Fatal(err)
	}
	return run
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   string
}

func (r *rig) do(method, path, token, body string, headers ...string) answer {
	r.Helper()
	req, err := http.NewRequest(method, r.url+path, strings.NewReader(body))
	if err != nil {
		r.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		r.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(got)}
}

func (r *rig) cancel(token, body string, headers ...string) answer {
	r.Helper()
	return r.do("POST", "/orchestrate/cancel", token, body, headers...)
}

func (r *rig) status(token, id string) answer {
	r.Helper()
	return r.do("GET", "/orchestrate/status/"+id, token, "")
}

// want compares status and body exactly.
func (r *rig) want(got answer, status int, body string) {
	r.Helper()
	if got.status != status || got.body != body {
		r.Errorf("got  %d %s\nwant %d %s", got.status, got.body, status, body)
	}
}

// into decodes an answer of this status.
func into[T any](r *rig, got answer, status int) T {
	r.Helper()
	var v T
	if got.status != status {
		r.Fatalf("status %d, want %d: %s", got.status, status, got.body)
	}
	if err := json.NewDecoder(bytes.NewReader([]byte(got.body))).Decode(&v); err != nil {
		r.Fatalf("%v in %s", err, got.body)
	}
	return v
}

// wait returns the run's final receipt.
func (r *rig) wait(run *belay.Run) *belay.Receipt {
	r.Helper()
	ctx, end := context.WithTimeout(r.Context(), 10*time.Second)
	defer end()
	receipt, err := run.Wait(ctx)
	if err != nil {
		r.Fatal(err)
	}
	return receipt
}

// alive fails if the run was stopped.
func (r *rig) alive(runs ...*belay.Run) {
	r.Helper()
	for _, run := range runs {
		if run.Cancellation() != nil {
			r.Errorf("run %s of %s was cancelled", run.ID(), run.Info().Owner)
		}
	}
}

// stopper is a backend that is told, and says that its handler returned when
// it is let go.
type stopper struct {
	mu   sync.Mutex
	told []belay.Cancellation
	fail error
	gone chan struct{} // nil: at once
}

func (s *stopper) Tell(ctx context.Context, c *belay.Cancellation) (*belay.Evidence, error) {
	s.mu.Lock()
	s.told = append(s.told, *c)
	s.mu.Unlock()
	if s.fail != nil {
		return nil, s.fail
	}
	if s.gone != nil {
		select {
		case <-s.gone:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return &belay.Evidence{Kind: belay.SeenHandlerReturned, Scope: belay.ScopeHandler}, nil
}

func (s *stopper) times() []belay.Cancellation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]belay.Cancellation(nil), s.told...)
}

func with(s belay.Stopper) func(*belay.Spec) { return func(spec *belay.Spec) { spec.Stopper = s } }

// crier is a Broadcaster that writes down what it was asked to send.
type crier struct {
	mu    sync.Mutex
	heard []Notice
	do    func() error
}

func (c *crier) Broadcast(_ context.Context, n Notice) error {
	c.mu.Lock()
	c.heard = append(c.heard, n)
	c.mu.Unlock()
	if c.do != nil {
		return c.do()
	}
	return nil
}

func (c *crier) notices() []Notice {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Notice(nil), c.heard...)
}

// remote is a Control whose cancels do not arrive.
type remote struct {
	*belay.Tree
	err error
}

func (r *remote) Cancel(context.Context, belay.CancelRequest) ([]belay.CancelResult, error) {
	return nil, r.err
}
