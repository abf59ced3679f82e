package admin

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
)

// Every filter of the list, and the same for cancels: states of work and outcome,
// age, under, request id, and the caller's own labels.
func TestFilters(t *testing.T) {
	labels := map[string]string{"trace_id": "4bf92f3577b34da6a3ce929d0e0e4736", "request_id": "req-1", "tool_use_id": "toolu_1"}
	build := func(t *testing.T) (*rig, map[string]*belay.Run) {
		r := newRig(t, Options{})
		runs := map[string]*belay.Run{}
		add := func(name string, owner, raw string, more ...func(*belay.Spec)) *belay.Run {
			time.Sleep(2 * time.Millisecond) // ids sort by millisecond
			runs[name] = r.call(owner, raw, append(more, named(name))...)
			return runs[name]
		}
		turn := add("turn", "ann", `"t"`, func(s *belay.Spec) { s.Kind = belay.KindTurn })
		add("call", "ann", "7", func(s *belay.Spec) { s.Parent, s.Labels = turn, labels })
		add("same", "bob", `"7"`)
		add("queued", "bob", `"q"`, func(s *belay.Spec) { s.Queued = true })
		add("done", "ann", `"d"`).Finish(belay.Completed)
		add("failed", "ann", `"f"`).Finish(belay.Failed)
		return r, runs
	}
	tests := []struct{ query, body, want string }{
		{"state=waiting", `{"states":["waiting"]}`, "queued"},
		{"state=pending", `{"states":["pending"]}`, "queued same call turn"},
		{"state=waiting&state=pending&owner=ann", `{"states":["waiting","pending"],"owner":"ann"}`, "call turn"},
		{"request_id=7", `{"request_id":"7"}`, "same call"},
		{"request_id=7&owner=bob", `{"request_id":"7","owner":"bob"}`, "same"},
		{"request_id=7&kind=turn", `{"request_id":"7","kinds":["turn"]}`, ""},
		{"request_id=nobody", `{"request_id":"nobody"}`, ""},
		{"label=trace_id%3D" + labels["trace_id"], `{"labels":{"trace_id":"` + labels["trace_id"] + `"}}`, "call"},
		{"label=request_id%3Dreq-1&label=tool_use_id%3Dtoolu_1", `{"labels":{"request_id":"req-1","tool_use_id":"toolu_1"}}`, "call"},
		{"label=request_id%3Dreq-1&label=tool_use_id%3Dtoolu_2", `{"labels":{"request_id":"req-1","tool_use_id":"toolu_2"}}`, ""},
		{"older_than=3600", `{"older_than":3600}`, ""},
		{"newer_than=3600&owner=bob", `{"newer_than":3600,"owner":"bob"}`, "queued same"},
		{"older_than=0.000001&newer_than=3600&kind=turn", `{"older_than":0.000001,"newer_than":3600,"kinds":["turn"]}`, "turn"},
	}
	r, runs := build(t)
	under := runs["turn"].ID().String()
	tests = append(tests, []struct{ query, body, want string }{
		{"under=" + under, "", "call turn"},
		{"under=" + under + "&request_id=7", "", "call"},
		{"under=" + under + "&state=running&kind=call", "", "call"},
		{"state=ended", "", "failed done"},
		{"state=failed", "", "failed"},
		{"state=failed&state=completed", "", "failed done"},
		{"state=all", "", "failed done queued same call turn"},
		{"state=all&request_id=d", "", "done"},
		{"state=lost", "", ""},
	}...)
	for _, tt := range tests {
		got := into[runList](r, r.do("GET", "/v1/runs?"+tt.query, "op", ""), 200)
		if list := strings.Join(names(got.Runs), " "); list != tt.want {
			t.Errorf("%s: %q, want %q", tt.query, list, tt.want)
		}
		if tt.want != "" { // page by page it is the same
			var paged []string
			for next, n := "", 0; n < 9; n++ {
				page := into[runList](r, r.do("GET", "/v1/runs?limit=1&"+tt.query+"&cursor="+next, "op", ""), 200)
				paged = append(paged, names(page.Runs)...)
				if next = page.Next; next == "" {
					break
				}
			}
			if list := strings.Join(paged, " "); list != tt.want {
				t.Errorf("%s in pages: %q, want %q", tt.query, list, tt.want)
			}
		}
	}
	for _, tt := range tests {
		if tt.body == "" {
			continue
		}
		r, runs := build(t)
		got := r.do("POST", "/v1/cancel", "op", tt.body)
		if got.status != 200 && got.status != 202 {
			t.Errorf("%s: %d %s", tt.body, got.status, got.body)
		}
		want := strings.Fields(tt.want)
		if slices.Contains(want, "turn") && !slices.Contains(want, "call") {
			want = append(want, "call") // below it
		}
		for name, run := range runs {
			if stopped := run.Cancellation() != nil; stopped != slices.Contains(want, name) {
				t.Errorf("%s: %s stopped: %v", tt.body, name, stopped)
			}
		}
	}
	r, runs = build(t)
	r.do("POST", "/v1/cancel", "op", `{"under":"`+runs["turn"].ID().String()+`","request_id":"7"}`)
	if runs["call"].Cancellation() == nil || runs["turn"].Cancellation() != nil || runs["same"].Cancellation() != nil {
		t.Error("under and request_id together stopped others")
	}
	// Somebody else's runs are not selected by any of these.
	r, runs = build(t)
	r.do("POST", "/v1/cancel", "bob", `{"request_id":"7"}`)
	r.alive(runs["call"])
	for _, bad := range []string{`{"states":["x"]}`, `{"older_than":-1}`, `{"all":true,"request_id":"7"}`, `{"under":"x"}`} {
		if got := r.do("POST", "/v1/cancel", "op", bad); got.status != 422 && got.status != 400 {
			t.Errorf("%s: %d", bad, got.status)
		}
	}
}
