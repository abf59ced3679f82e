package gateway

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/mcp"
)

// bring delivers a request with what its transport knows of it.
func (r *link) bring(frame string, more func(*mcp.Arrival)) {
	r.t.Helper()
	var m mcp.Message
	if err := m.Read([]byte(frame)); err != nil {
		r.t.Fatal(err)
	}
	a := mcp.Arrival{Message: &m}
	more(&a)
	r.s.Deliver(a)
}

const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-03"

func echoWith(id int, meta string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"echo","arguments":{},"_meta":%s}}`, id, meta)
}

func naming(c *Config) {
	c.NameRuns, c.Labels = true, map[string]string{"team": "a", "request_id": "ours"}
}

// TestLabels: the names by which a caller knows its call find its run; those of
// the config go first, and what does not fit is left out.
func TestLabels(t *testing.T) {
	t.Parallel()
	r := legacy(t, linkOptions{cfg: naming})
	many := make(map[string]string)
	for i := range 60 {
		many[fmt.Sprintf("l%02d", i)] = "v"
	}
	for i, c := range []struct {
		meta   string
		labels map[string]string
		want   map[string]string
	}{
		{meta: `{}`},
		{meta: `null`},
		{meta: `{"claudecode/toolUseId":"toolu_1"}`, want: map[string]string{"tool_use_id": "toolu_1"}},
		{meta: `{"claudecode/toolUseId":7,"traceparent":"x"}`},
		{meta: `{"traceparent":"` + traceparent + `"}`, want: map[string]string{"trace_id": traceparent[3:35], "parent_span_id": traceparent[36:52]}},
		{meta: `{}`, labels: map[string]string{"request_id": "theirs", "x": "a\nb", "": "1", "y": "", "z": strings.Repeat("v", 257)}, want: map[string]string{"x": "a b"}},
		{meta: `{"callId":"c"}`, labels: map[string]string{"tool_use_id": "header"}, want: map[string]string{"tool_use_id": "c"}},
		{meta: `{"claudecode/toolUseId":"` + strings.Repeat("v", 257) + `"}`},
	} {
		r.bring(echoWith(i, c.meta), func(a *mcp.Arrival) { a.Labels = c.labels })
		r.expect(fmt.Sprint(i))
		want := map[string]string{"team": "a", "request_id": "ours"}
		maps.Copy(want, c.want)
		if got := r.runOf(fmt.Sprint(i)).Info().Labels; !maps.Equal(got, want) {
			t.Errorf("%s %v: the labels are %v, want %v", c.meta, c.labels, got, want)
		}
	}
	r.bring(echoWith(99, `{}`), func(a *mcp.Arrival) { a.Labels = many })
	r.expect("99")
	if got := r.runOf("99").Info().Labels; len(got) != 32 || got["team"] != "a" || got["l00"] != "v" || got["l29"] != "v" {
		t.Errorf("of too many labels %v are kept", got)
	}
}

// TestNamelessSession: without the settings nothing is read or added, and the
// server gets what the caller sent (MCP-G2).
func TestNamelessSession(t *testing.T) {
	t.Parallel()
	r := legacy(t, linkOptions{cfg: func(c *Config) { c.Enforce = EnforceStrict }}) // so that no progress is asked for
	meta := `{"io.github.belayhq/parent":"x", "claudecode/toolUseId":"y" ,"traceparent":"` + traceparent + `"}`
	r.send("%s", echoWith(1, meta))
	if m := r.expect("1"); strings.Contains(m.Raw, "io.github.belayhq") {
		t.Errorf("got %s", m.Raw)
	}
	if len(r.gotWith(meta)) != 1 {
		t.Errorf("the server got %v", r.gotWith("tools/call"))
	}
	if labels := r.runOf("1").Info().Labels; len(labels) != 0 {
		t.Errorf("the labels are %v", labels)
	}
}

// TestResultNamesRun: the caller learns which run its call was, or became.
func TestResultNamesRun(t *testing.T) {
	t.Parallel()
	r := taskLink(t, coreTask, linkOptions{cfg: naming})
	r.send("%s", echoWith(1, `{}`))
	if m := r.expect("1"); !strings.Contains(m.Raw, `"_meta":{"io.github.belayhq/run":"`+r.runOf("1").ID().String()+`"`) {
		t.Errorf("got %s", m.Raw)
	}
	r.send(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
	r.send(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"no such tool"}}`)
	for _, id := range []string{"2", "3"} {
		if m := r.expect(id); strings.Contains(m.Raw, "io.github.belayhq/run") && m.Error != nil || id == "2" && strings.Contains(m.Raw, "belayhq") {
			t.Errorf("got %s", m.Raw)
		}
	}
	run := r.begin(coreTask, "4", "a", `"n":3`)
	if m := r.expect("4"); !strings.Contains(m.Raw, run.ID().String()) {
		t.Errorf("the task %s was answered %s", run.ID(), m.Raw)
	}
}

// TestPartialNamesRun: so does the caller of a call that was stopped and had
// something.
func TestPartialNamesRun(t *testing.T) {
	t.Parallel()
	r := legacy(t, linkOptions{server: []string{"-reply", "result"}, cfg: naming})
	r.tick("1", "w", `"n":3000`)
	run := r.stop("1", "enough")
	m := r.expect("1")
	if m.Error == nil && !strings.Contains(m.Raw, `"io.github.belayhq/run":"`+run.ID().String()+`"`) {
		t.Errorf("got %s", m.Raw)
	}
	if m.Error != nil {
		t.Errorf("no partial result came: %s", m.Raw)
	}
	if r.receipt(run).Outcome != belay.Cancelled {
		t.Error("it was not cancelled")
	}
}
