package sigv4

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/rap"
)

const secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func verifier(t *testing.T, now *time.Time) *Verifier {
	t.Helper()
	v, err := NewVerifier(VerifierOptions{
		Region: "eu-central-1", now: func() time.Time { return *now },
		Keys: []Key{
			{AccessKey: "AKIDANN", SecretKey: secret, Caller: "ann"},
			{AccessKey: "ASIABOB", SecretKey: secret + "2", SessionToken: "session-of-bob", Caller: "bob"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func signer(access, secret, session string) *Signer {
	return &Signer{Credentials: Static(access, secret, session), Region: "eu-central-1", now: func() time.Time { return noon }}
}

// sent is the request as the server gets it, over real HTTP.
func sent(t *testing.T, s rap.Signer, path, body string, change func(*http.Request)) (*http.Request, string) {
	t.Helper()
	var got *http.Request
	var text []byte
	web := httptest.NewServer(http.StripPrefix("/rap", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		text, _ = io.ReadAll(r.Body)
		got = r
	})))
	defer web.Close()
	req, err := http.NewRequest(http.MethodPost, web.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if err := s.Sign(req, []byte(body)); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(req)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return got, string(text)
}

func authenticate(v *Verifier, r *http.Request, body string) (string, error) {
	return v.Authenticate(r, func() ([]byte, error) { return []byte(body), nil })
}

// TestRAP38_SignedRequestsAreVerified: what the AWS SDK signs is known, also below a
// prefix, with a query and odd characters, and with temporary credentials.
func TestRAP38_SignedRequestsAreVerified(t *testing.T) {
	now := noon.Add(time.Minute)
	v := verifier(t, &now)
	for _, path := range []string{"/rap/cancel_tool_call", "/rap/a%20b/c%2Fd?x=1&a=%20&a=2", "/rap//x", "/rap/é"} {
		r, body := sent(t, signer("AKIDANN", secret, ""), path, `{"thread_id":"t","tool_call_id":"c"}`, nil)
		if who, err := authenticate(v, r, body); who != "ann" || err != nil {
			t.Errorf("%s: %q, %v", path, who, err)
		}
	}
	r, body := sent(t, signer("ASIABOB", secret+"2", "session-of-bob"), "/rap/invoke", "", nil)
	if who, err := authenticate(v, r, body); who != "bob" || err != nil {
		t.Errorf("temporary credentials: %q, %v", who, err)
	}
	r, body = sent(t, signer("AKIDANN", secret, ""), "/rap/x", "{}", func(r *http.Request) { r.Header.Set("User-Agent", "a proxy's") })
	if who, err := authenticate(v, r, body); who != "ann" || err != nil {
		t.Errorf("what proxies change: %q, %v", who, err)
	}
}

// TestRAP32_ForgedRequestsAreRefused: whatever was changed after signing, and
// whoever has no key.
func TestRAP32_ForgedRequestsAreRefused(t *testing.T) {
	now := noon.Add(time.Minute)
	v := verifier(t, &now)
	good := signer("AKIDANN", secret, "")
	other := signer("AKIDANN", secret, "")
	other.Region = "us-east-1"
	service := signer("AKIDANN", secret, "")
	service.Service = "s3"
	replace := func(old, with string) func(*http.Request) {
		return func(r *http.Request) {
			r.Header.Set("Authorization", strings.Replace(r.Header.Get("Authorization"), old, with, 1))
		}
	}
	for name, tt := range map[string]struct {
		s      *Signer
		change func(*http.Request)
		body   string // what arrives; "": what was signed
	}{
		"another secret":     {s: signer("AKIDANN", secret+"x", "")},
		"an unknown key":     {s: signer("AKIDEVE", secret, "")},
		"another key's name": {s: good, change: replace("AKIDANN", "ASIABOB")},
		"another body":       {s: good, body: `{"thread_id":"t","tool_call_id":"d"}`},
		"another region":     {s: other},
		"another service":    {s: service},
		"no session token":   {s: signer("ASIABOB", secret+"2", "")},
		"a session token":    {s: signer("AKIDANN", secret, "x")},
		"a wrong token":      {s: signer("ASIABOB", secret+"2", "session-of-eve")},
		"another path":       {s: good, change: func(r *http.Request) { r.URL.Path = "/rap/close_thread" }},
		"another query":      {s: good, change: func(r *http.Request) { r.URL.RawQuery = "a=1" }},
		"another method":     {s: good, change: func(r *http.Request) { r.Method = http.MethodPut }},
		"another host":       {s: good, change: func(r *http.Request) { r.Host = "other.test" }},
		"another date":       {s: good, change: func(r *http.Request) { r.Header.Set("X-Amz-Date", "20261122T120001Z") }},
		"another day":        {s: good, change: func(r *http.Request) { r.Header.Set("X-Amz-Date", "20261121T120000Z") }},
		"no date":            {s: good, change: func(r *http.Request) { r.Header.Del("X-Amz-Date") }},
		"two dates":          {s: good, change: func(r *http.Request) { r.Header.Add("X-Amz-Date", "20261122T120000Z") }},
		"another type":       {s: good, change: func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }},
		"an x-amz header":    {s: good, change: func(r *http.Request) { r.Header.Set("X-Amz-Meta-Who", "root") }},
		"an unsigned body":   {s: good, change: func(r *http.Request) { r.Header.Set("X-Amz-Content-Sha256", "UNSIGNED-PAYLOAD") }},
		"the host unsigned":  {s: good, change: replace(";host", "")},
		"no signature":       {s: good, change: replace("Signature=", "Signatur=")},
		"two headers":        {s: good, change: func(r *http.Request) { r.Header.Add("Authorization", "x") }},
		"nonsense":           {s: good, change: func(r *http.Request) { r.Header.Set("Authorization", algorithm+" x") }},
		"a large header":     {s: good, change: func(r *http.Request) { r.Header.Set("Authorization", algorithm+" "+strings.Repeat("x,", 9000)) }},
	} {
		r, body := sent(t, tt.s, "/rap/cancel_tool_call", `{"thread_id":"t","tool_call_id":"c"}`, tt.change)
		if tt.body != "" {
			body = tt.body
		}
		who, err := authenticate(v, r, body)
		if who != "" || !errors.Is(err, rap.ErrUnauthenticated) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %q, %v", name, who, err)
		}
	}
	r, _ := http.NewRequest(http.MethodPost, "/", nil)
	if _, err := authenticate(v, r, ""); !errors.Is(err, rap.ErrNoCredentials) {
		t.Errorf("no credentials: %v", err)
	}
}

// TestRAP38_ClocksAndReplays: how far clocks may differ, and how long a signature is
// good.
func TestRAP38_ClocksAndReplays(t *testing.T) {
	for _, tt := range []struct {
		after time.Duration
		ok    bool
	}{
		{0, true},
		{5 * time.Minute, true},
		{-5 * time.Minute, true},
		{5*time.Minute + time.Second, false},
		{-5*time.Minute - time.Second, false},
		{24 * time.Hour, false},
	} {
		now := noon.Add(tt.after)
		r, body := sent(t, signer("AKIDANN", secret, ""), "/rap/invoke", "{}", nil)
		if who, err := authenticate(verifier(t, &now), r, body); (err == nil) != tt.ok {
			t.Errorf("a clock that is %v ahead: %q, %v", tt.after, who, err)
		}
	}
	now := noon
	v := verifier(t, &now)
	r, body := sent(t, signer("AKIDANN", secret, ""), "/rap/invoke", "{}", nil)
	for _, step := range []struct {
		wait time.Duration
		ok   bool
	}{{0, true}, {time.Second, true}, {4 * time.Second, true}, {time.Millisecond, false}, {time.Minute, false}} {
		now = now.Add(step.wait)
		if _, err := authenticate(v, r, body); (err == nil) != step.ok {
			t.Errorf("the same request %v after it was signed: %v", now.Sub(noon), err)
		}
	}
}

// Settings that cannot be.
func TestSettings(t *testing.T) {
	key := Key{AccessKey: "AKID", SecretKey: secret, Caller: "ann"}
	for name, o := range map[string]VerifierOptions{
		"no region":       {Keys: []Key{key}},
		"no key":          {Region: "r"},
		"a short secret":  {Region: "r", Keys: []Key{{AccessKey: "AKID", SecretKey: "short", Caller: "ann"}}},
		"nobody":          {Region: "r", Keys: []Key{{AccessKey: "AKID", SecretKey: secret}}},
		"an odd key":      {Region: "r", Keys: []Key{{AccessKey: "AK/ID", SecretKey: secret, Caller: "ann"}}},
		"a key twice":     {Region: "r", Keys: []Key{key, key}},
		"too much skew":   {Region: "r", Keys: []Key{key}, Skew: time.Hour},
		"a negative skew": {Region: "r", Keys: []Key{key}, Skew: -1},
	} {
		if _, err := NewVerifier(o); !errors.Is(err, belay.ErrBadRequest) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := (&Signer{}).Sign(httptest.NewRequest(http.MethodPost, "/", nil), nil); err == nil {
		t.Error("a signer without credentials signs")
	}
}

// FuzzAuthorization: no header makes a stranger known.
func FuzzAuthorization(f *testing.F) {
	f.Add(algorithm + " Credential=AKIDANN/20261122/eu-central-1/lambda/aws4_request, SignedHeaders=host;x-amz-date, Signature=" + strings.Repeat("0", 64))
	f.Add(algorithm + " ")
	now := noon
	f.Fuzz(func(t *testing.T, header string) {
		r := httptest.NewRequest(http.MethodPost, "/invoke", nil)
		r.Header.Set("Authorization", header)
		r.Header.Set("X-Amz-Date", noon.Format(dateForm))
		if who, err := authenticate(verifier(t, &now), r, ""); who != "" || err == nil {
			t.Errorf("%q, %v", who, err)
		}
	})
}

// TestRAP38_ReplaysSideBySide: a request that was recorded is refused after its time,
// also when it is sent by many at the same moment.
func TestRAP38_ReplaysSideBySide(t *testing.T) {
	now := noon
	v := verifier(t, &now)
	r, body := sent(t, signer("AKIDANN", secret, ""), "/rap/invoke", "{}", nil)
	if _, err := authenticate(v, r, body); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Minute)
	var passed atomic.Int32
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 200 {
				if _, err := authenticate(v, r, body); err == nil {
					passed.Add(1)
				}
			}
		})
	}
	all.Wait()
	if n := passed.Load(); n != 0 {
		t.Errorf("%d of 3200 replays were let in", n)
	}
}
