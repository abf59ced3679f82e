package cli

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/admin"
	"github.com/belayhq/belay/local"
)

// anyone is an Authorizer to whom whoever has the token may do everything.
type anyone string

func (a anyone) Principal(r *http.Request) (admin.Principal, error) {
	if r.Header.Get("Authorization") != "Bearer "+string(a) {
		return nil, admin.ErrBadCredentials
	}
	return a, nil
}

func (a anyone) Name() string    { return "op" }
func (a anyone) May(string) bool { return true }

// belayIn runs the command line in an environment.
func belayIn(env *Env, args ...string) (code int, out, said string) {
	var stdout, stderr strings.Builder
	code = Main(args, env.Getenv, env.Stdin, &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

// TestApprovalsCommand: a run that asks is listed and let go on, or not; a
// question is answered once.
func TestApprovalsCommand(t *testing.T) {
	tree := belay.NewTree(belay.Options{})
	api, err := admin.New(admin.Options{Control: tree, Authorizer: anyone("secret"), Approvals: tree})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(api)
	defer func() { api.Close(); server.Close(); _ = tree.Close(t.Context()) }()
	run, err := tree.Register(belay.Spec{Kind: belay.KindCall, Name: "deploy", Server: "shop", Owner: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	defer run.Finish(belay.Completed)
	env := testEnv(t, map[string]string{envServer: server.URL, envToken: "secret"})
	var seen string
	ask := func() (string, <-chan belay.Decision) {
		answer := make(chan belay.Decision, 1)
		go func() {
			d, _ := run.Ask(t.Context(), belay.Question{
				Title: "Deploy", Text: "To production?\nIt is Friday.\x1b[2J", Primary: "Go", Secondary: "No",
				Preview: "See it", Look: func(context.Context) (string, error) { return seen, nil },
			})
			answer <- d
		}()
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			var list []belay.Approval
			_, out, _ := belayIn(env, "approvals", "--json")
			if err := json.Unmarshal([]byte(out), &list); err == nil && len(list) == 1 {
				return list[0].ID.String(), answer
			}
		}
		t.Fatal("the question was never listed")
		return "", nil
	}
	id, answer := ask()
	code, out, _ := belayIn(env, "approvals")
	for _, want := range []string{id, "Deploy", "To production?", "It is Friday.", "Go / No", "deploy (call of shop)", "ann", "See it"} {
		if code != ExitDone || !strings.Contains(out, want) {
			t.Errorf("%d %q, want %q", code, out, want)
		}
	}
	if strings.Contains(out, "\x1b") {
		t.Errorf("%q moves the cursor", out)
	}
	for _, seen = range []string{"- one\n+\ttwo\x1b[2J", ""} {
		want := strings.ReplaceAll(seen, "\x1b", "")
		if code, out, said := belayIn(env, "approvals", "preview", id[:len(id)-6]); code != ExitDone || strings.TrimSpace(out) != want || (want == "") != strings.Contains(said, "nothing to see") {
			t.Errorf("%d %q %q, want %q", code, out, said, want)
		}
	}
	if code, out, said := belayIn(env, "approvals", "approve", id[:len(id)-6], "--reason", "fine"); code != ExitDone || !strings.Contains(out, "approved by op: fine") {
		t.Errorf("%d %q %q", code, out, said)
	}
	if d := <-answer; d.Err() != nil || d.Reason != "fine" {
		t.Errorf("%+v", d)
	}
	if code, _, said := belayIn(env, "approvals", "decline", id); code != ExitNothing || said == "" {
		t.Errorf("twice: %d %q", code, said)
	}
	if code, out, said := belayIn(env, "approvals", "preview", id); code != ExitNothing || out != "" || !strings.Contains(said, "already decided") {
		t.Errorf("a preview of what was decided: %d %q %q", code, out, said)
	}
	id, answer = ask()
	if code, out, said := belayIn(env, "approvals", "decline", id, "--json"); code != ExitDone || !strings.Contains(out, `"declined"`) {
		t.Errorf("%d %q %q", code, out, said)
	}
	if d := <-answer; !errors.Is(d.Err(), belay.ErrDeclined) {
		t.Errorf("%+v", d)
	}
	if code, _, said := belayIn(env, "approvals", "--token", "wrong"); code != ExitFailed || !strings.Contains(said, "token") || strings.Contains(said, "wrong") {
		t.Errorf("%d %q", code, said)
	}
}

// TestApprovalsOfEveryServe: without a server's name every belay serve of the user is
// asked, wherever it listens.
func TestApprovalsOfEveryServe(t *testing.T) {
	dir, err := os.MkdirTemp("", "belay")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	tree := belay.NewTree(belay.Options{})
	api, err := admin.New(admin.Options{Control: tree, Authorizer: anyone("secret"), Approvals: tree})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(api)
	defer func() { api.Close(); server.Close(); _ = tree.Close(t.Context()) }()
	env := testEnv(t, map[string]string{local.EnvDir: dir})
	socket, err := local.Listen(t.Context(), local.Options{Dir: dir, Control: tree, Fronts: "serve " + strings.TrimPrefix(server.URL, "http://")})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	run, err := tree.Register(belay.Spec{Kind: belay.KindCall, Name: "deploy"})
	if err != nil {
		t.Fatal(err)
	}
	defer run.Finish(belay.Completed)
	asked, answer := make(chan belay.ApprovalID, 1), make(chan belay.Decision, 1)
	go func() {
		d, _ := run.Ask(t.Context(), belay.Question{Text: "To production?", Primary: "Go", Show: func(a belay.Approval) { asked <- a.ID }})
		answer <- d
	}()
	id := (<-asked).String()
	if code, out, said := belayIn(env, "approvals", "--token", "secret"); code != ExitDone || !strings.Contains(out, id) {
		t.Errorf("%d %s %s", code, out, said)
	}
	if code, out, said := belayIn(env, "approvals", "approve", id, "--token", "secret"); code != ExitDone || !strings.Contains(out, "approved by op") {
		t.Fatalf("%d %s %s", code, out, said)
	}
	if d := <-answer; d.Choice != belay.ChoiceApproved || d.Via != "rest" {
		t.Errorf("%+v", d)
	}
	if code, _, said := belayIn(env, "approvals", "decline", id, "--token", "secret"); code == ExitDone {
		t.Errorf("a second answer: %d %s", code, said)
	}
}
