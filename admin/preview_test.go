package admin

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/belayhq/belay"
)

// looks is a question with something to see, as ask gives it.
func looks(look func(context.Context) (string, error)) belay.Question {
	return belay.Question{Text: "may I?", Primary: "Yes", Secondary: "No", Preview: "Show", Look: look}
}

// TestAT60_PreviewOverREST: whoever may decide may look, at questions of runs that they
// may see, as long as they are open; nobody else learns that they exist, and nothing is
// run for them.
func TestAT60_PreviewOverREST(t *testing.T) {
	may := people{"own": {"own", []string{PermApprove, PermReadOwn}}, "blind": {"blind", []string{PermApprove}}, "boss": everybody["boss"], "ann": everybody["ann"]}
	r := newLeaseRig(t, Options{Authorizer: may})
	n := 0
	mine := r.askThis(r.call("own", `"1"`), looks(func(context.Context) (string, error) { n++; return "- one\n+ two", nil }))
	foreign := r.askThis(r.call("ann", `"2"`), looks(func(context.Context) (string, error) { n++; return "", nil }))
	broken := r.askThis(r.call("ann", `"3"`), looks(func(context.Context) (string, error) { return "", errors.New("it threw") }))
	bare := r.ask(r.call("ann", `"4"`))
	over := r.askThis(r.call("ann", `"5"`), looks(func(context.Context) (string, error) { n++; return "", nil }))
	into[belay.Approval](r, r.do("POST", "/v1/approvals/"+over, "boss", `{"decision":"decline"}`), 200)
	for _, tt := range []struct {
		id, token string
		status    int
		want      string
	}{
		{mine, "own", 200, `{"text":"- one\n+ two"}`},
		{mine, "boss", 200, `{"text":"- one\n+ two"}`},
		{foreign, "boss", 200, `{"text":""}`},
		{foreign, "ann", 403, "tools.approve"}, // though the run is hers
		{foreign, "blind", 403, ""},
		{foreign, "own", 404, "no such run"},
		{over, "own", 404, "no such run"},
		{"ask_x", "boss", 404, "no such run"},
		{mine[:len(mine)-1] + "0", "boss", 404, "no such run"},
		{bare, "boss", 501, "offers no preview"},
		{over, "boss", 409, "urn:belay:error:decided"},
		{broken, "boss", 502, "it threw"},
	} {
		if got := r.do("POST", "/v1/approvals/"+tt.id+"/preview", tt.token, ""); got.status != tt.status || !strings.Contains(got.body, tt.want) {
			t.Errorf("%s as %s: %d %s, want %d %s", tt.id, tt.token, got.status, got.body, tt.status, tt.want)
		}
	}
	if n != 3 {
		t.Errorf("previews ran %d times", n)
	}
	if got := r.do("GET", "/v1/approvals/"+mine+"/preview", "boss", ""); got.status != 405 {
		t.Errorf("by GET: %d", got.status)
	}
	if got := r.do("GET", "/v1/approvals", "own", ""); !strings.Contains(got.body, `"preview":"Show"`) {
		t.Errorf("the list does not offer it: %s", got.body)
	}
}

// blindly takes the ability to show previews away.
type blindly struct{ questions }

type questions = belay.Approvals

// TestAT60_NoPreviewsHere: an Approvals that cannot show them says so.
func TestAT60_NoPreviewsHere(t *testing.T) {
	tree := belay.NewTree(belay.Options{})
	t.Cleanup(func() { _ = tree.Close(context.Background()) })
	r := newRig(t, Options{Control: tree, Approvals: blindly{tree}})
	if got := r.do("POST", "/v1/approvals/"+belay.ApprovalID(belay.NewRunID()).String()+"/preview", "boss", ""); got.status != 501 {
		t.Errorf("%d %s", got.status, got.body)
	}
}
