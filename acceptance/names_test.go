//go:build unix

package acceptance

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
)

// A caller finds and stops its calls by its own names for them, and is told the
// run's id with the result (ORC-80).
func TestCallersOwnNames(t *testing.T) {
	t.Parallel()
	s := open(t)
	c := s.begin(t, "dan", "tools")
	const trace = "0af7651916cd43dd8448eb211c80319c"
	for n, name := range []struct {
		label  string
		header []string
		meta   string
	}{
		{"trace_id=" + trace, []string{"Traceparent", "00-" + trace + "-b7ad6b7169203331-01"}, `{}`},
		{"request_id=req names", []string{"X-Request-Id", "req names"}, `{}`},
		{"tool_use_id=toolu_names", nil, `{"claudecode/toolUseId":"toolu_names"}`},
	} {
		key := fmt.Sprintf("names-%d", n)
		body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"method":"tools/call","params":{"name":"tick","arguments":%s,"_meta":%s}}`, key, tickArgs(key), name.meta)
		got := make(chan answer, 1)
		go func() { a, _ := s.try("POST", c.path, c.who, body, append(c.headers(), name.header...)...); got <- a }()
		s.saw(t, key, "tick")
		query := strings.ReplaceAll(name.label, " ", "%20")
		if list := s.runs(t, "bob", "?label="+query); len(list) != 0 {
			t.Errorf("%s: a stranger sees %+v", name.label, list)
		}
		list := s.runs(t, "dan", "?label="+query)
		if len(list) != 1 {
			t.Errorf("%s: %d runs of %+v", name.label, len(list), s.runs(t, "dan", "?kind=call"))
			s.cancel(t, "dan", key)
			continue
		}
		k, v, _ := strings.Cut(name.label, "=")
		labels, _ := json.Marshal(map[string]string{k: v})
		if a := s.do(t, "POST", "/v1/cancel", "bob", `{"labels":`+string(labels)+`,"wait":1}`); strings.Contains(a.body, list[0].ID.String()) {
			t.Errorf("%s: a stranger's cancel: %d %s", name.label, a.status, a.body)
		}
		s.still(t, key)
		if a := s.do(t, "POST", "/v1/cancel", "dan", `{"labels":`+string(labels)+`,"wait":20}`); a.status != 200 || !strings.Contains(a.body, list[0].ID.String()) {
			t.Errorf("%s: %d %s", name.label, a.status, a.body)
		}
		s.quiet(t, key)
		<-got
	}
	r := wait(t, c.call(t, `"meta"`, "echo", `{}`))
	run := s.status(t, "dan", "meta").Run
	if !strings.Contains(string(r.Result), `"io.github.belayhq/run":"`+run.String()+`"`) {
		t.Errorf("the result does not name %s: %s", run, r.Result)
	}
}

// The end of the server is a Stop, too, and one act: calls and sessions end with
// cause shutdown, the callers are answered so, and the next process knows it all.
func TestShutdownIsRemembered(t *testing.T) {
	t.Parallel()
	s := start(t)
	got := s.begin(t, "ann", "tools").tick(t, `"shutdown"`, "shutdown", `"deaf":true`)
	run := s.status(t, "op", "shutdown").Run
	begun := time.Now()
	if err := s.end(); err != nil {
		t.Fatal(err)
	}
	took := time.Since(begun)
	if r := wait(t, got); r.code() != -32800 || r.Error.Data.Cause != string(belay.CauseShutdown) {
		t.Errorf("the caller got %s", r.raw)
	}
	s.quiet(t, "shutdown")
	s = s.again(t)
	st := s.status(t, "op", run.String())
	if st.Outcome != belay.Cancelled || st.Work != belay.Stopped || deref(st.Verdict) != belay.Confirmed || took > 10*time.Second {
		t.Errorf("after %v: %+v", took, st)
	}
	r := s.receipt(t, "op", run)
	for _, i := range s.runs(t, "op", "?state=all&owner=ann&kind=session") {
		if i.Cancellation == nil || i.Cancellation.Stop != r.Cancellation.Stop || i.Cancellation.Cause != belay.CauseShutdown {
			t.Errorf("the session above: %+v", i.Cancellation)
		}
	}
	if !r.Final || r.Cancellation.Cause != belay.CauseShutdown {
		t.Errorf("%+v", r)
	}
}

// ORC-52: a status names the owner only where that is switched on.
func TestExposeOwner(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *settings) { c.orch["expose_owner"] = true })
	got := s.begin(t, "ann", "tools").tick(t, `"owner"`, "owner")
	if a := s.tryStatus(t, "op", "owner"); a.status != 200 || !strings.Contains(a.body, `"ann"`) {
		t.Errorf("%d %s", a.status, a.body)
	}
	s.cancel(t, "op", "owner")
	wait(t, got)
}

// What operators look at: health without a token, figures with one.
func TestOperatorsView(t *testing.T) {
	t.Parallel()
	s := plain(t)
	got := s.begin(t, "ann", "tools").tick(t, `"view"`, "view")
	run := s.cancel(t, "op", "view", `"wait":20`).Run
	wait(t, got)
	for _, path := range []string{"/healthz", "/readyz"} {
		if a := s.do(t, "GET", path, "", ""); a.status != 200 {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	if a := s.do(t, "GET", "/metrics", "", ""); a.status != 401 {
		t.Errorf("metrics without a token: %d", a.status)
	}
	a := s.do(t, "GET", "/metrics", "op", "")
	if a.status != 200 || !strings.Contains(a.body, "belay_") || strings.Contains(a.body, `"ann"`) || strings.Contains(a.body, run.String()) {
		t.Errorf("metrics: %d %.500s", a.status, a.body)
	}
}
