package node

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/auth"
	"github.com/belayhq/belay/internal/rappeer"
	"github.com/belayhq/belay/rap/sigv4"
)

// runtimeOf is a runtime that calls the server's tools; sign adds its credentials.
func (r *rig) runtimeOf(sign func(*http.Request, []byte)) *rappeer.Runtime {
	p := &rappeer.Runtime{Base: r.url + "/rap/demo", Sign: sign}
	p.Start()
	r.t.Cleanup(p.Stop)
	return p
}

func token(text string) func(*http.Request, []byte) {
	return func(r *http.Request, _ []byte) { r.Header.Set("Authorization", "Bearer "+text) }
}

// must is the text of the nth message.
func must(t *testing.T, p *rappeer.Runtime, id string) string {
	t.Helper()
	ctx, end := context.WithTimeout(t.Context(), 30*time.Second)
	defer end()
	m, err := p.Wait(ctx, "t", id, 1)
	if err != nil {
		t.Fatal(err)
	}
	return m.Text
}

// TestRAP38_CallersOfTheProtocol: tokens and signatures, permissions, and what a
// principal may stop (RAP-32, RAP-33, RAP-96, acceptance 3). The calls are runs like
// others: the REST door lists and stops them (acceptance 8).
func TestRAP38_CallersOfTheProtocol(t *testing.T) {
	const secret = "0123456789abcdef0123"
	ann, annHash := auth.NewToken()
	bot, botHash := auth.NewToken()
	root, rootHash := auth.NewToken()
	r := start(t, t.TempDir(), func(o *Options) {
		o.Auth = auth.Config{Tokens: []auth.Token{
			{Name: "ann", Hash: annHash, Roles: []string{"user"}},
			{Name: "bot", Hash: botHash, Roles: []string{"observer"}},
			{Name: "root", Hash: rootHash, Roles: []string{"operator"}},
		}}
		o.RAP = &RAPOptions{SigV4: &sigv4.VerifierOptions{Region: "eu-central-1", Keys: []sigv4.Key{{AccessKey: "AKIDSAM", SecretKey: secret, Caller: "sam"}}}}
	})
	signer := &sigv4.Signer{Credentials: sigv4.Static("AKIDSAM", secret, ""), Region: "eu-central-1"}
	forger := &sigv4.Signer{Credentials: sigv4.Static("AKIDSAM", secret+"x", ""), Region: "eu-central-1"}
	signed := func(s *sigv4.Signer) func(*http.Request, []byte) {
		return func(r *http.Request, body []byte) {
			if err := s.Sign(r, body); err != nil {
				t.Error(err)
			}
		}
	}
	anns, sams := r.runtimeOf(token(ann)), r.runtimeOf(signed(signer))
	for _, p := range []*rappeer.Runtime{anns, sams} {
		if a, err := p.Invoke("wait", "t", "c", map[string]any{"seconds": 60}); err != nil || a.Status != 200 {
			t.Fatal(a, err)
		}
	}
	runs := r.running(4) // two for each call
	owners := map[string]int{}
	for _, i := range runs {
		owners[i.Owner]++
	}
	if owners["ann"] != 2 || owners["sam"] != 2 {
		t.Errorf("%+v", runs)
	}
	body := `{"thread_id":"t","tool_call_id":"c"}`
	for name, tt := range map[string]struct {
		sign func(*http.Request, []byte)
		want int
	}{
		"nobody": {nil, 401}, "a wrong token": {token("belay_nonsense"), 401}, "a forged signature": {signed(forger), 401},
		"somebody who may not call": {token(bot), 403}, "this user's own token": {token(r.token()), 200},
	} {
		for _, path := range []string{"/cancel_tool_call", "/close_thread"} {
			a, err := anns.DoAs(tt.sign, http.MethodPost, path, "application/json", body)
			if err != nil || a.Status != tt.want || a.Body != "" || tt.want == 401 && a.Header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s at %s: %+v, %v", name, path, a, err)
			}
		}
	}
	r.running(4)
	if a, err := anns.Cancel("t", "c"); err != nil || a.Status != 200 {
		t.Fatal(a, err)
	}
	if text := must(t, anns, "c"); !strings.HasPrefix(text, "Error: Cancelled by user.") && !strings.HasPrefix(text, "Cancelled by user. Partial results:") {
		t.Errorf("ann got %q", text)
	}
	left := r.running(2)
	if left[0].Owner != "sam" {
		t.Errorf("%+v", left)
	}
	if status, text := r.ask(http.MethodGet, "/v1/runs?owner=sam", root, ""); status != 200 || !strings.Contains(text, "rap (t, c)") {
		t.Errorf("%d %s", status, text)
	}
	top := left[0]
	if top.Labels["protocol"] != "rap" {
		top = left[1]
	}
	if status, text := r.ask(http.MethodPost, "/v1/runs/"+top.ID.String()+"/cancel", root, `{"reason":"enough"}`); status/100 != 2 {
		t.Fatalf("%d %s", status, text)
	}
	if text := must(t, sams, "c"); !strings.Contains(text, "Cancelled by operator: enough.") {
		t.Errorf("sam got %q", text)
	}
	r.running(0)
}

// TestRAP38_LoopbackAlone: where nobody is configured this machine's users call
// without credentials, and the latch keeps calls out as everywhere.
func TestRAP38_LoopbackAlone(t *testing.T) {
	r := start(t, t.TempDir(), func(o *Options) { o.RAP = &RAPOptions{} })
	p := r.runtimeOf(nil)
	if a, err := p.Invoke("count", "t", "a", map[string]any{"to": 2, "pause_ms": 1}); err != nil || a.Status != 200 {
		t.Fatal(a, err)
	}
	if text := must(t, p, "a"); !strings.Contains(text, "2") {
		t.Errorf("%q", text)
	}
	runs, err := r.tree.List(t.Context(), belay.Filter{Labels: map[string]string{"protocol": "rap"}, Ended: true})
	if err != nil || len(runs) != 1 || runs[0].Owner != auth.LocalName {
		t.Errorf("%+v, %v", runs, err)
	}
	if status, text := r.ask(http.MethodPost, "/v1/latch", r.token(), `{"reason":"runaway"}`); status/100 != 2 {
		t.Fatalf("%d %s", status, text)
	}
	if a, err := p.Do(http.MethodPost, "/invoke", p.Invocation("count", "t", "b", map[string]any{"to": 2}, nil)); err != nil || a.Status != 200 {
		t.Fatal(a, err)
	}
	if text := must(t, p, "b"); !strings.HasPrefix(text, "Error: ") || !strings.Contains(text, "runaway") {
		t.Errorf("%q", text)
	}
}
