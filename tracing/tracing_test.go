package tracing

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/calm"
	"github.com/belayhq/belay/internal/faketool"
)

const (
	callersTrace = "0af7651916cd43dd8448eb211c80319c"
	callersSpan  = "b7ad6b7169203331"
)

// A tree of runs arrives as spans, in each form that OTLP has over HTTP.
func TestSpans(t *testing.T) {
	for name, vars := range map[string]map[string]string{
		"protobuf": {},
		"json":     {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"},
		"gzip":     {"OTEL_EXPORTER_OTLP_TRACES_COMPRESSION": "gzip", "OTEL_EXPORTER_OTLP_HEADERS": "api-key=a%20b,x=y", "OTEL_SERVICE_NAME": "gate"},
	} {
		t.Run(name, func(t *testing.T) {
			r, tree := receive(t), newTree(t)
			tr := start(t, Options{Control: tree, Config: env(t, r, vars), Version: "v1"})
			session := register(t, tree, belay.Spec{Kind: belay.KindSession, Name: "files"})
			plain := register(t, tree, belay.Spec{Name: "search", Server: "files", Parent: session, Address: `"a\"7"`, Labels: map[string]string{LabelMethod: "tools/call"}})
			traced := register(t, tree, belay.Spec{Name: "write", Parent: session, Labels: map[string]string{LabelTrace: callersTrace, LabelParent: callersSpan}})
			below := register(t, tree, belay.Spec{Kind: belay.KindProcess, Name: "sh", Parent: traced})
			before := time.Now()
			plain.Finish(belay.Completed)
			below.Finish(belay.Failed)
			traced.Cancel(belay.Cancellation{Cause: belay.CauseOperator})
			traced.Observe(belay.Evidence{Kind: belay.SeenHandlerReturned, Scope: belay.ScopeHandler})
			session.Finish(belay.Completed)
			if err := tr.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			all := r.all()
			if len(all) != 4 {
				t.Fatalf("%d spans: %v", len(all), all)
			}
			check(t, all["session files"], session, session, [8]byte{}, 0)
			check(t, all["tools/call search"], plain, session, SpanID(session.ID()), 0)
			if got := attrs(all["tools/call search"]); got[attrTool] != "search" || got[attrRequest] != `a"7` || got[attrServer] != "files" || got[attrOutcome] != "completed" {
				t.Error(got)
			}
			checkTraced(t, all, session, traced, before)
			if r.paths[0] != "/v1/traces" || name == "gzip" && (r.headers.Get("Api-Key") != "a b" || r.headers.Get("X") != "y" || r.service != "gate") {
				t.Error(r.paths, r.headers, r.service)
			}
			if s := tr.Stats(); s.Exported != 4 || s.Dropped != 0 || s.Queued != 0 {
				t.Error(s)
			}
		})
	}
}

// checkTraced looks at the call that came with its caller's trace, and at what
// ran below it.
func checkTraced(t *testing.T, all map[string]*v1.Span, session, traced *belay.Run, before time.Time) {
	t.Helper()
	w := all["call write"]
	if hex.EncodeToString(w.GetTraceId()) != callersTrace || hex.EncodeToString(w.GetParentSpanId()) != callersSpan {
		t.Errorf("the caller's trace was not taken: %v", w)
	}
	if got := attrs(w); got[attrVerdict] != "confirmed" || got[attrCause] != "operator" || got[attrScope] != "handler" || got[attrParent] != session.ID().String() {
		t.Error(got)
	}
	if w.GetStatus().GetCode() != 0 {
		t.Error("a confirmed stop is an error")
	}
	steps := ""
	for _, e := range w.GetEvents() {
		steps += e.GetName() + " "
		if at := time.Unix(0, int64(e.GetTimeUnixNano())); at.Before(before) || at.After(time.Now()) {
			t.Errorf("%s was at %s", e.GetName(), at)
		}
	}
	if steps != "belay.stop.requested belay.stop.told belay.stop.evidence " && steps != "belay.stop.requested belay.stop.evidence " {
		t.Error(steps)
	}
	p := all["process sh"]
	if hex.EncodeToString(p.GetTraceId()) != callersTrace || [8]byte(p.GetParentSpanId()) != SpanID(traced.ID()) || p.GetStatus().GetCode() != v1.Status_STATUS_CODE_ERROR {
		t.Errorf("below the caller's: %v", p)
	}
}

func check(t *testing.T, s *v1.Span, run, top *belay.Run, parent [8]byte, status v1.Status_StatusCode) {
	t.Helper()
	var got [8]byte
	copy(got[:], s.GetParentSpanId())
	trace := TraceID(top.ID())
	id := SpanID(run.ID())
	if !bytes.Equal(s.GetTraceId(), trace[:]) || !bytes.Equal(s.GetSpanId(), id[:]) || got != parent || s.GetStatus().GetCode() != status {
		t.Errorf("%s: %v", run.Name(), s)
	}
	if s.GetStartTimeUnixNano() != uint64(run.Started().UnixNano()) || s.GetEndTimeUnixNano() < s.GetStartTimeUnixNano() {
		t.Errorf("%s: from %d to %d", run.Name(), s.GetStartTimeUnixNano(), s.GetEndTimeUnixNano())
	}
}

// A Stop that was not shown to work is an error, and says how far it got.
func TestUnconfirmed(t *testing.T) {
	r, tree := receive(t), newTree(t)
	tr := start(t, Options{Control: tree, Config: env(t, r, nil)})
	run, err := tree.Register(belay.Spec{Kind: belay.KindCall, Name: "deaf", Ladder: belay.Ladder{Grace: 1, KillAfter: 1, ConfirmAfter: time.Millisecond}}) // nobody can be told
	if err != nil {
		t.Fatal(err)
	}
	run.Cancel(belay.Cancellation{Cause: belay.CauseDeadline})
	if _, err := run.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := tr.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := r.all()["call deaf"]
	if s.GetStatus().GetMessage() != "stop_not_confirmed" || attrs(s)[attrError] != "stop_not_confirmed" || attrs(s)[attrVerdict] != "unreachable" {
		t.Error(s)
	}
}

// DESIGN 11, 15: what belongs to people is not sent.
func TestPrivacy(t *testing.T) {
	r, tree := receive(t), newTree(t)
	tr := start(t, Options{Control: tree, Config: env(t, r, nil)})
	run := register(t, tree, belay.Spec{Name: "visible", Owner: "secret-owner", Labels: map[string]string{"secret-key": "secret-value", LabelMethod: "a\xffb"}})
	run.Partial("secret-partial")
	run.Cancel(belay.Cancellation{Cause: belay.CauseUser, By: "secret-by", Via: "secret-via", Reason: "secret-reason"})
	run.Observe(belay.Evidence{
		Kind: belay.SeenProcessGone, Scope: belay.ScopeLocalTree, Detail: "secret-detail", Remote: []string{"secret-host"},
		Survivors: []belay.Process{{PID: 3, Command: "secret-command"}},
	})
	run.Observe(belay.Evidence{Kind: belay.SeenHandlerReturned, Scope: belay.ScopeHandler})
	if err := tr.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(r.all()) != 1 || contains(r, "secret") {
		t.Errorf("%d spans, or they say too much", len(r.all()))
	}
}

// A receiver that hangs, refuses or is not there delays no run, and Close no
// longer than its context; what is not taken is counted.
func TestBadReceivers(t *testing.T) {
	for name, set := range map[string]func(*receiver){
		"hangs": func(r *receiver) {
			r.answer = func(_ http.ResponseWriter, q *http.Request) bool { <-q.Context().Done(); return true }
		},
		"refuses": func(r *receiver) {
			r.answer = func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(http.StatusUnauthorized); return true }
		},
		"is full": func(r *receiver) {
			r.answer = func(w http.ResponseWriter, _ *http.Request) bool {
				w.WriteHeader(http.StatusServiceUnavailable)
				return true
			}
		},
		"sends away": func(r *receiver) {
			r.answer = func(w http.ResponseWriter, q *http.Request) bool {
				http.Redirect(w, q, "/elsewhere", http.StatusTemporaryRedirect)
				return true
			}
		},
		"is gone": func(r *receiver) { r.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			r, tree := receive(t), newTree(t)
			set(r)
			var log faketool.Text
			c := env(t, r, map[string]string{"OTEL_BSP_MAX_QUEUE_SIZE": "8", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "4"})
			tr := start(t, Options{Control: tree, Config: c, Log: slog.New(slog.NewTextHandler(&log, nil))})
			w, began := calm.Start(t), time.Now()
			for i := range 40 {
				register(t, tree, belay.Spec{Name: fmt.Sprint(i)}).Finish(belay.Completed)
			}
			w.Within(t, time.Since(began), time.Second, "the runs")
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			began = time.Now()
			_ = tr.Close(ctx)
			w.Within(t, time.Since(began), 5*time.Second, "Close")
			if s := tr.Stats(); s.Dropped != 40 || s.Exported != 0 || s.Queued != 0 {
				t.Errorf("%+v", s)
			}
			if n := strings.Count(log.String(), "spans were dropped"); n != 1 {
				t.Errorf("logged %d times: %s", n, log.String())
			}
			if strings.Contains(log.String(), r.URL) {
				t.Errorf("the log has the URL: %s", log.String())
			}
		})
	}
}

// What may pass is tried again, and spans come once.
func TestRetry(t *testing.T) {
	r, tree := receive(t), newTree(t)
	var tries atomic.Int32
	r.answer = func(w http.ResponseWriter, _ *http.Request) bool {
		if tries.Add(1) > 1 {
			return false
		}
		w.WriteHeader(http.StatusTooManyRequests)
		return true
	}
	tr := start(t, Options{Control: tree, Config: env(t, r, nil)})
	register(t, tree, belay.Spec{Name: "x"}).Finish(belay.Completed)
	until(t, "it arrives at the second try", func() bool { return tr.Stats().Exported == 1 })
	if s := tr.Stats(); s.Dropped != 0 || tries.Load() != 2 {
		t.Errorf("%+v after %d tries", s, tries.Load())
	}
}

// What a receiver says it rejected counts as dropped.
func TestPartialSuccess(t *testing.T) {
	for protocol, answer := range map[string]string{
		"http/protobuf": "\x0a\x07\x08\x01\x12\x03bad",
		"http/json":     `{"partialSuccess":{"rejectedSpans":"1"}}`,
	} {
		r, tree := receive(t), newTree(t)
		r.answer = func(w http.ResponseWriter, _ *http.Request) bool {
			_, err := w.Write([]byte(answer))
			return err == nil
		}
		tr := start(t, Options{Control: tree, Config: env(t, r, map[string]string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": protocol})})
		for range 3 {
			register(t, tree, belay.Spec{Name: "x"}).Finish(belay.Completed)
		}
		_ = tr.Close(t.Context())
		if s := tr.Stats(); s.Exported+s.Dropped != 3 || s.Dropped != uint64(r.count()) {
			t.Errorf("%s: %+v", protocol, s)
		}
	}
}

// Bytes of a receiver that make no sense do no harm.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte("\x0a\x07\x08\x01\x12\x03bad"))
	f.Add([]byte(`{"partialSuccess":{"rejectedSpans":"1"}}`))
	f.Add([]byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(_ *testing.T, b []byte) {
		rejectedProtobuf(b)
		rejectedJSON(b)
	})
}

// The console gets one line of JSON for each batch.
func TestConsole(t *testing.T) {
	var out faketool.Text
	tree := newTree(t)
	tr := start(t, Options{Control: tree, Config: env(t, nil, map[string]string{"OTEL_TRACES_EXPORTER": "console"}), Console: &out})
	register(t, tree, belay.Spec{Name: "x"}).Finish(belay.Completed)
	if err := tr.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	var got jsonRequest
	if err := json.Unmarshal([]byte(out.String()), &got); err != nil || got.ResourceSpans[0].ScopeSpans[0].Spans[0].Name != "call x" {
		t.Error(err, out.String())
	}
}

// Events that a watcher misses are counted, and no run waits for the tracer.
func TestMissed(t *testing.T) {
	tree := newTree(t)
	tr := start(t, Options{Control: tree, Config: env(t, nil, map[string]string{"OTEL_TRACES_EXPORTER": "console", "OTEL_BSP_MAX_QUEUE_SIZE": "100000"}), Console: &faketool.Text{}})
	const n = 3000
	for range n {
		register(t, tree, belay.Spec{Name: "x"}).Finish(belay.Completed)
	}
	tr.catchUp(t.Context())
	register(t, tree, belay.Spec{Name: "x"}).Finish(belay.Completed) // a loss shows with the next event
	if err := tr.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := tr.Stats(); s.Exported > n+1 || s.Exported+s.Missed < n+1 {
		t.Errorf("%+v", s)
	}
}

// Off is off, nil is nothing, and Close may be called again.
func TestOff(t *testing.T) {
	var tr *Tracer
	if tr.Stats() != (Stats{}) || tr.Close(t.Context()) != nil {
		t.Error("nil does something")
	}
	if _, err := New(Options{Control: newTree(t)}); !errors.Is(err, ErrConfig) {
		t.Error(err)
	}
	on := start(t, Options{Control: newTree(t), Config: env(t, nil, map[string]string{"OTEL_TRACES_EXPORTER": "console"}), Console: &faketool.Text{}})
	for range 2 {
		if err := on.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
