package serve

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/calm"
	"github.com/belayhq/belay/internal/config"
	"github.com/belayhq/belay/internal/faketool"
	"github.com/belayhq/belay/mcp/httpserver"
)

// modernCall is a call under an id of the caller's choice.
func (r *rig) modernCall(ctx context.Context, id, tool, args string) (answer, error) {
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"arguments":%s,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`, id, tool, args)
	return r.postIn(ctx, Path("tools"), "", body, "Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", "Mcp-Name: "+tool)
}

// TestWitnessPosted: a cancel that a modern caller posts beside its calls counts
// if exactly one call in flight has that id, and is 202 in any case: no other
// call is ever hit by it (MCP-G10, MCP-G13).
func TestWitnessPosted(t *testing.T) {
	t.Parallel()
	each(t, true, func(t *testing.T, _ *rig, k behind) {
		r := newRig(t, func(o *Options) {
			o.Identify = func(*http.Request) (httpserver.Identity, error) {
				return httpserver.Identity{Principal: "somebody"}, nil
			}
		})
		r.apply(k.define(r))
		begin := func(id, key string) <-chan answer {
			got := async(func() (answer, error) {
				return r.modernCall(t.Context(), id, "tick", fmt.Sprintf(`{"key":%q,"n":500}`, key))
			})
			r.event(key, "tick")
			return got
		}
		post := func(id string) {
			a := r.must(r.post(Path("tools"), "", cancelOf(id), "Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: notifications/cancelled"))
			if a.status != 202 || a.body != "" {
				t.Errorf("the cancel: %+v", a)
			}
		}
		twin, other, single := begin("1", "twin"), begin("1", "other"), begin(`"1"`, "single")
		post("1") // of two calls: nobody knows which
		post("2") // of none
		r.goesOn("twin")
		r.goesOn("other")
		r.goesOn("single")
		at := time.Now()
		post(`"1"`)
		r.stoppedSoon("single", at)
		if a := r.wait(single, 2*time.Second); strings.Contains(a.body, `"id":"1"`) {
			t.Errorf("the cancelled call got %+v", a)
		}
		r.goesOn("twin")
		for _, run := range r.all("tick") {
			run.Cancel(belay.Cancellation{Cause: belay.CauseOperator, By: "operator", Via: "test"})
		}
		r.one(r.wait(twin, 2*time.Second), belay.CauseOperator)
		r.one(r.wait(other, 2*time.Second), belay.CauseOperator)
		r.works(true, "")
	})
}

// TestWitnessPostedByAnybody: where nobody is authenticated such a cancel, whose
// id can be guessed, stops nothing (MCP-G13).
func TestWitnessPostedByAnybody(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.apply(r.fake("tools", "-era", "modern"))
	got, leave := r.tick(true, "", "a", false)
	if a := r.must(r.post(Path("tools"), "", cancelOf("0"), "Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: notifications/cancelled")); a.status != 202 || a.body != "" {
		t.Errorf("the cancel: %+v", a)
	}
	r.goesOn("a")
	at := time.Now()
	leave()
	r.stoppedSoon("a", at)
	r.wait(got, 2*time.Second)
}

// all returns the runs with that name that are not over.
func (r *rig) all(name string) (runs []*belay.Run) {
	r.t.Helper()
	list, err := r.tree.List(context.Background(), belay.Filter{Kinds: []belay.Kind{belay.KindCall}})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, info := range list {
		if run, err := r.tree.Run(info.ID); err == nil && info.Name == name {
			runs = append(runs, run)
		}
	}
	return runs
}

// TestWitnessAsks: what a stopped call had asked its caller is cancelled on the
// stream of that call, before its one answer; a late answer to the question is
// accepted and reaches nobody (MCP-G9, MCP-G22).
func TestWitnessAsks(t *testing.T) {
	t.Parallel()
	inner, outer := newRig(t, nil), newRig(t, nil)
	outer.wit = inner.wit
	inner.apply(inner.fake("tools", "-era", "legacy"))
	outer.apply(outer.behind(inner))
	for name, r := range map[string]*rig{"stdio": inner, "http": outer} {
		t.Run(name, func(t *testing.T) {
			session := r.begin("tools")
			resp := r.open(t.Context(), session, call(7, "ask", fmt.Sprintf(`{"key":%q,"method":"elicit"}`, name)))
			defer resp.Body.Close()
			lines := bufio.NewScanner(resp.Body)
			question := ""
			for lines.Scan() && question == "" {
				if strings.Contains(lines.Text(), `"elicitation/create"`) {
					question = lines.Text()
				}
			}
			_, id, _ := strings.Cut(question, `"id":`)
			id, _, _ = strings.Cut(id, `,`)
			id = strings.TrimSuffix(id, "}")
			r.stop("ask")
			var rest []string
			for lines.Scan() {
				if strings.HasPrefix(lines.Text(), "data: {") {
					rest = append(rest, lines.Text())
				}
			}
			text := strings.Join(rest, "\n")
			if !strings.Contains(text, `"requestId":`+id) || strings.Count(text, `"id":7`) != 1 || !strings.Contains(rest[len(rest)-1], `"id":7`) {
				t.Errorf("the question was %s, behind the Stop came %s", question, text)
			}
			if a := r.must(r.post(Path("tools"), session, `{"jsonrpc":"2.0","id":`+id+`,"result":{"action":"accept"}}`)); a.status != 202 {
				t.Errorf("the late answer: %+v", a)
			}
			r.works(false, session)
			if e := r.wit.Of(name, "answer"); len(e) > 0 {
				t.Errorf("the tool got an answer: %v", e)
			}
		})
	}
}

// rude is a legacy server with sessions whose tool never ends its stream, and
// that answers a cancel as it is told to.
type rude struct {
	witness string
	cancel  func(w http.ResponseWriter)
}

func (s *rude) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	text := string(body)
	_, id, _ := strings.Cut(text, `"id":`)
	id, _, _ = strings.Cut(id, `,`)
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.Method != http.MethodPost:
		w.WriteHeader(http.StatusMethodNotAllowed)
	case strings.Contains(text, `"initialize"`):
		w.Header().Set("Mcp-Session-Id", "s")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"rude","version":"1"}}}`, id)
	case strings.Contains(text, "notifications/cancelled"):
		faketool.Record(s.witness, "rude", "told", "")
		s.cancel(w)
	case strings.Contains(text, "notifications/"):
		w.WriteHeader(http.StatusAccepted)
	case strings.Contains(text, `"name":"tick"`):
		w.Header().Set("Content-Type", "text/event-stream")
		w.(http.Flusher).Flush()
		faketool.Record(s.witness, "a", "tick", "")
		<-r.Context().Done()
		faketool.Record(s.witness, "rude", "closed", "")
	default:
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"fine"}]}}`, id)
	}
}

// TestWitnessRude: servers that answer a cancel with an error, with a closed
// connection or not at all, and never end their stream: the caller is settled at
// once, the POST is closed at the end of the grace, what could not be delivered
// is unreachable, and the session goes on (MCP-23, MCP-G19, MCP-G20, MCP-G29,
// MCP-G31).
func TestWitnessRude(t *testing.T) {
	t.Parallel()
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	for name, c := range map[string]struct {
		cancel func(http.ResponseWriter)
		want   []belay.Verdict
	}{
		"202":    {func(w http.ResponseWriter) { w.WriteHeader(http.StatusAccepted) }, []belay.Verdict{belay.Signalled}},
		"400":    {func(w http.ResponseWriter) { w.WriteHeader(http.StatusBadRequest) }, []belay.Verdict{belay.Unreachable}},
		"closed": {func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, []belay.Verdict{belay.Unreachable}},
		"silent": {func(http.ResponseWriter) {
			select {
			case <-hang:
			case <-time.After(15 * time.Second):
			}
		}, []belay.Verdict{belay.Unreachable, belay.Signalled}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			s := &rude{witness: r.wit.Path, cancel: c.cancel}
			r.apply(r.at(s))
			session := r.begin("tools")
			got, leave := r.tick(false, session, "a", true)
			defer leave()
			w, at := calm.Start(t), time.Now()
			run := r.stop("tick")
			r.one(r.wait(got, time.Second), belay.CauseOperator)
			r.event("rude", "told")
			if name == "202" {
				w.Within(t, r.event("rude", "closed").Time.Sub(at), time.Second, "the end of the POST")
			}
			r.works(false, session)
			receipt := r.receipt(run)
			ok := false
			for _, v := range c.want {
				ok = ok || receipt.Verdict == v
			}
			if !ok || receipt.Steps[0].Step != belay.StepRequested {
				t.Errorf("the verdict is %s: %+v", receipt.Verdict, receipt.Steps)
			}
			r.works(false, session)
		})
	}
}

// TestWitnessEras: a caller of an era that its server does not speak is told so,
// with the versions that are, and no tool runs for it (MCP-58, MCP-69, MCP-70,
// MCP-G4).
func TestWitnessEras(t *testing.T) {
	t.Parallel()
	each(t, false, func(t *testing.T, r *rig, k behind) { // modern callers of legacy servers
		if strings.Contains(k.name, "heeds") {
			return // they serve whatever is asked
		}
		for range 2 {
			a := r.must(r.modern("tools", "tick", `{"key":"a","n":3}`))
			if a.status != 400 || !strings.Contains(a.body, "-32022") || !strings.Contains(a.body, `"supported":[`) {
				t.Errorf("a modern caller got %+v", a)
			}
		}
		if e := r.wit.Of("a", ""); len(e) > 0 {
			t.Errorf("the tool ran: %v", e)
		}
		r.works(false, r.begin("tools"))
	})
	t.Run("legacy callers of a modern server", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, nil)
		r.apply(r.fake("tools", "-era", "modern"))
		a := r.must(r.post(Path("tools"), "", `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"rig","version":"1"}}}`))
		if !strings.Contains(a.body, `"error"`) || !strings.Contains(a.body, "2026-07-28") || a.session != "" {
			t.Errorf("a legacy caller got %+v", a)
		}
		r.works(true, "")
	})
}

// TestWitnessAnswered: a client that does not count an error for an end resumes
// behind the one answer to a stopped call: 405, so that it does not come back
// for ever (MCP-G24, MCP-G25).
func TestWitnessAnswered(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	d := r.fake("tools")
	d.Disconnect = config.Some(config.Disconnect{Mode: config.Detach})
	r.apply(d)
	session := r.begin("tools")
	resp := r.open(t.Context(), session, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"tick","arguments":{"key":"a","n":500},"_meta":{"progressToken":1}}}`)
	defer resp.Body.Close()
	r.event("a", "tick")
	r.stop("tick")
	last, answers := "", 0
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if id, ok := strings.CutPrefix(lines.Text(), "id:"); ok {
			last = strings.TrimSpace(id)
		}
		answers += strings.Count(lines.Text(), `"id":7`)
	}
	if answers != 1 || last == "" {
		t.Fatalf("%d answers, the last event is %q", answers, last)
	}
	if status := r.resumeStatus(session, last); status != http.StatusMethodNotAllowed {
		t.Errorf("the resume behind the answer got %d", status)
	}
	r.works(false, session)
}

// TestWitnessTooLate: a Stop by anybody of a call that has ended changes nothing
// and is not sent on: the server is only told of what may still be running
// (MCP-6, MCP-12, MCP-15, MCP-21, MCP-G11).
func TestWitnessTooLate(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.apply(r.at(&rude{witness: r.wit.Path, cancel: func(w http.ResponseWriter) { w.WriteHeader(http.StatusAccepted) }}))
	session := r.begin("tools")
	r.works(false, session) // the call 99
	run := r.find("echo")
	r.stop("echo")
	for range 2 {
		if a := r.must(r.post(Path("tools"), session, cancelOf("99"))); a.status != 202 || a.body != "" {
			t.Errorf("the cancel: %+v", a)
		}
	}
	r.works(false, session) // 99 again, which no late cancel may hit
	if info := run.Info(); info.Outcome != belay.Completed || info.Cancellation != nil {
		t.Errorf("the run is %+v", info)
	}
	if n := r.wit.Count("rude", "told"); n != 0 {
		t.Errorf("the server was told %d times", n)
	}
}
