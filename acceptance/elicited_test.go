//go:build unix

package acceptance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/belayhq/belay"
)

// personal is a server of scripts whose callers have people that can be asked. Each
// test has a caller of its own, and so runs that are known by their owner.
func personal(t *testing.T) *server {
	t.Helper()
	dir, err := filepath.Abs("../script/testdata/projects")
	if err != nil {
		t.Fatal(err)
	}
	return house(t, "personal", func(c *settings) {
		for name, more := range map[string]map[string]any{"scripts": {}, "hasty": {"approval_timeout": "1s"}, "trusting": {"auto_approve": true}} {
			more["dirs"], more["allow_hosts"] = []string{dir}, []string{"127.0.0.1"}
			c.servers[name] = map[string]any{"scripts": more, "grace": "500ms", "kill_after": "2s", "spares": 1}
		}
	})
}

// questions are those that are open, as the API shows them.
func (s *server) questions(t *testing.T) []belay.Approval {
	t.Helper()
	return into[struct{ Approvals []belay.Approval }](t, s.do(t, "GET", "/v1/approvals", "op", ""), 200).Approvals
}

// last is the newest run of an owner's calls that have ended.
func (s *server) last(t *testing.T, owner string) belay.Info {
	t.Helper()
	list := s.runs(t, "op", "?kind=call&state=ended&owner="+owner)
	if len(list) == 0 {
		t.Fatal("no call has ended")
	}
	return slices.MaxFunc(list, func(a, b belay.Info) int { return strings.Compare(a.ID.String(), b.ID.String()) })
}

// elicited connects the official SDK's client, whose person answers by this function.
func (s *server) elicited(t *testing.T, who, path, version string, answer func(ctx context.Context, q *sdk.ElicitParams) *sdk.ElicitResult) *sdk.ClientSession {
	t.Helper()
	client := sdk.NewClient(&sdk.Implementation{Name: "acceptance", Version: "1"}, &sdk.ClientOptions{
		ElicitationHandler: func(ctx context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
			if a := answer(ctx, r.Params); a != nil {
				return a, nil
			}
			if err := context.Cause(ctx); err != nil {
				return nil, err
			}
			return nil, errors.New("there is nobody to ask")
		},
	})
	transport := &sdk.StreamableClientTransport{Endpoint: s.url + path, HTTPClient: &http.Client{Transport: as(who)}, MaxRetries: -1}
	c, err := client.Connect(t.Context(), transport, &sdk.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// works calls the tool that asks before it works.
func works(ctx context.Context, c *sdk.ClientSession, tool, at string, items ...string) (text string, isError bool, err error) {
	r, err := c.CallTool(ctx, &sdk.CallToolParams{Name: tool, Arguments: map[string]any{"at": at, "items": items}})
	if err != nil {
		return "", false, err
	}
	var texts []string
	for _, one := range r.Content {
		if c, ok := one.(*sdk.TextContent); ok {
			texts = append(texts, c.Text)
		}
	}
	return strings.Join(texts, "|"), r.IsError, nil
}

// got waits for what must come, but not for ever.
func got[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(time.Minute):
		t.Fatal("it did not come within a minute")
		panic("unreachable")
	}
}

// eras are those in which a person can be asked, at the two doors of MCP.
func eras(t *testing.T, f func(t *testing.T, version, path, tool string)) {
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		for path, tool := range map[string]string{"/mcp/scripts": "approved_batch", "/mcp": "scripts__approved_batch"} {
			t.Run(version+path, func(t *testing.T) { f(t, version, path, tool) })
		}
	}
}

// TestAT66_TheCallersPersonIsAsked by elicitation, in both eras, at each of the doors
// (AT-61, AT-62, AT-66).
func TestAT66_TheCallersPersonIsAsked(t *testing.T) {
	t.Parallel()
	s := personal(t)
	eras(t, func(t *testing.T, version, path, tool string) {
		answers := make(chan *sdk.ElicitResult, 1)
		asked := make(chan *sdk.ElicitParams, 1)
		c := s.elicited(t, "ann", path, version, func(_ context.Context, q *sdk.ElicitParams) *sdk.ElicitResult {
			asked <- q
			return <-answers
		})
		w := newWorkshop(t)
		for _, x := range []struct {
			answer  sdk.ElicitResult
			want    string
			isError bool
			outcome belay.Outcome
		}{
			{sdk.ElicitResult{Action: "accept", Content: map[string]any{"answer": "Work"}}, "done a|", false, belay.Completed},
			{sdk.ElicitResult{Action: "accept", Content: map[string]any{"answer": "Leave it"}}, "The user left it.", true, belay.Declined},
			{sdk.ElicitResult{Action: "decline"}, "The user left it.", true, belay.Declined},
			{sdk.ElicitResult{Action: "cancel"}, "Nobody answered.", true, belay.Declined},
		} {
			answers <- &x.answer
			text, isError, err := works(t.Context(), c, tool, w.at, "a")
			if err != nil || strings.TrimSuffix(text, "|") != strings.TrimSuffix(x.want, "|") || isError != x.isError {
				t.Errorf("%s %v: %q, %v, %v", x.answer.Action, x.answer.Content, text, isError, err)
			}
			q := got(t, asked)
			if raw, _ := json.Marshal(q.RequestedSchema); !strings.Contains(q.Message, "Approved batch\n\nWork through 1 items?") || !strings.Contains(string(raw), `["Work","Leave it"]`) {
				t.Errorf("asked %q, %s", q.Message, raw)
			}
			if last := s.last(t, "ann"); last.Outcome != x.outcome {
				t.Errorf("%s: the run is %s, want %s", x.answer.Action, last.Outcome, x.outcome)
			}
		}
		if n := len(w.begun); n != 1 {
			t.Errorf("it worked %d times", n)
		}
	})
}

// TestAT61_NobodyAnswersInTime: the question is taken back at the caller, and the script
// is called with neither flag; where nobody has to be asked, nobody is (AT-43, AT-61,
// AT-63).
func TestAT61_NobodyAnswersInTime(t *testing.T) {
	t.Parallel()
	s := personal(t)
	w := newWorkshop(t)
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		asked := make(chan struct{}, 10)
		answer := func(ctx context.Context, _ *sdk.ElicitParams) *sdk.ElicitResult {
			asked <- struct{}{}
			limit, end := context.WithTimeout(ctx, 3*time.Second)
			defer end()
			<-limit.Done()
			if ctx.Err() == nil && version == "2025-11-25" {
				t.Error("the question was not taken back")
			}
			return &sdk.ElicitResult{Action: "accept", Content: map[string]any{"answer": "Work"}} // too late
		}
		text, isError, err := works(t.Context(), s.elicited(t, "dan", "/mcp/hasty", version, answer), "approved_batch", w.at, "a")
		if err != nil || !isError || text != "Nobody answered." || len(asked) != 1 {
			t.Errorf("%s: %q, %v, %v; asked %d times", version, text, isError, err, len(asked))
		}
		if last := s.last(t, "dan"); last.Outcome != belay.Declined {
			t.Errorf("%s: the run is %s", version, last.Outcome)
		}
		if n := len(w.begun); n != 0 {
			t.Errorf("%s: it worked %d times", version, n)
		}
		text, isError, err = works(t.Context(), s.elicited(t, "dan", "/mcp/trusting", version, answer), "approved_batch", w.at, "a")
		if err != nil || isError || text != "done a" || len(asked) != 1 {
			t.Errorf("%s: %q, %v, %v; asked %d times", version, text, isError, err, len(asked))
		}
		if last := s.last(t, "dan"); last.Outcome != belay.Completed {
			t.Errorf("%s: the run is %s", version, last.Outcome)
		}
		got(t, w.begun)
	}
}

// TestAT66_AnotherDoorIsQuicker: the question is taken back at the caller, in the era
// that can say so, and the call goes on; what its person says then comes too late.
func TestAT66_AnotherDoorIsQuicker(t *testing.T) {
	t.Parallel()
	s := personal(t)
	eras(t, func(t *testing.T, version, path, tool string) {
		asked, late := make(chan struct{}, 1), make(chan struct{})
		c := s.elicited(t, "bob", path, version, func(ctx context.Context, _ *sdk.ElicitParams) *sdk.ElicitResult {
			asked <- struct{}{}
			select {
			case <-ctx.Done():
				return nil
			case <-late:
				return &sdk.ElicitResult{Action: "decline"}
			}
		})
		w := newWorkshop(t)
		type end struct {
			text    string
			isError bool
			err     error
		}
		ended := make(chan end, 1)
		go func() {
			text, isError, err := works(t.Context(), c, tool, w.at, "a", "b")
			ended <- end{text, isError, err}
		}()
		got(t, asked)
		run := s.newest(t, "bob").ID
		for _, a := range s.questions(t) {
			if a.Run.ID == run {
				into[belay.Approval](t, s.do(t, "POST", "/v1/approvals/"+a.ID.String(), "op", `{"decision":"approve"}`), 200)
			}
		}
		toldOf(t, w.begun, "b")
		if version == "2026-07-28" { // nothing can be taken back there: the caller comes when it likes, and gets what there is
			close(late)
		}
		if e := got(t, ended); e.err != nil || e.isError || e.text != "done a\ndone b" {
			t.Errorf("the caller got %+v", e)
		}
	})
}

// TestAT66_ACallerWhosePersonIsNotThere says that it asks, and answers with an error: an
// operator decides; the caller gets the script's word.
func TestAT66_ACallerWhosePersonIsNotThere(t *testing.T) {
	s := personal(t) // and the only caller of this name meanwhile, for it is not parallel
	w := newWorkshop(t)
	asked := make(chan struct{}, 1)
	c := s.elicited(t, "dan", "/mcp/scripts", "2025-11-25", func(context.Context, *sdk.ElicitParams) *sdk.ElicitResult {
		asked <- struct{}{}
		return nil // an error: nobody ended the context
	})
	ended := make(chan string, 1)
	go func() {
		text, _, err := works(t.Context(), c, "approved_batch", w.at, "a")
		ended <- fmt.Sprint(text, err)
	}()
	got(t, asked)
	for _, a := range s.questions(t) {
		if a.Run.Owner != "dan" || a.Run.Server != "scripts" {
			continue
		}
		path := "/v1/approvals/" + a.ID.String()
		if seen := s.do(t, "POST", path+"/preview", "op", ""); seen.status != http.StatusNotImplemented { // it offers none
			t.Errorf("the preview: %d %s", seen.status, seen.body)
		}
		into[belay.Approval](t, s.do(t, "POST", path, "op", `{"decision":"approve"}`), 200)
	}
	if end := got(t, ended); end != "done a<nil>" {
		t.Errorf("the caller got %q", end)
	}
}

// TestAT65_AnOperatorStopsWhatWaitsForAPerson: nothing has worked, the question is gone
// from every door, and the caller is told (AT-65).
func TestAT65_AnOperatorStopsWhatWaitsForAPerson(t *testing.T) {
	t.Parallel()
	s := personal(t)
	eras(t, func(t *testing.T, version, path, tool string) {
		asked, late := make(chan struct{}, 1), make(chan struct{})
		c := s.elicited(t, "cat", path, version, func(ctx context.Context, _ *sdk.ElicitParams) *sdk.ElicitResult {
			asked <- struct{}{}
			select {
			case <-ctx.Done():
				return nil
			case <-late:
				return &sdk.ElicitResult{Action: "accept", Content: map[string]any{"answer": "Work"}}
			}
		})
		w := newWorkshop(t)
		ended := make(chan error, 1)
		go func() {
			text, _, err := works(t.Context(), c, tool, w.at, "a")
			if err == nil {
				err = fmt.Errorf("it got %q", text)
			}
			ended <- err
		}()
		got(t, asked)
		run := s.newest(t, "cat").ID
		s.cancel(t, "op", run.String(), `"wait":20`)
		if version == "2026-07-28" {
			close(late)
		}
		if err := got(t, ended); !strings.Contains(err.Error(), "Cancelled") {
			t.Errorf("the caller got %v", err)
		}
		receipt := s.finally(t, run)
		if receipt.Outcome != belay.Cancelled || receipt.Verdict != belay.Confirmed || receipt.Partial != "" {
			t.Errorf("receipt %+v", receipt)
		}
		for _, a := range s.questions(t) {
			if a.Run.ID == run {
				t.Errorf("the question is open: %+v", a)
			}
		}
		if len(w.begun) > 0 {
			t.Error("it has worked")
		}
	})
}
