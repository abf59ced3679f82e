package metrics

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
)

// A run's whole life is in the counts.
func TestCountsALife(t *testing.T) {
	tree := newTree(t)
	m := start(t, Options{Control: tree})
	session := register(t, tree, belay.Spec{Kind: belay.KindSession, Server: "files"})
	done := register(t, tree, belay.Spec{Server: "files", Parent: session})
	stopped := register(t, tree, belay.Spec{Server: "files", Parent: session, OnCancel: func(*belay.Run, *belay.Cancellation) {}})
	done.Finish(belay.Completed)
	stopped.Cancel(belay.Cancellation{Cause: belay.CauseOperator, By: "eve", Reason: "enough"})
	want(t, m, map[string]float64{
		"belay_runs_started_total{kind=session,server=files}":              1,
		"belay_runs_started_total{kind=call,server=files}":                 2,
		"belay_runs_ended_total{kind=call,outcome=completed,server=files}": 1,
		"belay_run_duration_seconds{kind=call,outcome=completed}":          1,
		"belay_cancels_total{cause=operator,kind=call}":                    1,
		"belay_runs_in_flight{kind=call,work=running}":                     0,
		"belay_runs_in_flight{kind=call,work=stopping}":                    1,
		"belay_runs_in_flight{kind=session,work=running}":                  1,
		"belay_stop_told_seconds":                                          1,
		"belay_stop_steps_total{result=ok,step=requested}":                 1,
		"belay_stop_steps_total{result=ok,step=told}":                      1,
	})
	stopped.Observe(belay.Evidence{Kind: belay.SeenHandlerReturned, Scope: belay.ScopeHandler})
	want(t, m, map[string]float64{
		"belay_runs_ended_total{kind=call,outcome=cancelled,server=files}":   1,
		"belay_runs_in_flight{kind=call,work=stopping}":                      0,
		"belay_stops_total{cause=operator,verdict=confirmed}":                1,
		"belay_stop_final_seconds{verdict=confirmed}":                        1,
		"belay_stop_evidence_total{evidence=handler_returned,scope=handler}": 1,
		"belay_late_results_total":                                           0,
	})
	stopped.Finish(belay.Completed) // an answer after the end
	want(t, m, map[string]float64{"belay_late_results_total": 1, "belay_stop_steps_total{result=ok,step=late}": 1})
}

// The first Stop that fails can be seen to raise a counter.
func TestCountersThatAlertBeginAtZero(t *testing.T) {
	v := values(t, start(t, Options{Control: newTree(t)}))
	for _, name := range []string{
		"belay_stops_total{cause=user,verdict=signalled}", "belay_stops_total{cause=operator,verdict=unreachable}",
		"belay_stops_with_survivors_total", "belay_late_evidence_total{verdict=confirmed}", "belay_tombstone_hits_total{door=rest}",
	} {
		if n, ok := v[name]; !ok || n != 0 {
			t.Errorf("%s: %v, there: %v", name, n, ok)
		}
	}
	if n, ok := v["belay_stops_total{cause=other,verdict=other}"]; ok {
		t.Errorf("other is there from the start: %v", n)
	}
}

// Survivors, second Stops and evidence after the end have counters of their own.
func TestCountsWhatWentWrong(t *testing.T) {
	tree := newTree(t)
	m := start(t, Options{Control: tree})
	r := register(t, tree, belay.Spec{Kind: belay.KindProcess})
	ids := belay.Filter{IDs: []belay.RunID{r.ID()}}
	for range 2 {
		_, err := tree.Cancel(t.Context(), belay.CancelRequest{Filter: ids, Escalate: true, Cancellation: belay.Cancellation{Cause: belay.CauseUser}})
		if err != nil {
			t.Fatal(err)
		}
	}
	r.Observe(belay.Evidence{Kind: belay.SeenSurvivors, Scope: belay.ScopeLocalTree, Survivors: []belay.Process{{PID: 4}, {PID: 5}}})
	r.Observe(belay.Evidence{Kind: belay.SeenResult, Scope: belay.ScopeHandler})
	want(t, m, map[string]float64{
		"belay_escalations_total":                                        1,
		"belay_stops_with_survivors_total":                               1,
		"belay_survivors_total":                                          2,
		"belay_cancels_total{cause=user,kind=process}":                   1,
		"belay_stop_evidence_total{evidence=survivors,scope=local-tree}": 1,
	})
	r.Observe(belay.Evidence{Kind: belay.SeenProcessGone, Scope: belay.ScopeLocalTree})
	want(t, m, map[string]float64{"belay_late_evidence_total{verdict=confirmed}": 1})
	if v := values(t, m)["belay_stops_total{cause=user,verdict=confirmed}"]; v != 0 {
		t.Errorf("late evidence was counted as a verdict: %v", v)
	}
}

// Runs that were there before are counted, and runs of a library's own kind have a label.
func TestCountsWhatWasThere(t *testing.T) {
	tree := newTree(t)
	register(t, tree, belay.Spec{Kind: "dream", Queued: true})
	m := start(t, Options{Control: tree})
	want(t, m, map[string]float64{
		"belay_runs_in_flight{kind=other,work=waiting}": 1,
		"belay_runs_started_total{kind=other,server=}":  1,
	})
}

// Names that callers can choose make no more than a bounded number of label values.
func TestLabelsAreBounded(t *testing.T) {
	tree := newTree(t)
	m := start(t, Options{Control: tree})
	k := start(t, Options{Control: tree, Known: func(s string) bool { return s == "s7" }})
	for i := range 300 {
		r := register(t, tree, belay.Spec{
			Kind: belay.Kind(fmt.Sprint("kind", i)), Server: fmt.Sprint("s", i), Owner: fmt.Sprint("owner", i),
			Name: fmt.Sprint("name", i), Address: fmt.Sprint("id", i), Labels: map[string]string{"l": fmt.Sprint("label", i)},
		})
		r.Cancel(belay.Cancellation{Cause: belay.CauseUser, Reason: fmt.Sprint("reason", i), By: fmt.Sprint("by", i), Via: fmt.Sprint("via", i)})
		r.Observe(belay.Evidence{Kind: belay.EvidenceKind(fmt.Sprint("seen", i)), Scope: belay.Scope(fmt.Sprint("scope", i))})
		r.Observe(belay.Evidence{Kind: belay.SeenHandlerReturned, Scope: belay.ScopeHandler})
		if i%50 == 49 { // a watcher that lags behind loses events
			for _, c := range []*Metrics{m, k} {
				until(t, "it is counted", func() string { return short(total(values(t, c), "belay_runs_ended_total"), i+1) }, func() {})
			}
		}
	}
	m.Refused(Surface("x1"), Class("x2"))
	m.TombstoneHit("x3")
	want(t, m, map[string]float64{"belay_runs_ended_total{kind=other,outcome=cancelled,server=other}": 200, "belay_refused_total{class=other,surface=other}": 1})
	want(t, k, map[string]float64{
		"belay_runs_ended_total{kind=other,outcome=cancelled,server=other}": 299,
		"belay_runs_ended_total{kind=other,outcome=cancelled,server=s7}":    1,
	})
	text := page(t, m)
	for _, word := range []string{"kind1", "owner1", "name1", "id1", "label1", "reason1", "by1", "via1", "seen1", "scope1", "x1", "x2", "x3"} {
		if strings.Contains(text, word) {
			t.Errorf("the page says %q", word)
		}
	}
}

// The closed sets hold every constant that package belay has.
func TestSetsAreComplete(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../words.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	w := allWords()
	has := map[string]map[string]bool{
		"Kind": names(w.kinds.names), "Work": names(w.works.names), "Outcome": names(w.outcomes.names), "Cause": names(w.causes.names),
		"Verdict": names(w.verdicts.names), "Means": names(w.steps.names), "EvidenceKind": names(w.evidence.names), "Scope": names(w.scopes.names),
	}
	seen := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		kind, _ := spec.Type.(*ast.Ident)
		text, _ := spec.Values[0].(*ast.BasicLit)
		value, _ := strconv.Unquote(text.Value)
		seen++
		if kind == nil || !has[kind.Name][value] {
			t.Errorf("%s is in no set", value)
		}
		return true
	})
	if seen < 40 {
		t.Errorf("only %d constants were found", seen)
	}
}

func names(list []string) map[string]bool {
	m := map[string]bool{}
	for _, n := range list {
		m[n] = true
	}
	return m
}

// What is pulled appears, and what has no source does not.
func TestPulledSources(t *testing.T) {
	tree := newTree(t)
	m := start(t, Options{
		Control: tree, Version: "v9", Sessions: func() int { return 3 }, Latched: func() bool { return true },
		Ledger: func() LedgerStats { return LedgerStats{Written: 7, Bytes: 99, Trouble: true} },
		Traces: func() TraceStats { return TraceStats{Exported: 5, Dropped: 2} },
	})
	register(t, tree, belay.Spec{Server: "files"})
	want(t, m, map[string]float64{"belay_runs_started_total{kind=call,server=files}": 1})
	m.ForcedRestart("files")
	m.ForcedRestart("never seen")
	m.TombstoneHit(DoorREST)
	m.EarlyStop("files")
	want(t, m, map[string]float64{
		"belay_sessions": 3, "belay_latch_engaged": 1, "belay_ledger_records_written_total": 7, "belay_ledger_bytes": 99, "belay_ledger_trouble": 1,
		"belay_trace_spans_exported_total": 5, "belay_trace_spans_dropped_total": 2,
		"belay_forced_restarts_total{server=files}": 1, "belay_tombstone_hits_total{door=rest}": 1,
		"belay_tombstone_hits_total{door=caller}": 1, "belay_forced_restarts_total{server=other}": 1,
	})
	text := page(t, m)
	for _, name := range []string{"belay_build_info{goversion=", `version="v9"`, "go_goroutines", "process_resident_memory_bytes", "# HELP belay_escalations_total "} {
		if !strings.Contains(text, name) {
			t.Errorf("the page lacks %s", name)
		}
	}
	if bare := page(t, start(t, Options{Control: tree})); strings.Contains(bare, "belay_ledger") || strings.Contains(bare, "belay_sessions") {
		t.Error("the page shows sources that are not there")
	}
}

// Refusals are counted by class, and streaming still works behind the count.
func TestRefusals(t *testing.T) {
	m := start(t, Options{Control: newTree(t)})
	h := m.Refusals(SurfaceAPI, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, _ := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/"))
		w.WriteHeader(status)
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		if _, ok := w.(http.Flusher); !ok {
			t.Error("no Flusher")
		}
	}))
	for _, status := range []int{200, 401, 403, 404, 413, 429, 429, 503, 418} {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, fmt.Sprint("/", status), nil))
	}
	want(t, m, map[string]float64{
		"belay_refused_total{class=unauthenticated,surface=api}": 1, "belay_refused_total{class=forbidden,surface=api}": 1,
		"belay_refused_total{class=not_found,surface=api}": 1, "belay_refused_total{class=too_large,surface=api}": 1,
		"belay_refused_total{class=rate_limited,surface=api}": 2, "belay_refused_total{class=unavailable,surface=api}": 1,
		"belay_refused_total{class=other,surface=api}": 1,
	})
}

// Nil counts nothing, Close is idempotent, and a Control is required.
func TestNilAndClose(t *testing.T) {
	var m *Metrics
	m.TombstoneHit(DoorCaller)
	m.ForcedRestart("x")
	m.Refused(SurfaceMCP, Latched)
	m.Close()
	if m.Handler() == nil || m.Refusals(SurfaceMCP, http.NotFoundHandler()) == nil {
		t.Error("a nil *Metrics has no handler")
	}
	if _, err := New(Options{}); !errors.Is(err, belay.ErrBadRequest) {
		t.Error(err)
	}
	n := start(t, Options{Control: newTree(t)})
	n.Close()
	n.Close()
	if !strings.Contains(page(t, n), "belay_build_info") {
		t.Error("the page is gone")
	}
}

func short(got float64, want int) string {
	if got == float64(want) {
		return ""
	}
	return fmt.Sprintf("%v of %d", got, want)
}

// A run that was given up and is stopped once more by a person is in flight
// again, and is counted once.
func TestCountsARunThatComesBack(t *testing.T) {
	tree := newTree(t)
	m := start(t, Options{Control: tree})
	r := register(t, tree, belay.Spec{Stopper: deaf{}, Ladder: belay.Ladder{Grace: 1, KillAfter: 1, ConfirmAfter: time.Millisecond}})
	press := func() {
		_, err := tree.Cancel(t.Context(), belay.CancelRequest{
			Filter: belay.Filter{IDs: []belay.RunID{r.ID()}}, Escalate: true, Cancellation: belay.Cancellation{Cause: belay.CauseUser},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	once := map[string]float64{
		"belay_runs_started_total{kind=call,server=}":                 1,
		"belay_runs_ended_total{kind=call,outcome=cancelled,server=}": 1,
		"belay_cancels_total{cause=user,kind=call}":                   1,
		"belay_stops_total{cause=user,verdict=signalled}":             1,
		"belay_runs_in_flight{kind=call,work=stopping}":               0,
		"belay_runs_in_flight{kind=call,work=unconfirmed}":            0,
		"belay_escalations_total":                                     0,
	}
	press()
	want(t, m, once)
	press()
	once["belay_escalations_total"] = 1
	want(t, m, once)
	until(t, "it has ended again", func() string { return leak(values(t, m)) }, func() {})
	want(t, m, once)
}

// deaf can be told and killed, and nothing comes of it.
type deaf struct{}

func (deaf) Tell(context.Context, *belay.Cancellation) (*belay.Evidence, error) { return nil, nil }

func (deaf) Terminate(context.Context, *belay.Cancellation) (*belay.Evidence, error) { return nil, nil }

func (deaf) Kill(context.Context, *belay.Cancellation) (*belay.Evidence, error) { return nil, nil }
