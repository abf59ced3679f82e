//go:build unix

package acceptance

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/rappeer"
)

// asked is a runtime of a server of scripts, one of which asks before it works; the
// site is where it works, and the witness of it.
type asked struct {
	*rappeer.Runtime
	s     *server
	t     *testing.T
	ctx   context.Context
	at    string
	begun chan string
	gone  chan string
}

func newAsked(t *testing.T) *asked {
	dir, err := filepath.Abs("../script/testdata/projects")
	if err != nil {
		t.Fatal(err)
	}
	a := &asked{t: t, begun: make(chan string, 100), gone: make(chan string, 100)}
	a.s = house(t, "asked", local, func(c *settings) {
		c.servers["scripts"] = map[string]any{
			"scripts": map[string]any{"dirs": []string{dir}, "allow_hosts": []string{"127.0.0.1"}}, "grace": "500ms", "kill_after": "2s", "spares": 1,
		}
	})
	a.Runtime = rapRuntime(t, a.s, "ann", "scripts")
	site := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		name := r.URL.Query().Get("name")
		a.begun <- name
		if name == "slow" {
			<-r.Context().Done()
			a.gone <- name
			return
		}
		_, _ = fmt.Fprint(out, "done "+name)
	}))
	t.Cleanup(site.Close)
	a.at = site.URL
	ctx, end := context.WithTimeout(context.Background(), 90*time.Second)
	t.Cleanup(end)
	a.ctx = ctx
	return a
}

// invoke calls the tool that asks, with so many items, and returns the question.
func (a *asked) invoke(thread, id string, items ...string) (choice rappeer.Message, answer func(selected int) int) {
	a.t.Helper()
	if got, err := a.Invoke("approved_batch", thread, id, map[string]any{"at": a.at, "items": items}); err != nil || got.Status != 200 {
		a.t.Fatalf("%+v, %v", got, err)
	}
	m, err := a.Wait(a.ctx, thread, id, 1)
	if err != nil || m.Type != "user_choice" {
		a.t.Fatalf("%s, %v", m.Body, err)
	}
	return m, func(selected int) int {
		got, err := a.DoAs(nil, "POST", m.Raw["response_url"].(string), "application/json", fmt.Sprintf(`{"id":%q,"selected":%d}`, id, selected))
		if err != nil {
			a.t.Error(err)
		}
		return got.Status
	}
}

func (a *asked) result(thread, id string) string {
	a.t.Helper()
	m, err := a.Wait(a.ctx, thread, id, 2)
	if err != nil || m.Type != "tool_result" {
		a.t.Fatalf("%s, %v", m.Body, err)
	}
	return m.Text
}

// ends waits for the runs of a call: the runtime's and the script's.
func (a *asked) ends(thread, id string, want belay.Outcome) {
	a.t.Helper()
	var seen []belay.Info
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		own := a.s.runs(a.t, "op", "?state=all&label=thread_id="+thread+"&label=tool_call_id="+id)
		if len(own) != 1 {
			continue
		}
		seen = a.s.runs(a.t, "op", "?state=all&under="+own[0].ID.String())
		n := 0
		for _, i := range seen {
			if i.Outcome == want {
				n++
			}
		}
		if len(seen) == 2 && n == 2 {
			return
		}
	}
	a.t.Errorf("(%s, %s) did not end %s: %+v", thread, id, want, seen)
}

// idle holds that no work was begun.
func (a *asked) idle() {
	a.t.Helper()
	select {
	case name := <-a.begun:
		a.t.Errorf("it worked on %s", name)
	default:
	}
}

// belay is a command of a person's, as they type it.
func (a *asked) belay(who string, args ...string) string {
	a.t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "BELAY_SERVER="+a.s.url, "BELAY_TOKEN="+token(who))
	out, err := cmd.CombinedOutput()
	if err != nil {
		a.t.Fatalf("belay %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// TestAT66_RAPUserChoice: a script's dialog is a user_choice of the protocol, each
// answer reaches the script with its flags (AT-61, AT-62), and a decline is an outcome
// of its own on both runs. To dismiss it is never a yes.
func TestAT66_RAPUserChoice(t *testing.T) {
	t.Parallel()
	a := newAsked(t)
	for i, tt := range []struct {
		selected int
		text     string
		outcome  belay.Outcome
	}{
		{0, "done a\ndone b", belay.Completed},
		{1, "Error: The user left it.", belay.Declined},
		{2, "Error: Nobody answered.", belay.Declined},
	} {
		id := fmt.Sprint("call_", i)
		m, answer := a.invoke("choice", id, "a", "b")
		if choices, _ := json.Marshal(m.Raw["choices"]); string(choices) != `["Work","Leave it","No answer"]` || m.Raw["default"] != 2.0 || !strings.Contains(m.Raw["prompt"].(string), "Work through 2 items?") {
			t.Errorf("asked %s", m.Body)
		}
		a.idle()
		if status := answer(tt.selected); status != 200 {
			t.Errorf("status %d", status)
		}
		if got := a.result("choice", id); got != tt.text {
			t.Errorf("selected %d: %q, want %q", tt.selected, got, tt.text)
		}
		a.ends("choice", id, tt.outcome)
		if tt.outcome == belay.Completed {
			<-a.begun
			<-a.begun
		}
		a.idle()
	}
}

// TestAT66_OtherDoorsAnswerFirst: belay approvals and the API answer what a runtime
// was asked, once; the runtime's URL is gone, and so is the question.
func TestAT66_OtherDoorsAnswerFirst(t *testing.T) {
	t.Parallel()
	a := newAsked(t)
	for name, decide := range map[string]func(id string){
		"approvals-approve": func(id string) {
			if list := a.belay("op", "approvals"); !strings.Contains(list, id) || !strings.Contains(list, "Work / Leave it") {
				t.Errorf("belay approvals: %s", list)
			}
			a.belay("op", "approvals", "approve", id)
		},
		"approvals-decline": func(id string) { a.belay("op", "approvals", "decline", id, "--reason", "not today") },
		"rest-approve": func(id string) {
			into[belay.Approval](t, a.s.do(t, "POST", "/v1/approvals/"+id, "op", `{"decision":"approve"}`), 200)
		},
		"rest-dismiss": func(id string) {
			into[belay.Approval](t, a.s.do(t, "POST", "/v1/approvals/"+id, "op", `{"decision":"dismiss"}`), 200)
		},
	} {
		items := make([]string, 10+len(name)) // so that the question is this call's
		for i := range items {
			items[i] = "x"
		}
		_, answer := a.invoke("doors", name, items...)
		id := a.s.question(t, fmt.Sprintf("Work through %d items?", len(items)))
		a.idle()
		decide(id)
		got, want, outcome := a.result("doors", name), "done x", belay.Completed
		switch {
		case strings.HasSuffix(name, "decline"):
			want, outcome = "Error: The user left it.", belay.Declined
		case strings.HasSuffix(name, "dismiss"):
			want, outcome = "Error: Nobody answered.", belay.Declined
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q", name, got)
		}
		if status := answer(0); status != http.StatusNotFound {
			t.Errorf("%s: a second answer: status %d", name, status)
		}
		if again := a.s.do(t, "POST", "/v1/approvals/"+id, "op", `{"decision":"approve"}`); again.status != http.StatusConflict {
			t.Errorf("%s: again: %d %s", name, again.status, again.body)
		}
		a.ends("doors", name, outcome)
		for len(a.begun) > 0 {
			<-a.begun
		}
	}
}

// TestAT65_AStopWithdrawsTheChoice: by the runtime and by an operator; the script's
// work is never begun, the question is gone at every door, and it is no decline.
func TestAT65_AStopWithdrawsTheChoice(t *testing.T) {
	t.Parallel()
	a := newAsked(t)
	for n, door := range []string{"runtime", "rest", "cli"} {
		items := make([]string, 50+n)
		_, answer := a.invoke("stop", door, items...)
		id := a.s.question(t, fmt.Sprintf("Work through %d items?", len(items)))
		want := "Error: Cancelled by operator"
		own := a.s.runs(t, "op", "?state=all&label=thread_id=stop&label=tool_call_id="+door)
		if len(own) != 1 {
			t.Fatalf("%+v", own)
		}
		switch door {
		case "runtime":
			want = "Error: Cancelled by user."
			if got, err := a.Cancel("stop", door); err != nil || got.Status != 200 {
				t.Errorf("%+v %v", got, err)
			}
		case "rest":
			if got := a.s.do(t, "POST", "/v1/runs/"+own[0].ID.String()+"/cancel", "op", `{}`); got.status != http.StatusOK && got.status != http.StatusAccepted {
				t.Errorf("%d %s", got.status, got.body)
			}
		case "cli":
			a.belay("op", "cancel", own[0].ID.String())
		}
		if got := a.result("stop", door); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q", door, got)
		}
		if status := answer(0); status != http.StatusNotFound {
			t.Errorf("%s: an answer after the Stop: status %d", door, status)
		}
		if late := a.s.do(t, "POST", "/v1/approvals/"+id, "op", `{"decision":"approve"}`); late.status != http.StatusNotFound {
			t.Errorf("%s: an approval after the Stop: %d %s", door, late.status, late.body)
		}
		a.ends("stop", door, belay.Cancelled)
		a.idle()
	}
}

// TestAT16_RAPPartialResult: a call that a person has agreed to is stopped in its work
// by its runtime: the text of its onCancel is the partial result (AT-20, RAP-98), the
// reports and the fetch end, and the Stop is proven.
func TestAT16_RAPPartialResult(t *testing.T) {
	t.Parallel()
	a := newAsked(t)
	_, answer := a.invoke("partial", "c", "a", "slow", "b")
	answer(0)
	for _, want := range []string{"a", "slow"} {
		select {
		case got := <-a.begun:
			if got != want {
				t.Errorf("begun %s, want %s", got, want)
			}
		case <-a.ctx.Done():
			t.Fatal(context.Cause(a.ctx))
		}
	}
	if got, err := a.Cancel("partial", "c"); err != nil || got.Status != 200 {
		t.Errorf("%+v %v", got, err)
	}
	if got := a.result("partial", "c"); !strings.HasPrefix(got, "Cancelled by user. Partial results:\nCancelled by the user. Partial results:\ndone a") {
		t.Errorf("%q", got)
	}
	select {
	case <-a.gone:
	case <-a.ctx.Done():
		t.Error("the fetch is still open")
	}
	a.ends("partial", "c", belay.Cancelled)
	own := a.s.runs(t, "op", "?state=all&label=thread_id=partial&label=tool_call_id=c")
	eventually(t, "a confirmed receipt", func() bool {
		r := a.s.receipt(t, "op", own[0].ID)
		return r.Final && r.Verdict == belay.Confirmed
	})
	a.idle()
}
