package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belayhq/belay"
)

// disk is a Commit that writes down what was stored.
type disk struct {
	mu     sync.Mutex
	stored map[belay.RunID]bool
	fail   error
	wild   bool
}

func (d *disk) commit(_ context.Context, runs ...belay.Detail) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.wild {
		panic("the disk is on fire")
	}
	if d.fail != nil {
		return d.fail
	}
	if d.stored == nil {
		d.stored = make(map[belay.RunID]bool)
	}
	for _, r := range runs {
		if r.Receipt == nil || !r.Receipt.Final {
			return errors.New("what is not final was to be stored")
		}
		d.stored[r.ID] = true
	}
	return nil
}

func (d *disk) has(id belay.RunID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stored[id]
}

// DESIGN 12: a receipt that is shown to a client is stored first, by every door
// that shows one; one that is not final is not.
func TestStoredFirst(t *testing.T) {
	d := &disk{}
	r := newRig(t, Options{Commit: d.commit, Latch: &Switch{}})
	for name, stop := range map[string]func(id string) answer{
		"one":    func(id string) answer { return r.do("POST", "/v1/runs/"+id+"/cancel", "op", `{"wait":5}`) },
		"many":   func(id string) answer { return r.do("POST", "/v1/cancel", "op", `{"ids":["`+id+`"],"wait":5}`) },
		"seed":   func(id string) answer { return r.cancel("op", `{"requestId":"`+id+`","wait":5}`) },
		"latch":  func(string) answer { return r.do("POST", "/v1/latch", "op", `{"wait":5}`) },
		"status": func(id string) answer { r.tree.Cancel(t.Context(), order(id)); return answer{status: 200} },
	} {
		run := r.call("ann", `"`+name+`"`, with(&stopper{}))
		got := stop(run.ID().String())
		if name == "status" {
			r.wait(run)
			if d.has(run.ID()) {
				t.Error("nobody was shown anything yet")
			}
			got = r.do("GET", "/v1/receipts/"+run.ID().String(), "op", "")
		}
		seed := name == "seed"
		if got.status != 200 || !d.has(run.ID()) || strings.Contains(got.body, `"stored":true`) == seed {
			t.Errorf("%s: stored %v: %d %s", name, d.has(run.ID()), got.status, got.body)
		}
	}
	open := r.call("ann", `"open"`, with(&stopper{gone: make(chan struct{})}))
	if got := r.do("POST", "/v1/runs/"+open.ID().String()+"/cancel", "op", `{"wait":0.05}`); got.status != 202 || d.has(open.ID()) ||
		strings.Contains(got.body, "stored") || got.header.Get("Retry-After") == "" || got.header.Get("Location") != "/v1/receipts/"+open.ID().String() {
		t.Errorf("open: %d %v %s", got.status, got.header, got.body)
	}
}

func order(id string) belay.CancelRequest {
	run, _ := belay.ParseRunID(id)
	return belay.CancelRequest{Filter: belay.Filter{IDs: []belay.RunID{run}}, Cancellation: belay.Cancellation{Cause: belay.CauseOperator}}
}

// What cannot be stored is said, and never costs the answer.
func TestNotStored(t *testing.T) {
	for _, d := range []*disk{{fail: errors.New("no space left")}, {wild: true}} {
		r := newRig(t, Options{Commit: d.commit})
		run := r.call("ann", `"x"`, with(&stopper{}))
		path := "/v1/runs/" + run.ID().String()
		for _, got := range []answer{
			r.do("POST", path+"/cancel", "op", `{"wait":5}`),
			r.do("GET", path, "op", ""),
			r.do("GET", "/v1/receipts/"+run.ID().String(), "op", ""),
			r.cancel("op", `{"requestId":"`+run.ID().String()+`"}`),
		} {
			if got.status != 200 || !strings.Contains(got.body, `"stored":false`) || !strings.Contains(got.body, `"confirmed"`) {
				t.Errorf("%d %s", got.status, got.body)
			}
		}
	}
}

// GET /v1/receipts as a stream: both ways to ask, within the reach, and never half
// an export that looks like a whole one.
func TestExport(t *testing.T) {
	var asked []HistoryQuery
	r := newRig(t, Options{Export: exporter(&asked)})
	for query, kind := range map[string]string{"?format=csv&owner=ann&label=a%3Db": "text/csv", "?format=ndjson": "application/x-ndjson"} {
		got := r.do("GET", "/v1/receipts"+query, "op", "")
		if got.status != 200 || !strings.HasPrefix(got.header.Get("Content-Type"), kind) || got.body != strings.TrimPrefix(strings.Split(query, "&")[0], "?format=")+"\n" {
			t.Errorf("%s: %d %v %q", query, got.status, got.header, got.body)
		}
	}
	for accept, want := range map[string]string{
		"text/csv": "csv\n", "application/x-ndjson;q=0.5, text/html": "ndjson\n", "application/json, text/csv": "", "*/*": "",
	} {
		if got := r.do("GET", "/v1/receipts", "op", "", "Accept", accept); got.status != 200 || want != "" && got.body != want || want == "" && got.body[0] != '{' {
			t.Errorf("Accept %s: %d %s", accept, got.status, got.body)
		}
	}
	asked = nil
	stop := belay.NewStopID()
	r.do("GET", "/v1/receipts?format=csv&stop="+stop.String(), "ann", "")
	if len(asked) != 1 || asked[0].Filter.Owner != "ann" || asked[0].Stop != stop || !asked[0].Stopped {
		t.Errorf("asked for %+v", asked)
	}
	if got := r.do("GET", "/v1/receipts?format=csv&owner=bob", "ann", ""); got.status != 200 || got.body != "" || len(asked) != 1 {
		t.Errorf("somebody else's: %d %q", got.status, got.body)
	}
	for query, status := range map[string]int{"&cursor=x": 400, "&limit=1": 400, "&stop=x": 400, "&label=x": 400} {
		if got := r.do("GET", "/v1/receipts?format=csv"+query, "op", ""); got.status != status {
			t.Errorf("%s: %d", query, got.status)
		}
	}
	if got := r.do("GET", "/v1/receipts?format=csv", "nothing", ""); got.status != 403 {
		t.Errorf("without permission: %d", got.status)
	}
}

func TestExportFails(t *testing.T) {
	begin := false
	r := newRig(t, Options{Export: func(_ context.Context, w io.Writer, _ Format, _ HistoryQuery) error {
		if begin {
			fmt.Fprintln(w, "half")
		}
		return errors.New("sekret path of a file")
	}})
	if got := r.do("GET", "/v1/receipts?format=csv", "op", ""); got.status != 500 || strings.Contains(got.body, "sekret") {
		t.Errorf("before the first byte: %d %s", got.status, got.body)
	}
	begin = true
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+"/v1/receipts?format=csv", nil)
	req.Header.Set("Authorization", "Bearer op")
	resp, err := http.DefaultClient.Do(req)
	if err == nil {
		_, err = io.ReadAll(resp.Body)
		resp.Body.Close()
	}
	if err == nil {
		t.Error("half an export ended like a whole one")
	}
}

// DELETE /v1/principals/{name}: with the permission only; names are decoded once.
func TestErase(t *testing.T) {
	var whom []string
	r := newRig(t, Options{Erase: eraser(&whom)})
	for _, token := range []string{"ann", "boss", ""} {
		if got := r.do("DELETE", "/v1/principals/bob", token, ""); got.status != 403 && got.status != 401 {
			t.Errorf("%q: %d", token, got.status)
		}
	}
	if got := r.do("DELETE", "/v1/principals/https:%2F%2Fissuer:ann%2520x", "op", ""); got.status != 200 ||
		got.body != `{"principal":"https://issuer:ann%20x","erased":{"runs":1}}`+"\n" {
		t.Errorf("%d %s", got.status, got.body)
	}
	if len(whom) != 1 || whom[0] != "https://issuer:ann%20x" {
		t.Errorf("erased %q", whom)
	}
}

// Who was erased is in no event that a stream goes back to; others are, each with
// its own number.
func TestEraseEvents(t *testing.T) {
	var whom []string
	r := newRig(t, Options{Erase: eraser(&whom)})
	s := r.events("op", "", "")
	first := r.call("bob", "1")
	last := s.until(belay.EventRegistered, first)[0].id
	r.call("ann", "2").Finish(belay.Completed)
	second := r.call("bob", "3")
	want := s.until(belay.EventRegistered, second)
	s.close()
	if got := r.do("DELETE", "/v1/principals/ann", "op", ""); got.status != 200 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	s = r.events("op", "", last)
	defer s.close()
	if got := s.until(belay.EventRegistered, second); len(got) != 1 || got[0].id != want[len(want)-1].id {
		t.Errorf("after the erasure %+v", got)
	}
}

func TestWhoami(t *testing.T) {
	r := newRig(t, Options{})
	got := into[whoami](r, r.do("GET", "/v1/whoami", "boss", ""), 200)
	if got.Name != "boss" || strings.Join(got.Permissions, " ") != "runs.read tools.approve latch.set" || got.Inside == nil || len(got.Inside) != 0 {
		t.Errorf("%+v", got)
	}
	if got := r.do("GET", "/v1/whoami", "nothing", ""); got.status != 200 || !strings.Contains(got.body, `"permissions":[]`) {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// ask lets a run ask a question and returns its id once it is open.
func (r *rig) ask(run *belay.Run) string {
	r.Helper()
	return r.askThis(run, belay.Question{Text: "may I?", Primary: "Yes", Secondary: "No"})
}

func (r *rig) askThis(run *belay.Run, q belay.Question) string {
	r.Helper()
	ctx, end := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = run.Ask(ctx, q)
	}()
	r.Cleanup(func() { end(); <-done })
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		open, _ := r.tree.Approvals(r.Context(), belay.Filter{})
		for _, a := range open {
			if a.Run.ID == run.ID() {
				return a.ID.String()
			}
		}
	}
	r.Fatal("the question is not open")
	return ""
}

// Approvals: with tools.approve, for runs that one may see, once.
func TestApprovals(t *testing.T) {
	may := people{"own": {"own", []string{PermApprove, PermReadOwn}}, "blind": {"blind", []string{PermApprove}}, "boss": everybody["boss"], "ann": everybody["ann"]}
	r := newLeaseRig(t, Options{Authorizer: may})
	mine := r.ask(r.call("own", `"1"`))
	foreign := r.ask(r.call("ann", `"2"`))
	list := func(token, query string) int {
		return len(into[approvalList](r, r.do("GET", "/v1/approvals"+query, token, ""), 200).Approvals)
	}
	if a, b, c := list("boss", ""), list("own", ""), list("boss", "?owner=ann&kind=call"); a != 2 || b != 1 || c != 1 {
		t.Errorf("lists of %d, %d, %d", a, b, c)
	}
	for _, tt := range []struct {
		id, token string
		status    int
	}{
		{foreign, "ann", 403}, // no tools.approve, though the run is hers
		{foreign, "blind", 403},
		{foreign, "own", 404},
		{"ask_x", "boss", 404},
		{mine, "own", 200},
		{mine, "boss", 409},
		{foreign, "boss", 200},
	} {
		got := r.do("POST", "/v1/approvals/"+tt.id, tt.token, `{"decision":"decline","reason":"be\ncareful"}`)
		if got.status != tt.status {
			t.Errorf("%s as %s: %d %s", tt.id, tt.token, got.status, got.body)
		}
		if got.status == 200 {
			a := into[belay.Approval](r, got, 200)
			if a.Decision == nil || a.Decision.Choice != belay.ChoiceDeclined || a.Decision.By != tt.token || a.Decision.Via != viaREST || a.Decision.Reason != "be careful" {
				t.Errorf("%+v", a.Decision)
			}
		}
	}
}
