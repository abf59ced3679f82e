package gateway

import (
	"strconv"
	"strings"
	"testing"

	"github.com/belayhq/belay"
)

// TestNamelessCall: a tools/call without the name of a tool is refused, is no run
// and never reaches the server (ORC-63).
func TestNamelessCall(t *testing.T) {
	t.Parallel()
	r := legacy(t, linkOptions{})
	for i, params := range []string{`{}`, `{"name":7}`, `{"name":""}`, `{"name":null}`, `{"name":["x"]}`} {
		id := strconv.Itoa(10 + i)
		r.send(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":%s}`, id, params)
		if m := r.expect(id); m.Error == nil || m.Error.Code != -32602 || !strings.Contains(m.Error.Message, "name of a tool") {
			t.Errorf("%s was answered %s", params, m.Raw)
		}
	}
	runs, err := r.tree.List(t.Context(), belay.Filter{Kinds: []belay.Kind{belay.KindCall}, Ended: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, run := range runs {
		if run.Name == "tools/call" {
			t.Errorf("a call of no tool is the run %s", run.ID)
		}
	}
}
