package lease

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/calm"
)

// waitFor polls for what a signal cannot be had for.
func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(15 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

// A webhook gets the order: which run, why, which step; no secret, no credentials.
func TestWebhook(t *testing.T) {
	t.Parallel()
	got := make(chan Order, 8)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var o Order
		d := json.NewDecoder(req.Body)
		d.DisallowUnknownFields()
		if err := d.Decode(&o); err != nil || req.Method != http.MethodPost || req.URL.Path != "/hook" ||
			req.Header.Get("Authorization") != "" || req.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%v: %+v", err, req)
		}
		got <- o
		w.WriteHeader(http.StatusNoContent)
	}))
	defer server.Close()
	r := newRig(t, Options{})
	st := r.register(Spec{Webhook: server.URL + "/hook?token=s3cret"}, 0)
	r.stop(st.Run.ID)
	if o := <-got; o.Run != st.Run.ID || o.Reason != "enough" || o.Step != belay.StepTold || o.Cause != belay.CauseOperator || o.Stop.IsZero() {
		t.Errorf("%+v", o)
	}
	if o := <-got; o.Step != belay.StepTerminate {
		t.Errorf("then %+v", o)
	}
	if _, err := r.reg.Report("ann", st.Run.ID, Report{Outcome: belay.Cancelled}); err != nil {
		t.Fatal(err)
	}
	d := r.detail(st.Run.ID)
	if text, _ := json.Marshal(d); d.Verdict != belay.Acknowledged || told(d).Error != "" || strings.Contains(string(text), "s3cret") {
		t.Errorf("%s", text)
	}
}

// A webhook that does not take the order: the receipt says so, without the
// webhook's path, and nothing follows a redirect. It is tried again meanwhile.
func TestWebhookFails(t *testing.T) {
	t.Parallel()
	inner := make(chan struct{}, 100)
	secret := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { inner <- struct{}{} }))
	defer secret.Close()
	tries := make(chan struct{}, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		tries <- struct{}{}
		http.Redirect(w, req, secret.URL, http.StatusTemporaryRedirect)
	}))
	defer server.Close()
	r := newRig(t, Options{})
	id := r.register(Spec{Webhook: server.URL + "/s3cret"}, 0).Run.ID
	run, _ := r.tree.Run(id)
	r.stop(id)
	<-tries
	<-tries
	if _, err := run.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	d := r.detail(id)
	text, _ := json.Marshal(d)
	if d.Verdict != belay.Unreachable || !strings.Contains(told(d).Error, "it answered 307") || strings.Contains(string(text), "s3cret") {
		t.Errorf("%s", text)
	}
	if len(inner) > 0 {
		t.Error("the redirect was followed")
	}
}

// A webhook that is dead does not keep a stream or a heartbeat from counting.
func TestWebhookOrStream(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	id := r.register(Spec{Webhook: "http://127.0.0.1:1/"}, 0).Run.ID
	r.stop(id)
	waitFor(t, "no order", func() bool { st, _ := r.reg.Get("ann", id); return st.Order != nil })
	if _, err := r.reg.Heartbeat("ann", id, 0); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "not told", func() bool { return r.detail(id).Verdict == belay.Signalled })
}

// Close ends a delivery that is under way.
func TestCloseEndsDelivery(t *testing.T) {
	stuck, free := make(chan struct{}, 9), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		stuck <- struct{}{}
		select {
		case <-free:
		case <-req.Context().Done():
		}
	}))
	defer server.Close()
	defer close(free)
	r := newRig(t, Options{})
	id := r.register(Spec{Webhook: server.URL}, 0).Run.ID
	r.stop(id)
	<-stuck
	w, start := calm.Start(t), time.Now()
	r.reg.Close()
	w.Within(t, time.Since(start), time.Second, "Close")
}

// Where webhooks may go: what is written, and what names resolve to.
func TestHookRules(t *testing.T) {
	tests := []struct {
		url   string
		hooks Hooks
		ok    bool
	}{
		{"https://example.com/x", Hooks{}, true},
		{"https://example.com:8443/x?y=z", Hooks{}, true},
		{"http://127.0.0.1:9/x", Hooks{}, true},
		{"http://localhost:9/x", Hooks{}, true},
		{"http://[::1]:9/x", Hooks{}, true},
		{"http://[::ffff:127.0.0.1]:9/x", Hooks{}, true},
		{"http://127.0.0.1:9/x", Hooks{NoLoopback: true}, false},
		{"http://example.com/x", Hooks{}, false},
		{"http://example.com/x", Hooks{Plain: true}, true},
		{"http://localhost.example.com/x", Hooks{}, false},
		{"https://10.0.0.1/x", Hooks{}, false},
		{"https://10.0.0.1/x", Hooks{Private: true}, true},
		{"https://[fd00::1]/x", Hooks{}, false},
		{"https://100.64.0.1/", Hooks{}, false},
		{"https://100.64.0.1/", Hooks{Private: true}, true},
		{"https://169.254.169.254/latest", Hooks{Private: true, Plain: true}, false},
		{"https://[fd00:ec2::254]/", Hooks{Private: true}, false},
		{"https://100.100.100.200/", Hooks{Private: true}, false},
		{"https://168.63.129.16/", Hooks{}, false},
		{"https://[fe80::1%25eth0]/", Hooks{Private: true}, false},
		{"https://0.0.0.0/", Hooks{Private: true}, false},
		{"https://[::ffff:10.0.0.1]/", Hooks{}, false},
		{"https://[64:ff9b::a00:1]/", Hooks{Private: true}, false},
		{"https://224.0.0.1/", Hooks{Private: true}, false},
		{"https://user:pass@example.com/", Hooks{}, false},
		{"https://example.com/#x", Hooks{}, false},
		{"https:///x", Hooks{}, false},
		{"//example.com/x", Hooks{}, false},
		{"file:///etc/passwd", Hooks{Private: true}, false},
		{"gopher://example.com/", Hooks{}, false},
		{"https://example.com/" + strings.Repeat("x", maxURL), Hooks{}, false},
		{"", Hooks{}, false},
		{"https://exa mple.com/", Hooks{}, false},
	}
	for _, tt := range tests {
		if err := tt.hooks.check(tt.url); (err == nil) != tt.ok {
			t.Errorf("%.60s with %+v: %v", tt.url, tt.hooks, err)
		}
	}
	if !(Hooks{}).allows(netip.MustParseAddr("2606:4700::1111")) {
		t.Error("a public address is refused")
	}
}

// One owner's dead webhooks leave places for others.
func TestHookPlaces(t *testing.T) {
	p := newPoster(Hooks{})
	for i := range hooksAtOnceOf {
		if !p.enter(t.Context(), "ann") {
			t.Fatal(i)
		}
	}
	if p.enter(t.Context(), "ann") {
		t.Error("one too many")
	}
	if !p.enter(t.Context(), "bob") {
		t.Error("bob waits for ann")
	}
	p.leave("bob")
	for range hooksAtOnceOf {
		p.leave("ann")
	}
	if len(p.of) != 0 || len(p.slots) != 0 {
		t.Error(fmt.Sprint(p.of), len(p.slots))
	}
}

// Where webhooks are switched off a registration that names one is refused, and
// none is made; one without goes through.
func TestWebhooksOff(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{Hooks: Hooks{Off: true, Private: true, Plain: true}})
	for _, hook := range []string{"https://example.com/hook", "http://127.0.0.1:1/hook"} {
		if _, err := r.reg.Register("ann", Spec{Kind: belay.KindTurn, Name: "turn", Webhook: hook}, 0); !errors.Is(err, belay.ErrBadRequest) {
			t.Errorf("%s: %v", hook, err)
		}
	}
	r.register(Spec{}, 0)
	if n := r.tree.InFlight(); n != 1 {
		t.Errorf("%d runs", n)
	}
}
