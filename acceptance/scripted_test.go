//go:build unix

package acceptance

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/script/examples"
)

// scripted is a server of the projects that are written as people write theirs.
func scripted(t testing.TB) *server {
	t.Helper()
	dir, err := filepath.Abs("../script/testdata/projects")
	if err != nil {
		t.Fatal(err)
	}
	return house(t, "scripted", func(c *settings) {
		c.servers["scripts"] = map[string]any{
			"scripts": map[string]any{"dirs": []string{dir}, "allow_hosts": []string{"127.0.0.1"}},
			"grace":   "500ms", "kill_after": "2s", "spares": 1,
		}
	})
}

// exampled is a server of the examples that come with Belay, and the folder that
// their editor has.
func exampled(t testing.TB) (*server, string) {
	t.Helper()
	dir := filepath.Join(filepath.Dir(program), "examples-unpacked")
	s := house(t, "examples", func(c *settings) {
		p, err := examples.Unpack(dir)
		if err != nil {
			t.Fatal(err)
		}
		c.servers["examples"] = map[string]any{
			"scripts": map[string]any{"dirs": []string{p.Tools}, "allow_hosts": []string{"127.0.0.1"}, "editor_root": p.Sample, "editor_write": true},
			"grace":   "500ms", "kill_after": "2s", "spares": 1,
		}
	})
	return s, filepath.Join(dir, "sample")
}

// workshop is where scripts do their work: it is the witness of what they ask for,
// and of who goes away.
type workshop struct {
	at    string
	begun chan string
	gone  chan string
}

func newWorkshop(t testing.TB) *workshop {
	t.Helper()
	w := &workshop{begun: make(chan string, 1000), gone: make(chan string, 1000)}
	s := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path+"?"+r.URL.Query().Get("name"), "/item?")
		w.begun <- name
		if name == "/slow?" || name == "slow" {
			<-r.Context().Done()
			w.gone <- name
			return
		}
		_, _ = fmt.Fprint(out, "done "+name)
	}))
	t.Cleanup(s.Close)
	w.at = s.URL
	return w
}

// toldOf waits for what the workshop hears of.
func toldOf(t testing.TB, from chan string, want string) {
	t.Helper()
	limit := time.After(30 * time.Second)
	for {
		select {
		case got := <-from:
			if got == want {
				return
			}
		case <-limit:
			t.Fatalf("the workshop never heard %q", want)
		}
	}
}

func (w *workshop) args(items ...string) string {
	text, _ := json.Marshal(map[string]any{"at": w.at, "items": items})
	return string(text)
}

// texts are the items of a result.
func (r reply) texts(t testing.TB) (list []string, isError bool) {
	t.Helper()
	var result struct {
		Content []struct{ Type, Text string }
		IsError bool
	}
	if err := json.Unmarshal(r.Result, &result); err != nil {
		t.Fatalf("no result: %s", r.raw)
	}
	for _, c := range result.Content {
		if c.Type != "text" {
			t.Fatalf("an item of type %s: %s", c.Type, r.raw)
		}
		list = append(list, c.Text)
	}
	return list, result.IsError
}

// finally waits for the final receipt of a run.
func (s *server) finally(t testing.TB, run belay.RunID) (r belay.Receipt) {
	t.Helper()
	patiently(t, "the final receipt", func() bool {
		r = s.receipt(t, "op", run)
		return r.Final
	})
	return r
}

// TestAT16_SeedExamplesOperatorStop runs the guide's examples and stops them as an
// operator does: who set onCancel hands back its text, unchanged and as an item of
// its own; who did not gets the bare cancelled form; and what is returned afterwards
// appears nowhere (AT-3 to AT-7, AT-11, AT-13 to AT-16, AT-24, AT-38).
func TestAT16_SeedExamplesOperatorStop(t *testing.T) {
	t.Parallel()
	for name, partial := range map[string]string{
		"slow_operation":  "",
		"item_batch":      "The batch was cancelled by the user.\nPartial results:\ndone a\ndone b",
		"item_report":     "Cancelled by the user. Partial report, 2 lines: done a, done b",
		"outside_mistake": "",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, w := scripted(t), newWorkshop(t)
			session := s.begin(t, "ann", "scripts")
			id := "seed-" + name
			got := session.call(t, `"`+id+`"`, name, w.args("a", "b", "slow", "c"))
			slow := "slow"
			if partial == "" {
				slow = "/slow?"
			}
			toldOf(t, w.begun, slow)
			c := s.cancel(t, "op", id, `"reason":"enough"`, `"wait":20`)
			r := wait(t, got)
			if partial == "" {
				if r.code() != -32800 || r.Error.Data.Partial == nil || *r.Error.Data.Partial || r.Error.Data.Reason != "enough" {
					t.Errorf("the caller got %s", r.raw)
				}
			} else if list, isError := r.texts(t); !isError || len(list) != 2 || !strings.HasPrefix(list[0], "Cancelled by operator") || list[1] != partial {
				t.Errorf("the caller got %q", list)
			}
			toldOf(t, w.gone, slow)
			receipt := s.finally(t, *c.Run)
			if receipt.Outcome != belay.Cancelled || receipt.Verdict != belay.Confirmed || receipt.Partial != partial {
				t.Errorf("receipt %+v", receipt)
			}
			again := s.cancel(t, "op", id, `"reason":"again"`)
			if after := s.receipt(t, "op", *c.Run); again.Affected || after.Cancellation.Reason != "enough" || after.Partial != partial || after.Verdict != receipt.Verdict {
				t.Errorf("a second Stop: %+v, receipt %+v", again, after)
			}
			// The next call knows nothing of it.
			if !strings.HasPrefix(slow, "/") {
				list, isError := wait(t, session.call(t, `"next-`+name+`"`, name, w.args("x"))).texts(t)
				if isError || len(list) != 1 || !strings.HasSuffix(list[0], "done x") || strings.Contains(list[0], "done a") {
					t.Errorf("the next call: %q", list)
				}
			}
			for len(w.begun) > 0 {
				if name := <-w.begun; name == "c" {
					t.Error("it went on with its work")
				}
			}
		})
	}
}

// TestAT25_SeedExamplesCallerStop stops them by the caller's own cancel: nothing is
// answered, and the text is on the receipt (acceptance 2).
func TestAT25_SeedExamplesCallerStop(t *testing.T) {
	t.Parallel()
	s, w := scripted(t), newWorkshop(t)
	session := s.begin(t, "ann", "scripts")
	got := session.call(t, `"by-caller"`, "item_report", w.args("a", "slow"))
	toldOf(t, w.begun, "slow")
	run := s.status(t, "op", "by-caller").Run
	session.post(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"by-caller"}}`)
	if r := wait(t, got); r.Result != nil || r.Error != nil {
		t.Errorf("the caller got %s", r.raw)
	}
	toldOf(t, w.gone, "slow")
	receipt := s.finally(t, run)
	if receipt.Outcome != belay.Cancelled || receipt.Cancellation.Cause != belay.CauseUser || receipt.Verdict != belay.Confirmed ||
		receipt.Partial != "Cancelled by the user. Partial report, 1 lines: done a" {
		t.Errorf("receipt %+v", receipt)
	}
}

// TestAT21_DeclineAndCancel keeps the two apart: a decline is the script's own answer,
// and never works; a cancel comes after the approval and hands back what there is
// (AT-19 to AT-21, AT-61, AT-62).
func TestAT21_DeclineAndCancel(t *testing.T) {
	t.Parallel()
	s := scripted(t)
	for decision, want := range map[string]string{"decline": "The user left it.", "dismiss": "Nobody answered."} {
		w := newWorkshop(t)
		got := s.begin(t, "ann", "scripts").call(t, `"said-`+decision+`"`, "approved_batch", w.args("a"))
		run := s.status(t, "op", s.decide(t, "said-"+decision, decision)).Run
		if list, isError := wait(t, got).texts(t); !isError || !slices.Equal(list, []string{want}) {
			t.Errorf("%s: the caller got %q", decision, list)
		}
		eventually(t, "the outcome", func() bool { return s.status(t, "op", run.String()).Outcome == belay.Declined })
		if len(w.begun) > 0 {
			t.Errorf("%s: it worked all the same", decision)
		}
	}
	w := newWorkshop(t)
	got := s.begin(t, "ann", "scripts").call(t, `"said-yes"`, "approved_batch", w.args("a", "slow", "b"))
	s.decide(t, "said-yes", "approve")
	toldOf(t, w.begun, "slow")
	c := s.cancel(t, "op", "said-yes", `"wait":20`)
	if list, isError := wait(t, got).texts(t); !isError || len(list) != 2 || list[1] != "Cancelled by the user. Partial results:\ndone a" {
		t.Errorf("the caller got %q", list)
	}
	if receipt := s.finally(t, *c.Run); receipt.Outcome != belay.Cancelled || receipt.Verdict != belay.Confirmed {
		t.Errorf("receipt %+v", receipt)
	}
}

// patiently polls as eventually does, on a machine that starts many workers at once.
func patiently(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("never: %s", what)
}

// decide waits for the question of a call and answers it; it returns the call's id.
func (s *server) decide(t testing.TB, id, decision string) string {
	t.Helper()
	var run belay.RunID
	patiently(t, "the call "+id, func() bool {
		a := s.tryStatus(t, "op", id)
		if a.status == http.StatusOK {
			run = into[status](t, a, 200).Run
		}
		return a.status == http.StatusOK
	})
	var open belay.Approval
	patiently(t, "the question of "+id, func() bool {
		list := into[struct{ Approvals []belay.Approval }](t, s.do(t, "GET", "/v1/approvals", "op", ""), 200).Approvals
		i := slices.IndexFunc(list, func(a belay.Approval) bool { return a.Run.ID == run && a.Decision == nil })
		if i >= 0 {
			open = list[i]
		}
		return i >= 0
	})
	if a := s.do(t, "POST", "/v1/approvals/"+open.ID.String(), "op", `{"decision":"`+decision+`"}`); a.status != http.StatusOK {
		t.Fatalf("%s: %d %s", decision, a.status, a.body)
	}
	return id
}

// TestPublicScripts run unmodified where they need no hardware, through the official
// client.
func TestPublicScripts(t *testing.T) {
	t.Parallel()
	s := scripted(t)
	catalogue := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(out, `<li data-pages="9"><a href="/b/1">Knots &amp; ropes</a></li>`)
	}))
	defer catalogue.Close()
	client := s.official(t, "bob", "scripts")
	list, err := client.ListTools(t.Context(), nil)
	if err != nil || len(list.Tools) != 7 {
		t.Fatalf("tools %+v, %v", list, err)
	}
	r, err := client.CallTool(t.Context(), &sdk.CallToolParams{Name: "event_log"})
	if err != nil || r.IsError || r.Content[0].(*sdk.TextContent).Text != "There are no events yet." {
		t.Errorf("event_log: %+v, %v", r, err)
	}
	type outcome struct {
		r   *sdk.CallToolResult
		err error
	}
	got := make(chan outcome, 1)
	go func() {
		r, err := client.CallTool(t.Context(), &sdk.CallToolParams{Name: "catalog_search", Arguments: map[string]any{"query": "knots", "base": catalogue.URL}})
		got <- outcome{r, err}
	}()
	var open []belay.Approval
	patiently(t, "the question", func() bool {
		open = into[struct{ Approvals []belay.Approval }](t, s.do(t, "GET", "/v1/approvals", "op", ""), 200).Approvals
		open = slices.DeleteFunc(open, func(a belay.Approval) bool { return a.Question.Title != "Search the catalogue" || a.Decision != nil })
		return len(open) > 0
	})
	if q := open[0].Question; q.Primary != "Allow" || q.Secondary != "Cancel" || !strings.HasPrefix(q.Text, "The assistant will search once.") {
		t.Errorf("asked %+v", q)
	}
	if a := s.do(t, "POST", "/v1/approvals/"+open[0].ID.String(), "op", `{"decision":"approve"}`); a.status != http.StatusOK {
		t.Fatalf("approve: %d %s", a.status, a.body)
	}
	o := <-got
	if o.err != nil || o.r.IsError || !strings.Contains(o.r.Content[0].(*sdk.TextContent).Text, `"title":"Knots & ropes","pages":9`) {
		t.Errorf("catalog_search: %+v, %v", o.r, o.err)
	}
}

// TestExampleSearch is stopped by an operator while two sources do not answer: the
// caller learns what the others had, and the two see it go (acceptance 2, 11).
func TestExampleSearch(t *testing.T) {
	t.Parallel()
	s, _ := exampled(t)
	slow, gone := make(chan string, 100), make(chan string, 100)
	web := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/w/api.php":
			_, _ = fmt.Fprint(out, `{"query":{"search":[{"title":"Stop sign","snippet":"A sign"}]}}`)
		case "/api/v1/search":
			_, _ = fmt.Fprint(out, `{"hits":[]}`)
		default:
			slow <- r.URL.Path
			<-r.Context().Done()
			gone <- r.URL.Path
		}
	}))
	defer web.Close()
	mirrors := map[string]string{}
	for _, name := range []string{"wikipedia", "hackernews", "github", "crossref"} {
		mirrors[name] = web.URL
	}
	args, _ := json.Marshal(map[string]any{"query": "stop", "sources": []string{"wikipedia", "hackernews", "github", "crossref"}, "mirrors": mirrors})
	answered := make(chan struct{})
	client := sdk.NewClient(&sdk.Implementation{Name: "acceptance", Version: "1"}, &sdk.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) {
			if r.Params.Message == "2 of 4 sources have answered" {
				close(answered)
			}
		},
	})
	session, err := client.Connect(t.Context(), &sdk.StreamableClientTransport{
		Endpoint: s.url + "/mcp/examples", HTTPClient: &http.Client{Transport: as("cat")}, MaxRetries: -1,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	params := &sdk.CallToolParams{Name: "search_sources", Arguments: json.RawMessage(args)}
	params.SetProgressToken("example-search")
	type outcome struct {
		r   *sdk.CallToolResult
		err error
	}
	got := make(chan outcome, 1)
	go func() {
		r, err := session.CallTool(t.Context(), params)
		got <- outcome{r, err}
	}()
	select {
	case <-answered:
	case o := <-got:
		t.Fatalf("it ended: %+v, %v", o.r, o.err)
	case <-time.After(time.Minute):
		t.Fatal("two sources never answered")
	}
	<-slow // both have been asked, so that there is somebody to see the connection end
	<-slow
	run := s.newest(t, "cat").ID
	if a := s.do(t, "POST", "/v1/runs/"+run.String()+"/cancel", "op", `{"reason":"enough"}`); a.status >= 300 {
		t.Fatalf("cancel: %d %s", a.status, a.body)
	}
	o := <-got
	if o.err != nil || !o.r.IsError || len(o.r.Content) != 2 {
		t.Fatalf("the caller got %+v, %v", o.r, o.err)
	}
	text := o.r.Content[1].(*sdk.TextContent).Text
	if !strings.HasPrefix(text, "The search was cancelled by the user.\nPartial results for \"stop\" (2 of 4 sources):") ||
		!strings.Contains(text, "Stop sign") || !strings.Contains(text, "Not answered yet: github, crossref") {
		t.Errorf("the caller got %q", text)
	}
	for range 2 {
		select {
		case <-gone:
		case <-time.After(30 * time.Second):
			t.Fatal("a source still has its connection")
		}
	}
	if receipt := s.finally(t, run); receipt.Verdict != belay.Confirmed || receipt.Partial != text {
		t.Errorf("receipt %+v", receipt)
	}
}

// TestExampleScan finds what the sample has, through the official client.
func TestExampleScan(t *testing.T) {
	t.Parallel()
	s, _ := exampled(t)
	client := s.official(t, "ann", "examples")
	r, err := client.CallTool(t.Context(), &sdk.CallToolParams{Name: "scan_project", Arguments: map[string]any{"below": "src", "look_for": []string{"marks", "syntax"}}})
	if err != nil || r.IsError {
		t.Fatalf("%+v, %v", r, err)
	}
	text := r.Content[0].(*sdk.TextContent).Text
	for _, want := range []string{"- syntax: 1", "- marks: 2", "syntax: src/broken.ts:3: ", "src/colour.ts:5: "} {
		if !strings.Contains(text, want) {
			t.Errorf("got %q, want %q in it", text, want)
		}
	}
}

// TestExampleReplace asks before it writes, and a Stop leaves whole files, those that
// are named and no others: the folder is the witness (AT-14, AT-58, AT-65).
func TestExampleReplace(t *testing.T) {
	t.Parallel()
	s, sample := exampled(t)
	batch := func(name string, files int) (string, func() int) {
		dir := filepath.Join(sample, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		const old, changed = "one two\n", "one three\n"
		for i := range files {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("f%04d", i)), []byte(strings.Repeat(old, 20)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return `{"find":"two","replace":"three","below":"` + name + `"}`, func() (n int) {
			for i := range files {
				text, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("f%04d", i)))
				switch {
				case err != nil:
					t.Fatal(err)
				case string(text) == strings.Repeat(changed, 20):
					n++
				case string(text) != strings.Repeat(old, 20):
					t.Errorf("f%04d is half changed", i)
				}
			}
			return n
		}
	}
	session := s.begin(t, "ann", "examples")

	args, changed := batch("agreed", 20)
	got := session.call(t, `"replace-yes"`, "replace_in_project", args)
	s.decide(t, "replace-yes", "approve")
	if list, isError := wait(t, got).texts(t); isError || !strings.HasPrefix(list[0], "Changed 20 files:") || changed() != 20 {
		t.Errorf("the caller got %q, %d are changed", list, changed())
	}

	args, changed = batch("declined", 3)
	got = session.call(t, `"replace-no"`, "replace_in_project", args)
	s.decide(t, "replace-no", "decline")
	if list, isError := wait(t, got).texts(t); !isError || list[0] != "The person left everything as it is." || changed() != 0 {
		t.Errorf("the caller got %q, %d are changed", list, changed())
	}

	args, changed = batch("stopped", 300)
	got = session.call(t, `"replace-stop"`, "replace_in_project", args)
	s.decide(t, "replace-stop", "approve")
	first := filepath.Join(sample, "stopped", "f0004")
	patiently(t, "the fifth file", func() bool {
		text, err := os.ReadFile(first)
		return err == nil && strings.Contains(string(text), "three")
	})
	c := s.cancel(t, "op", "replace-stop", `"wait":20`)
	list, isError := wait(t, got).texts(t)
	if !isError || len(list) != 2 {
		t.Fatalf("the caller got %q", list)
	}
	if receipt := s.finally(t, *c.Run); receipt.Verdict != belay.Confirmed || receipt.Outcome != belay.Cancelled {
		t.Errorf("receipt %+v", receipt)
	}
	named, done := strings.Count(list[1], " (20)"), changed()
	if named < 5 || done >= 300 || done < named || done > named+1 {
		t.Errorf("%d files are named, %d are changed: %.200q", named, done, list[1])
	}
}
