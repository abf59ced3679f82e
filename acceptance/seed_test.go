//go:build unix

package acceptance

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/seedclient"
)

// client is the one that knows the seed alone.
func (s *server) client(who, family string) *seedclient.Client {
	return &seedclient.Client{Base: s.url, Family: family, Token: token(who), HTTP: web}
}

var families = []string{"/orchestrate", "/cancellation", "/v1/cancellation"}

// ORC-1 to ORC-8, ORC-13, ORC-15, ORC-18.
func TestAcceptance01CancelShowsInStatus(t *testing.T) {
	t.Parallel()
	s := plain(t)
	got := s.begin(t, "ann", "tools").tick(t, `"call-01"`, "01")
	c, why := s.client("op", ""), "user pressed Stop"
	a, err := c.Cancel(t.Context(), "call-01", &why)
	if err != nil || a.Status != "cancelled" {
		t.Fatalf("cancel: %s, %v", a.Raw, err)
	}
	after, err := c.Status(t.Context(), "call-01")
	if err != nil || !after.Cancelled || deref(after.CancelReason) != why || deref(after.CancelledAt) < after.RegisteredAt {
		t.Errorf("status: %s, %v", after.Raw, err)
	}
	if r := wait(t, got); r.code() != -32800 {
		t.Errorf("the caller got %s", r.raw)
	}
	s.quiet(t, "01")
}

// ORC-9, ORC-38, ORC-48: nobody here knows the id, so that nothing is cancelled.
// The peers' half is the cluster's.
func TestAcceptance02UnknownIDStopsNothing(t *testing.T) {
	t.Parallel()
	s := plain(t)
	got := s.begin(t, "ann", "tools").tick(t, `"call-02"`, "02")
	want(t, "unknown id", s.tryCancel(t, "op", "call-02 ", `"reason":null`), 200,
		`{"status":"queued","requestId":"call-02 ","reason":null,"run":null,"affected":false,"pending":true,"work":null,"verdict":null}`)
	unknown := belay.NewRunID().String() // ORC-79: no mark is made for a run id
	want(t, "unknown run id", s.tryCancel(t, "op", unknown), 200,
		`{"status":"queued","requestId":"`+unknown+`","reason":null,"run":null,"affected":false,"pending":false,"work":null,"verdict":null}`)
	s.still(t, "02")
	pending(t, got)
}

// ORC-39: the second cancel changes nothing, and the first reason stays.
func TestAcceptance04SecondCancel(t *testing.T) {
	t.Parallel()
	s := plain(t)
	got := s.begin(t, "ann", "tools").tick(t, `"call-04"`, "04", `"deaf":true`)
	first := s.cancel(t, "op", "call-04", `"reason":"first"`)
	second := s.cancel(t, "op", "call-04", `"reason":"second"`)
	if !first.Affected || second.Affected || second.Status != "cancelled" || deref(second.Reason) != "second" || *second.Run != *first.Run {
		t.Errorf("first %+v, second %+v", first, second)
	}
	wait(t, got)
	third := s.cancel(t, "op", "call-04", `"reason":"third"`, `"wait":10`)
	if third.Status != "cancelled" || third.Affected || deref(third.Verdict) != belay.Confirmed {
		t.Errorf("third %+v", third)
	}
	if st := s.status(t, "op", "call-04"); deref(st.CancelReason) != "first" {
		t.Errorf("status %+v", st)
	}
	if told := s.wit.of("04", "signal"); len(told) != 1 || !strings.HasSuffix(told[0].detail, "first") {
		t.Errorf("the tool was told %v", told)
	}
}

// ORC-14, ORC-15: register, look up, end; a never-seen id.
func TestAcceptance06RoundTrip(t *testing.T) {
	t.Parallel()
	s := plain(t)
	c := s.client("op", "")
	if _, err := c.Status(t.Context(), "call-06"); !errors.Is(err, seedclient.ErrNotFound) {
		t.Errorf("never seen: %v", err)
	}
	got := s.begin(t, "ann", "tools").call(t, `"call-06"`, "tick", `{"key":"06","n":40}`)
	s.saw(t, "06", "tick")
	if r, err := c.Status(t.Context(), "call-06"); err != nil || r.Cancelled {
		t.Errorf("in flight: %s, %v", r.Raw, err)
	}
	if r := wait(t, got); r.Error != nil || r.Result == nil {
		t.Errorf("the caller got %s", r.raw)
	}
	if r, err := c.Status(t.Context(), "call-06"); err != nil || r.Cancelled {
		t.Errorf("ended: %s, %v", r.Raw, err)
	}
	if st := s.status(t, "op", "call-06"); st.Outcome != belay.Completed || st.FinishedAt == nil {
		t.Errorf("ended: %+v", st)
	}
}

// ORC-13, ORC-16, ORC-17, ORC-18, ORC-20: direct calls are registered, too.
func TestAcceptance07NewRun(t *testing.T) {
	t.Parallel()
	s := plain(t)
	before := time.Now()
	s.begin(t, "ann", "tools").tick(t, `"call-07"`, "07")
	r, err := s.client("op", "").Status(t.Context(), "call-07")
	if err != nil || !strings.HasSuffix(deref(r.Name), "tick") || r.Cancelled || r.CancelledAt != nil || r.CancelReason != nil {
		t.Errorf("status: %s, %v", r.Raw, err)
	}
	if age := time.Since(before).Seconds(); math.Abs(float64(time.Now().UnixMicro())/1e6-r.RegisteredAt) > age+1 {
		t.Errorf("registered_at %f is not now", r.RegisteredAt)
	}
	if text := string(r.Raw); strings.Contains(text, "cancelled_at") || strings.Contains(text, "cancel_reason") {
		t.Errorf("before a cancel: %s", text)
	}
	s.cancel(t, "op", "call-07")
}

// ORC-14.
func TestAcceptance15UnknownStatus(t *testing.T) {
	t.Parallel()
	s := plain(t)
	for _, id := range []string{"call-15", belay.NewRunID().String(), "15/1", "%", "ü", strings.Repeat("x", 256), strings.Repeat("x", 257)} {
		for _, f := range families {
			want(t, id, s.do(t, "GET", f+"/status/"+url.PathEscape(id), "op", ""), 404, `{"detail":"Run not found"}`)
		}
	}
}

// ORC-51, ORC-52: no arguments, results, callbacks or owners.
func TestAcceptance16NoInternals(t *testing.T) {
	t.Parallel()
	s := plain(t)
	s.begin(t, "ann", "tools").tick(t, `"call-16"`, "16-secret-key")
	a := s.tryStatus(t, "op", "call-16")
	keys := into[map[string]any](t, a, 200)
	known := " name registered_at cancelled cancelled_at cancel_reason run request_id protocol kind parent outcome work verdict cause finished_at late_result "
	for k := range keys {
		if !strings.Contains(known, " "+k+" ") {
			t.Errorf("key %s in %s", k, a.body)
		}
	}
	for _, inside := range []string{"secret", "3000", "ann", s.dir, "callback"} {
		if strings.Contains(a.body, inside) {
			t.Errorf("%q in %s", inside, a.body)
		}
	}
	s.cancel(t, "op", "call-16")
}

// ORC-2, ORC-5, ORC-18: no reason is null, in the answer and in the status, and
// the tool is given none.
func TestAcceptance18NoReason(t *testing.T) {
	t.Parallel()
	s := plain(t)
	c := s.client("op", "")
	session := s.begin(t, "ann", "tools")
	for n, body := range []string{`{"requestId":"call-18"}`, `{"requestId":"call-18","reason":null}`} {
		key := fmt.Sprint("18-", n)
		got := session.tick(t, `"call-18"`, key)
		a := into[map[string]any](t, s.do(t, "POST", "/orchestrate/cancel", "op", body), 200)
		if reason, there := a["reason"]; !there || reason != nil || a["status"] != "cancelled" {
			t.Errorf("answer %v", a)
		}
		wait(t, got)
		if r, err := c.Status(t.Context(), a["run"].(string)); err != nil || r.CancelReason != nil || !strings.Contains(string(r.Raw), `"cancel_reason":null`) {
			t.Errorf("status %s, %v", r.Raw, err)
		}
		if told := s.wit.of(key, "signal"); len(told) != 1 || strings.Contains(told[0].detail, "null") {
			t.Errorf("the tool was told %v (ORC-44)", told)
		}
	}
}

// ORC-25, ORC-26, ORC-29, ORC-31: three families, one behaviour, the same bytes.
func TestAcceptance33FamiliesAreIdentical(t *testing.T) {
	t.Parallel()
	s := plain(t)
	got := s.begin(t, "ann", "tools").tick(t, `"call/33"`, "33")
	same := func(what string, ask func(*seedclient.Client) ([]byte, error)) {
		t.Helper()
		var first string
		for _, f := range families {
			raw, err := ask(s.client("op", f))
			if first == "" {
				first = string(raw)
			}
			if err != nil || string(raw) != first {
				t.Errorf("%s by %s: %s, %v\nwant %s", what, f, raw, err, first)
			}
		}
	}
	state := func(c *seedclient.Client) ([]byte, error) {
		r, err := c.Status(t.Context(), "call/33") // sent as %2F (ORC-30)
		return r.Raw, err
	}
	same("before", state)
	s.cancel(t, "op", "call/33", `"reason":"a <b> & \"c\" ü"`, `"wait":10`)
	wait(t, got)
	same("after", state)
	why := "again"
	same("again", func(c *seedclient.Client) ([]byte, error) {
		r, err := c.Cancel(t.Context(), "call/33", &why)
		return r.Raw, err
	})
	for _, f := range families {
		a := s.do(t, "POST", f+"/cancel", "op", `{"request_id":"call/33","more":[{}]}`)
		if a.status != 200 || a.header.Get("Cache-Control") != "no-store" || strings.HasSuffix(a.body, "\n") || !strings.HasPrefix(a.body, `{"status":"cancelled","requestId":"call/33","reason":null,`) {
			t.Errorf("%s: %d %v %q", f, a.status, a.header, a.body)
		}
		link := a.header.Get("Link")
		if is := strings.Contains(link, "</v1/cancellation/"); is != (f == "/cancellation") {
			t.Errorf("%s: Link %q", f, link)
		}
	}
	if a := s.tryStatus(t, "op", "call/33"); strings.Contains(a.body, `\u003c`) || !strings.Contains(a.body, `"cancel_reason":"a <b> & \"c\" ü"`) {
		t.Errorf("escaped for HTML, or changed: %s", a.body)
	}
}

// ORC-29, ORC-81: a strict client that knows the seed's keys alone works with
// every answer there is.
func TestAcceptance34SeedClientWorks(t *testing.T) {
	t.Parallel()
	for _, f := range families {
		t.Run(f[1:], func(t *testing.T) {
			t.Parallel()
			s := plain(t)
			c, id, key := s.client("op", f), "call-34"+f, "34"+strings.ReplaceAll(f, "/", "-")
			if _, err := c.Status(t.Context(), id); !errors.Is(err, seedclient.ErrNotFound) {
				t.Errorf("unknown: %v", err)
			}
			if a, err := c.Cancel(t.Context(), id+"?", nil); err != nil || a.Status != "queued" {
				t.Errorf("unknown: %s, %v", a.Raw, err)
			}
			got := s.begin(t, "ann", "tools").tick(t, `"`+id+`"`, key)
			if r, err := c.Status(t.Context(), id); err != nil || r.Cancelled {
				t.Errorf("in flight: %s, %v", r.Raw, err)
			}
			why := ""
			if a, err := c.Cancel(t.Context(), id, &why); err != nil || a.Status != "cancelled" {
				t.Errorf("cancel: %s, %v", a.Raw, err)
			}
			wait(t, got)
			s.quiet(t, key)
			for range 2 {
				if a, err := c.Cancel(t.Context(), id, nil); err != nil || a.Status != "cancelled" {
					t.Errorf("again: %s, %v", a.Raw, err)
				}
			}
			if r, err := c.Status(t.Context(), id); err != nil || !r.Cancelled {
				t.Errorf("cancelled: %s, %v", r.Raw, err)
			}
			done := s.begin(t, "ann", "tools").call(t, `"`+id+`-2"`, "echo", `{}`)
			wait(t, done)
			if a, err := c.Cancel(t.Context(), id+"-2", nil); err != nil || a.Status != "queued" { // ORC-40
				t.Errorf("of an ended run: %s, %v", a.Raw, err)
			}
			if r, err := c.Status(t.Context(), id+"-2"); err != nil || r.Cancelled {
				t.Errorf("ended: %s, %v", r.Raw, err)
			}
		})
	}
}
