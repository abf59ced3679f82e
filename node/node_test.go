package node

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/auth"
	"github.com/belayhq/belay/ledger"
)

// TestLocalOnly: where nobody is configured, MCP callers on loopback need no
// token and the admin API wants this user's own (DESIGN 11, 10; acceptance 17).
func TestLocalOnly(t *testing.T) {
	r := start(t, t.TempDir(), nil)
	for path, body := range map[string]string{"/v1/runs": "", "/orchestrate/status/7": "", "/v1/cancellation/cancel": `{"requestId":"nobody"}`} {
		method := http.MethodGet
		if body != "" {
			method = http.MethodPost
		}
		if status, text := r.ask(method, path, "", body); status != http.StatusUnauthorized {
			t.Errorf("%s without a token: %d %s", path, status, text)
		}
		if status, text := r.ask(method, path, "no-such-token", body); status != http.StatusUnauthorized {
			t.Errorf("%s with a wrong token: %d %s", path, status, text)
		}
		if status, text := r.ask(method, path, r.token(), body); status == http.StatusUnauthorized || status == http.StatusForbidden {
			t.Errorf("%s with the token: %d %s", path, status, text)
		}
	}
	info, err := os.Stat(filepath.Join(r.dir, "token"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the token's file: %v, %v", info, err)
	}
	answer := make(chan string, 1)
	go func() { _, text := r.call("7", ""); answer <- text }()
	run := r.running(1)[0]
	if run.Owner != auth.LocalName {
		t.Errorf("the run's owner is %q", run.Owner)
	}
	status, text := r.ask(http.MethodPost, "/orchestrate/cancel", r.token(), `{"requestId":"7","reason":"enough"}`)
	if status != http.StatusOK || !strings.HasPrefix(text, `{"status":"cancelled","requestId":"7","reason":"enough","run":"`+run.ID.String()) {
		t.Errorf("cancel: %d %s", status, text)
	}
	if got := <-answer; !strings.Contains(got, "-32800") && !strings.Contains(got, "Cancelled") {
		t.Errorf("the caller read %s", got)
	}
}

// TestLatch: an engaged latch stops what runs, refuses what comes, survives a
// restart, and lets calls in again when it is lifted.
func TestLatch(t *testing.T) {
	dir := t.TempDir()
	r := start(t, dir, nil)
	answer := make(chan string, 1)
	go func() { _, text := r.call("1", ""); answer <- text }()
	r.running(1)
	if status, text := r.ask(http.MethodPost, "/v1/latch", r.token(), `{"reason":"runaway"}`); status != http.StatusOK && status != http.StatusAccepted {
		t.Fatalf("engage: %d %s", status, text)
	}
	if got := <-answer; !strings.Contains(got, "runaway") {
		t.Errorf("the call in flight was answered %s", got)
	}
	if _, text := r.call("2", ""); !strings.Contains(text, "latch") || !strings.Contains(text, "runaway") {
		t.Errorf("a call was let in, or refused without a reason: %s", text)
	}
	r.end()
	r = start(t, dir, nil)
	if _, text := r.call("3", ""); !strings.Contains(text, "latch") {
		t.Errorf("after a restart: %s", text)
	}
	if status, text := r.ask(http.MethodDelete, "/v1/latch", r.token(), ""); status != http.StatusOK {
		t.Fatalf("lift: %d %s", status, text)
	}
	go func() { _, text := r.call("4", ""); answer <- text }()
	r.running(1)
	if status, _ := r.ask(http.MethodPost, "/orchestrate/cancel", r.token(), `{"requestId":"4"}`); status != http.StatusOK {
		t.Error(status)
	}
	<-answer
}

// TestDamagedLatch: what may be engaged is not taken for lifted.
func TestDamagedLatch(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "latch.json")
	if err := os.WriteFile(file, []byte(`{"engaged":tr`), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Open(Options{LatchFile: file})
	if err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("opened over a damaged latch: %v", err)
	}
}

// TestEarly: a cancel that comes before its call stops it before it starts, and
// nobody else's (ORC-79, acceptance 38).
func TestEarly(t *testing.T) {
	r := start(t, t.TempDir(), nil)
	status, text := r.ask(http.MethodPost, "/orchestrate/cancel", r.token(), `{"requestId":"early-1","reason":"too soon"}`)
	if status != http.StatusOK || !strings.Contains(text, `"pending":true`) {
		t.Fatalf("%d %s", status, text)
	}
	if _, text := r.call(`"early-1"`, ""); !strings.Contains(text, "-32800") || !strings.Contains(text, "too soon") {
		t.Errorf("the call was answered %s", text)
	}
}

// TestRemembers: what ended is found after a restart (ORC-53, acceptance 40).
func TestRemembers(t *testing.T) {
	dir := t.TempDir()
	r := start(t, dir, nil)
	answer := make(chan string, 1)
	go func() { _, text := r.call("9", ""); answer <- text }()
	id := r.running(1)[0].ID
	if status, text := r.ask(http.MethodPost, "/orchestrate/cancel", r.token(), `{"requestId":"9","reason":"done","wait":10}`); status != http.StatusOK {
		t.Fatal(status, text)
	}
	<-answer
	r.end()
	if log := r.log.String(); !strings.Contains(log, "a stopped run has its verdict") || !strings.Contains(log, "run="+id.String()) {
		t.Errorf("the log does not say how the Stop ended: %s", log)
	}
	r = start(t, dir, nil)
	for _, name := range []string{"9", id.String()} {
		status, text := r.ask(http.MethodGet, "/orchestrate/status/"+name, r.token(), "")
		if status != http.StatusOK || !strings.Contains(text, `"cancelled":true`) || !strings.Contains(text, `"cancel_reason":"done"`) {
			t.Errorf("status of %s after a restart: %d %s", name, status, text)
		}
	}
	status, text := r.ask(http.MethodGet, "/v1/runs/"+id.String(), r.token(), "")
	if status != http.StatusOK || !strings.Contains(text, `"receipt"`) {
		t.Errorf("the run after a restart: %d %s", status, text)
	}
}

// TestLedgerTaken: a ledger that somebody else keeps ends a server that needs
// it, and is done without by one that has it by default.
func TestLedgerTaken(t *testing.T) {
	dir := t.TempDir()
	r := start(t, dir, nil)
	_, err := Open(Options{
		Serve: r.node.o.Serve, TokenFile: filepath.Join(dir, "token"),
		Ledger: &LedgerOptions{Path: filepath.Join(dir, "ledger.db"), Required: true},
	})
	if !errors.Is(err, ledger.ErrLocked) {
		t.Errorf("opened a ledger that is in use: %v", err)
	}
	other := start(t, dir, func(o *Options) { o.Ledger.Required = false })
	if status, text := other.ask(http.MethodGet, "/v1/runs", other.token(), ""); status != http.StatusOK {
		t.Errorf("without a ledger: %d %s", status, text)
	}
}

// TestConfigured: with somebody configured the MCP endpoints ask who it is, the
// run's owner is that principal, and others neither see nor stop it.
func TestConfigured(t *testing.T) {
	ann, ben, bot := newToken(t), newToken(t), newToken(t)
	who := auth.Config{Tokens: []auth.Token{
		{Name: "ann", Hash: auth.HashToken(ann), Roles: []string{"user"}},
		{Name: "ben", Hash: auth.HashToken(ben), Roles: []string{"user"}},
		{Name: "bot", Hash: auth.HashToken(bot), Roles: []string{"observer"}},
	}}
	r := start(t, t.TempDir(), func(o *Options) {
		o.Auth = who
		o.Permissions = []string{"admin.system_config", "runs.cancel.own", "runs.read.own"}
	})
	if status, text := r.call("1", ""); status != http.StatusUnauthorized {
		t.Errorf("a call of nobody: %d %s", status, text)
	}
	if status, text := r.call("1", bot); status != http.StatusForbidden {
		t.Errorf("a call of somebody who may not: %d %s", status, text)
	}
	answers := map[string]chan string{"ann": make(chan string, 1), "ben": make(chan string, 1)}
	go func() { _, text := r.call("1", ann); answers["ann"] <- text }()
	go func() { _, text := r.call("1", ben); answers["ben"] <- text }()
	ids := map[string]belay.RunID{}
	for _, run := range r.running(2) {
		ids[run.Owner] = run.ID
	}
	if status, _ := r.ask(http.MethodGet, "/v1/runs/"+ids["ben"].String(), ann, ""); status != http.StatusNotFound {
		t.Errorf("ann sees ben's run: %d", status)
	}
	if status, text := r.ask(http.MethodPost, "/orchestrate/cancel", ann, `{"requestId":"1","reason":"mine"}`); status != http.StatusOK ||
		!strings.Contains(text, ids["ann"].String()) {
		t.Errorf("ann's own: %d %s", status, text)
	}
	<-answers["ann"]
	if left := r.running(1); left[0].Owner != "ben" {
		t.Errorf("left is the run of %s", left[0].Owner)
	}
	// Whoever is taken out of the configuration is out from the next request on.
	who.Tokens = who.Tokens[1:]
	if err := r.node.SetAuth(who); err != nil {
		t.Fatal(err)
	}
	if status, _ := r.ask(http.MethodGet, "/v1/runs", ann, ""); status != http.StatusUnauthorized {
		t.Errorf("ann after she was taken out: %d", status)
	}
	if err := r.node.SetAuth(auth.Config{Tokens: []auth.Token{{Name: "x", Hash: "nonsense"}}}); !errors.Is(err, auth.ErrConfig) {
		t.Errorf("nonsense was taken: %v", err)
	}
	if status, _ := r.ask(http.MethodGet, "/v1/runs", ben, ""); status != http.StatusOK {
		t.Errorf("ben after settings that cannot be: %d", status)
	}
	if status, _ := r.ask(http.MethodPost, "/orchestrate/cancel", ben, `{"requestId":"1"}`); status != http.StatusOK {
		t.Error(status)
	}
	select {
	case <-answers["ben"]:
	case <-time.After(10 * time.Second):
		t.Error("ben's call was not answered")
	}
}

func newToken(t *testing.T) string {
	t.Helper()
	text, _ := auth.NewToken()
	return text
}

// TestMetrics: the page is for who may read all runs, and counts what happened.
func TestMetrics(t *testing.T) {
	r := start(t, t.TempDir(), nil)
	if status, _ := r.ask(http.MethodGet, "/metrics", "", ""); status != http.StatusUnauthorized {
		t.Errorf("without a token: %d", status)
	}
	answer := make(chan string, 1)
	go func() { _, text := r.call("1", ""); answer <- text }()
	r.running(1)
	if status, text := r.ask(http.MethodPost, "/orchestrate/cancel", r.token(), `{"requestId":"1","wait":10}`); status != http.StatusOK {
		t.Fatal(status, text)
	}
	<-answer
	deadline := time.Now().Add(10 * time.Second)
	for {
		_, text := r.ask(http.MethodGet, "/metrics", r.token(), "")
		if strings.Contains(text, `belay_runs_ended_total{kind="call",outcome="cancelled"`) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("nothing was counted:\n%s", text)
		}
		time.Sleep(10 * time.Millisecond)
	}
	open := start(t, t.TempDir(), func(o *Options) { o.Metrics.Public = true })
	if status, _ := open.ask(http.MethodGet, "/metrics", "", ""); status != http.StatusOK {
		t.Errorf("public, without a token: %d", status)
	}
}

// Erasure reaches what remembers ended runs: the file, and the tree at once.
func TestErasure(t *testing.T) {
	r := start(t, t.TempDir(), nil)
	_, text := r.ask("POST", "/v1/runs", r.token(), `{"kind":"turn","name":"of-an-erased-person"}`)
	id := regexp.MustCompile(`run_[0-9a-z]{26}`).FindString(text)
	if status, text := r.ask("POST", "/v1/runs/"+id+"/report", r.token(), `{"outcome":"completed"}`); status != 200 {
		t.Fatalf("%d %s", status, text)
	}
	if status, text := r.ask("DELETE", "/v1/principals/local", r.token(), ""); status != 200 {
		t.Fatalf("%d %s", status, text)
	}
	for _, path := range []string{"/v1/runs/" + id, "/orchestrate/status/" + id} {
		if status, text := r.ask("GET", path, r.token(), ""); status != 404 {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
	if _, text := r.ask("GET", "/v1/runs?state=all", r.token(), ""); strings.Contains(text, "erased-person") {
		t.Errorf("listed: %s", text)
	}
}
