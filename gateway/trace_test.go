package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/sdkfake"
	"github.com/belayhq/belay/mcp"
)

func tracing(c *Config) { c.Trace = true }

// sentMeta is the _meta of the last echo call that the server got.
func (r *link) sentMeta() map[string]any {
	r.t.Helper()
	lines := r.gotWith(`"echo"`)
	if len(lines) == 0 {
		r.t.Fatal("the server got no call")
	}
	var m struct {
		Params struct {
			Meta map[string]any `json:"_meta"`
		}
	}
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &m); err != nil {
		r.t.Fatal(err)
	}
	return m.Params.Meta
}

// TestTrace: a call is a span of its caller's trace, or of one of Belay's, and the
// server gets it as the span above (W3C trace context).
func TestTrace(t *testing.T) {
	t.Parallel()
	r := legacy(t, linkOptions{cfg: tracing})
	var top string // of what nobody traces
	id := r.s.Run().ID()
	top = fmt.Sprintf("%x", id[:])
	other := "00-" + strings.Repeat("ab", 16) + "-00f067aa0ba902b8-00"
	for i, c := range []struct {
		meta, header, state string
		trace, span, flags  string
		wantState           any
	}{
		{meta: `{}`, trace: top, flags: "01"},
		{meta: `{"traceparent":"` + traceparent + `","tracestate":"v=1"}`, trace: traceparent[3:35], span: traceparent[36:52], flags: "03", wantState: "v=1"},
		{meta: `{"traceparent":"` + traceparent + `"}`, header: other, state: "h=1", trace: traceparent[3:35], span: traceparent[36:52], flags: "03"},
		{meta: `{}`, header: other, state: "h=1", trace: other[3:35], span: other[36:52], flags: "00", wantState: "h=1"},
		{meta: `{"tracestate":"v=1"}`, header: other, state: "h=1", trace: other[3:35], span: other[36:52], flags: "00", wantState: "v=1"},
		{meta: `{"traceparent":"00-zz"}`, header: other, trace: other[3:35], span: other[36:52], flags: "00"},
		{meta: `{"traceparent":7}`, header: "nonsense", state: "h=1", trace: top, flags: "01"},
		{meta: `{"traceparent":"` + strings.ToUpper(traceparent) + `"}`, trace: top, flags: "01"},
	} {
		id := fmt.Sprint(i)
		r.bring(echoWith(i, c.meta), func(a *mcp.Arrival) { a.Traceparent, a.Tracestate = c.header, c.state })
		r.expect(id)
		run := r.runOf(id)
		runID, labels, meta := run.ID(), run.Info().Labels, r.sentMeta()
		if labels["trace_id"] != c.trace || labels["parent_span_id"] != c.span {
			t.Errorf("%s %s: the labels are %v", c.meta, c.header, labels)
		}
		if want := fmt.Sprintf("00-%s-%x-%s", c.trace, runID[8:], c.flags); meta["traceparent"] != want || meta["tracestate"] != c.wantState {
			t.Errorf("%s %s: the server got %v, want %s", c.meta, c.header, meta, want)
		}
	}
	r.send(`{"jsonrpc":"2.0","id":"bare","method":"tools/call","params":{"name":"echo"}}`)
	r.expect(`"bare"`)
	if meta := r.sentMeta(); !strings.HasPrefix(meta["traceparent"].(string), "00-"+top) {
		t.Errorf("without _meta the server got %v", meta)
	}
}

// TestTraceOfParent: a call below a run that is part of a trace is part of it, too;
// else its trace is that of the topmost run.
func TestTraceOfParent(t *testing.T) {
	t.Parallel()
	r := legacy(t, linkOptions{cfg: func(c *Config) { c.Trace, c.NameRuns = true, true }})
	top := r.turn("tester")
	below, err := r.tree.Register(belay.Spec{Kind: belay.KindTurn, Name: "below", Owner: "tester", Parent: top})
	if err != nil {
		t.Fatal(err)
	}
	defer below.Finish(belay.Completed)
	labelled, err := r.tree.Register(belay.Spec{Kind: belay.KindTurn, Name: "labelled", Owner: "tester", Parent: top, Labels: map[string]string{"trace_id": traceparent[3:35]}})
	if err != nil {
		t.Fatal(err)
	}
	defer labelled.Finish(belay.Completed)
	topID := top.ID()
	for i, c := range []struct {
		above *belay.Run
		trace string
	}{{below, fmt.Sprintf("%x", topID[:])}, {labelled, traceparent[3:35]}} {
		r.send("%s", echoWith(i, `{"io.github.belayhq/parent":"`+c.above.ID().String()+`"}`))
		r.expect(fmt.Sprint(i))
		if labels := r.runOf(fmt.Sprint(i)).Info().Labels; labels["trace_id"] != c.trace || labels["parent_span_id"] != "" {
			t.Errorf("the labels are %v, want %s", labels, c.trace)
		}
	}
}

// TestTraceOverHTTP: a server that is reached by HTTP gets the span in headers as
// well, in both eras; other requests have none.
func TestTraceOverHTTP(t *testing.T) {
	t.Parallel()
	for _, modern := range []bool{false, true} {
		t.Run(fmt.Sprint("modern ", modern), func(t *testing.T) {
			var mu sync.Mutex
			var seen []http.Header
			handler := func(o sdkfake.Options) http.Handler {
				server := sdkfake.Handler(o)
				return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
					if req.Header.Get("Traceparent") != "" {
						mu.Lock()
						seen = append(seen, req.Header.Clone())
						mu.Unlock()
					}
					server.ServeHTTP(w, req)
				})
			}
			r := remoteBy(t, handler, sdkfake.Options{Stateless: modern}, linkOptions{cfg: tracing})
			meta := `{"traceparent":"` + traceparent + `","tracestate":"v=1"`
			if modern {
				meta += "," + strings.TrimSuffix(strings.TrimPrefix(modernMeta, `"_meta":{`), "}")
			} else {
				r.initialize("2025-11-25")
			}
			r.send("%s", echoWith(1, meta+"}"))
			if m := r.expect("1"); m.Error != nil {
				t.Fatalf("got %s", m.Raw)
			}
			id := r.runOf("1").ID()
			mu.Lock()
			defer mu.Unlock()
			if len(seen) != 1 || seen[0].Get("Traceparent") != fmt.Sprintf("%s%x-03", traceparent[:36], id[8:]) || seen[0].Get("Tracestate") != "v=1" {
				t.Errorf("the server got %v", seen)
			}
		})
	}
}
