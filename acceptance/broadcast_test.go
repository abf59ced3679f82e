//go:build unix

package acceptance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/admin"
	"github.com/belayhq/belay/internal/calm"
)

// frame is what is broadcast (ORC-7).
type frame struct {
	JSONRPC string `json:"jsonrpc"`
	Method  string `json:"method"`
	Params  struct {
		RequestID json.RawMessage `json:"requestId"`
		Reason    *string         `json:"reason"`
		Run       string          `json:"run"`
	} `json:"params"`
}

// hears waits for the one frame of this id, and looks whether it is the seed's.
func hears(t testing.TB, who string, l *stream, id, reason, run string) {
	t.Helper()
	quoted := `"` + id + `"`
	eventually(t, "the frame at "+who, func() bool { return len(l.with(quoted)) > 0 })
	list := l.with(quoted)
	var f frame
	if err := json.Unmarshal([]byte(list[0]), &f); err != nil || len(list) != 1 {
		t.Fatalf("%s heard %.500q", who, list)
	}
	seed := fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%q,"reason":%q`, id, reason)
	if !strings.HasPrefix(list[0], seed) || f.Params.Run != run {
		t.Errorf("%s heard %.200s\nwant %.200s,\"run\":%q}}", who, list[0], seed, run)
	}
}

// ORC-7, ORC-44, acceptance 12: one frame for each connected session of the
// owner; none for a stranger's, unless broadcast is all; none at all with off;
// never where that id is in flight.
func TestAcceptance12WhoHears(t *testing.T) {
	t.Parallel()
	for _, audience := range []string{"owner", "all", "off"} {
		t.Run(audience, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			if audience != "owner" { // the default
				s = house(t, "broadcast-"+audience, forOwners, func(c *settings) { c.orch["broadcast"] = audience })
			}
			id, key := "call-12-"+audience, "12-"+audience
			caller, busy := s.begin(t, "ann", "tools"), s.begin(t, "bob", "tools")
			ears := map[string]*stream{
				"the caller": caller.hear(t), "ann": s.begin(t, "ann", "tools").hear(t), "ann again": s.begin(t, "ann", "tools").hear(t),
				"bob": s.begin(t, "bob", "tools").hear(t), "bob with that id": busy.hear(t),
			}
			got, busyGot := caller.tick(t, `"`+id+`"`, key), busy.tick(t, `"`+id+`"`, key+"-busy")
			a := s.cancel(t, "ann", id, `"reason":"everybody hears"`)
			if !a.Affected {
				t.Errorf("%+v", a)
			}
			told := map[string]bool{"ann": audience != "off", "ann again": audience != "off", "bob": audience == "all"}
			for who, l := range ears {
				if told[who] {
					hears(t, who, l, id, "everybody hears", a.Run.String())
				}
			}
			wait(t, got)
			s.still(t, key+"-busy") // which also is the time for what must not come
			pending(t, busyGot)
			for who, l := range ears {
				if heard := l.with(`"requestId":"` + id); !told[who] && len(heard) > 0 {
					t.Errorf("%s heard %.500q", who, heard)
				}
			}
			s.cancel(t, "bob", id)
			wait(t, busyGot)
		})
	}
}

// ORC-44c: for an id that nobody knows the sessions of who asked are told.
func TestAcceptance12NobodyKnowsTheID(t *testing.T) {
	t.Parallel()
	s := plain(t)
	mine, other := s.begin(t, "op", "tools").hear(t), s.begin(t, "ann", "tools").hear(t)
	s.cancel(t, "op", "nobody-12", `"reason":"for the peers"`)
	hears(t, "op", mine, "nobody-12", "for the peers", "")
	if heard := other.with("nobody-12"); len(heard) > 0 {
		t.Errorf("a stranger heard %q", heard)
	}
}

// ORC-45, acceptance 14: a session whose client has gone, and one that reads
// nothing, keep nobody from hearing and the answer from coming.
func TestAcceptance14OneSessionFails(t *testing.T) {
	t.Parallel()
	s := house(t, "failing")
	gone := s.begin(t, "ann", "tools").hear(t)
	stuck := s.begin(t, "ann", "tools")
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/mcp/tools", nil)
	for i, h := 0, stuck.headers(); i < len(h); i += 2 {
		req.Header.Set(h[i], h[i+1])
	}
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Authorization", "Bearer "+token("ann"))
	resp, err := (&http.Transport{}).RoundTrip(req) // nobody reads its body
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp, err)
	}
	defer resp.Body.Close()
	well := s.begin(t, "ann", "tools").hear(t)
	gone.close()
	reason := strings.TrimSpace(strings.Repeat("long ", 190))
	for n := range 20 {
		id := fmt.Sprintf("call-14-%d", n)
		got := s.begin(t, "ann", "tools").call(t, `"`+id+`"`, "tick", tickArgs(id))
		eventually(t, "the call registered", func() bool { return s.tryStatus(t, "op", id).status == 200 })
		w, begun := calm.Start(t), time.Now()
		a := s.cancel(t, "op", id, `"reason":"`+reason+`"`)
		w.Within(t, time.Since(begun), 3*time.Second, "a cancel beside one who went away")
		w.Stop()
		if !a.Affected {
			t.Errorf("%+v", a)
		}
		hears(t, "the well one", well, id, reason, a.Run.String())
		wait(t, got)
	}
}

// broken is a list of sessions that cannot be read, or panics.
type broken struct{ panics bool }

// Broadcast implements admin.Broadcaster.
func (b broken) Broadcast(context.Context, admin.Notice) error {
	if b.panics {
		panic("the list of sessions is torn")
	}
	return errors.New("the list of sessions cannot be read")
}

// boss may do everything.
type boss struct{}

// Name implements admin.Principal.
func (boss) Name() string { return "op" }

// May implements admin.Principal.
func (boss) May(string) bool { return true }

// Principal implements admin.Authorizer.
func (boss) Principal(*http.Request) (admin.Principal, error) { return boss{}, nil }

// stopper is a backend that fails, or succeeds.
type stopper struct{ err error }

// Tell implements belay.Stopper.
func (s stopper) Tell(context.Context, *belay.Cancellation) (*belay.Evidence, error) {
	if s.err != nil {
		return nil, s.err
	}
	return &belay.Evidence{Kind: belay.SeenHandlerReturned, Scope: belay.ScopeHandler}, nil
}

// ORC-45, acceptance 13 and 19: a list of sessions that cannot be read, and a
// broadcast that fails, change neither the answer nor the cancel. From outside
// no such list can be had, so that the handler has a server of its own here.
func TestAcceptance13SessionListUnreadable(t *testing.T) { badBroadcast(t, broken{}) }

// The same for one that fails in the middle.
func TestAcceptance19BroadcastFails(t *testing.T) { badBroadcast(t, broken{panics: true}) }

func badBroadcast(t *testing.T, b broken) {
	t.Parallel()
	tree := belay.NewTree(belay.Options{})
	api, err := admin.New(admin.Options{Control: tree, Authorizer: boss{}, Broadcaster: b})
	if err != nil {
		t.Fatal(err)
	}
	host := httptest.NewServer(api)
	s := &server{url: host.URL}
	defer func() {
		api.Close()
		host.Close()
		if err := tree.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	run, err := tree.Register(belay.Spec{Kind: belay.KindCall, Name: "tick", Owner: "ann", Address: `"call-13"`, Stopper: stopper{}})
	if err != nil {
		t.Fatal(err)
	}
	want(t, "cancel", s.tryCancel(t, "op", "call-13", `"reason":"why"`, `"wait":5`), 200,
		`{"status":"cancelled","requestId":"call-13","reason":"why","run":"`+run.ID().String()+`","affected":true,"pending":false,"work":"stopped","verdict":"confirmed"}`)
	if st := s.status(t, "op", "call-13"); !st.Cancelled || deref(st.Verdict) != belay.Confirmed {
		t.Errorf("%+v", st)
	}
	want(t, "unknown", s.tryCancel(t, "op", "none-13"), 200,
		`{"status":"queued","requestId":"none-13","reason":null,"run":null,"affected":false,"pending":false,"work":null,"verdict":null}`)
}

// ORC-41, acceptance 5: an error of what is to stop the work does not undo the
// cancel.
func TestAcceptance05StopperError(t *testing.T) {
	t.Parallel()
	tree := belay.NewTree(belay.Options{})
	api, err := admin.New(admin.Options{Control: tree, Authorizer: boss{}})
	if err != nil {
		t.Fatal(err)
	}
	host := httptest.NewServer(api)
	s := &server{url: host.URL}
	defer host.Close()
	defer api.Close()
	run, err := tree.Register(belay.Spec{
		Kind: belay.KindCall, Name: "tick", Owner: "ann", Address: `"call-05"`, Stopper: stopper{errors.New("the pipe is broken")},
		Ladder: belay.Ladder{Grace: 50 * time.Millisecond, ConfirmAfter: 100 * time.Millisecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	a := s.cancel(t, "op", "call-05", `"wait":10`)
	if a.Status != "cancelled" || !a.Affected || *a.Run != run.ID() || deref(a.Verdict) == belay.Confirmed {
		t.Errorf("%+v", a)
	}
	if st := s.status(t, "op", "call-05"); !st.Cancelled {
		t.Errorf("%+v", st)
	}
	if r := s.receipt(t, "op", run.ID()); !strings.Contains(fmt.Sprint(r.Steps), "the pipe is broken") {
		t.Errorf("the receipt does not say why: %+v", r)
	}
	if err := tree.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
