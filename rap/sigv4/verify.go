package sigv4

import (
	"crypto/subtle"
	"fmt"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/rap"
)

// Key is an access key and whom it stands for.
type Key struct {
	AccessKey    string // its public name. Required
	SecretKey    string // at least 16 bytes. Required
	SessionToken string // of temporary credentials; "": requests must not have one
	Caller       string // whom it stands for. Required
}

// VerifierOptions are the settings of a [Verifier]. Keys and Region are required.
type VerifierOptions struct {
	Keys    []Key
	Region  string
	Service string        // "": DefaultService
	Skew    time.Duration // between the clocks of the two; 0: 5 min, at most 15 min

	now func() time.Time // nil: time.Now
}

// Numbers of a Verifier.
const (
	defaultSkew = 5 * time.Minute
	maxSkew     = 15 * time.Minute
	minSecret   = 16
	maxHeader   = 8 << 10         // of an Authorization header
	repeatFor   = 5 * time.Second // after a signature was first seen
	maxSeen     = 100_000         // signatures that are remembered
	dateForm    = "20060102T150405Z"
	algorithm   = "AWS4-HMAC-SHA256"
)

var _ rap.Authenticator = (*Verifier)(nil)

// Verifier finds out who signed a request. Safe for concurrent use.
type Verifier struct {
	o    VerifierOptions
	keys map[string]Key

	mu   sync.Mutex                           // looking and marking are one step
	seen *belay.Tombstones[string, time.Time] // of verified requests
}

// NewVerifier checks the settings; errors wrap belay.ErrBadRequest and hold no
// secret.
func NewVerifier(o VerifierOptions) (*Verifier, error) {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: sigv4: %s", belay.ErrBadRequest, fmt.Sprintf(format, args...))
	}
	if o.Skew == 0 {
		o.Skew = defaultSkew
	}
	o.Service = orDefault(o.Service)
	if o.now == nil {
		o.now = time.Now
	}
	switch {
	case o.Region == "":
		return nil, bad("a region is required")
	case len(o.Keys) == 0:
		return nil, bad("there is no key")
	case o.Skew < 0 || o.Skew > maxSkew:
		return nil, bad("a skew of %v, at most %v is allowed", o.Skew, maxSkew)
	}
	v := &Verifier{o: o, keys: map[string]Key{}}
	for i, k := range o.Keys {
		switch {
		case k.AccessKey == "" || strings.ContainsAny(k.AccessKey, "/, ="):
			return nil, bad("key %d has no usable access key", i)
		case len(k.SecretKey) < minSecret:
			return nil, bad("the secret of key %s has %d bytes, it must have at least %d", k.AccessKey, len(k.SecretKey), minSecret)
		case k.Caller == "":
			return nil, bad("key %s stands for nobody", k.AccessKey)
		}
		if _, twice := v.keys[k.AccessKey]; twice {
			return nil, bad("key %s is there twice", k.AccessKey)
		}
		v.keys[k.AccessKey] = k
	}
	// A signature can come as long as its date is within the skew, on either side.
	v.seen = belay.NewTombstones[string, time.Time](2*o.Skew, maxSeen)
	return v, nil
}

// Challenge implements [rap.Authenticator].
func (*Verifier) Challenge() string { return algorithm + ` realm="rap"` }

// errRefused is what everybody is told whose signature is no good: which check
// failed would help nobody but who tries.
var errRefused = fmt.Errorf("%w: the signature is not good", rap.ErrUnauthenticated)

// Authenticate implements [rap.Authenticator].
func (v *Verifier) Authenticate(r *http.Request, body func() ([]byte, error)) (string, error) {
	headers := r.Header.Values("Authorization")
	if len(headers) == 0 || !strings.HasPrefix(headers[0], algorithm+" ") {
		return "", rap.ErrNoCredentials
	}
	if len(headers) > 1 {
		return "", errRefused
	}
	claim, ok := readClaim(headers[0])
	if !ok {
		return "", errRefused
	}
	now := v.o.now()
	at, ok := v.timely(r, &claim, now)
	if !ok {
		return "", errRefused
	}
	text, err := body()
	if err != nil {
		return "", err
	}
	key, known := v.keys[claim.access]
	if !known {
		key.SecretKey = strings.Repeat("x", minSecret) // the same work for those who do not exist
	}
	again, ok := v.signAgain(r, text, &claim, key, at)
	if !ok || !known || subtle.ConstantTimeCompare([]byte(again), []byte(claim.signature)) != 1 {
		return "", errRefused
	}
	if subtle.ConstantTimeCompare([]byte(r.Header.Get("X-Amz-Security-Token")), []byte(key.SessionToken)) != 1 {
		return "", errRefused
	}
	if !v.fresh(claim.signature, now) {
		return "", fmt.Errorf("%w: the request was seen before", rap.ErrUnauthenticated)
	}
	return key.Caller, nil
}

// claim is what the Authorization header says.
type claim struct {
	access, date, region, service string
	headers                       []string // signed ones, in lower case
	signature                     string
}

// readClaim reads an Authorization header; parts in another form than the one that
// every signer writes are refused.
func readClaim(header string) (c claim, ok bool) {
	if len(header) > maxHeader {
		return c, false
	}
	parts := strings.Split(strings.TrimPrefix(header, algorithm+" "), ",")
	if len(parts) != 3 {
		return c, false
	}
	values := map[string]string{}
	for _, p := range parts {
		key, value, _ := strings.Cut(strings.TrimSpace(p), "=")
		values[key] = value
	}
	scope := strings.Split(values["Credential"], "/")
	if len(scope) != 5 || scope[4] != "aws4_request" || len(values["Signature"]) != 64 || values["SignedHeaders"] == "" {
		return c, false
	}
	c = claim{scope[0], scope[1], scope[2], scope[3], strings.Split(values["SignedHeaders"], ";"), values["Signature"]}
	return c, true
}

// timely checks the date and the scope, and returns when the request was signed.
func (v *Verifier) timely(r *http.Request, c *claim, now time.Time) (time.Time, bool) {
	dates := r.Header.Values("X-Amz-Date")
	if len(dates) != 1 {
		return time.Time{}, false
	}
	at, err := time.Parse(dateForm, dates[0])
	if err != nil || at.Format("20060102") != c.date || c.region != v.o.Region || c.service != v.o.Service {
		return time.Time{}, false
	}
	return at, now.Sub(at).Abs() <= v.o.Skew
}

// signAgain signs what the claim says was signed, and returns the signature.
func (v *Verifier) signAgain(r *http.Request, body []byte, c *claim, key Key, at time.Time) (string, bool) {
	if !slices.Contains(c.headers, "host") || !slices.Contains(c.headers, "x-amz-date") {
		return "", false
	}
	hash := hashOf(body)
	for name, values := range r.Header {
		lower := strings.ToLower(name)
		if strings.HasPrefix(lower, "x-amz-") && !slices.Contains(c.headers, lower) {
			return "", false // it would be believed without having been signed
		}
		if lower == "x-amz-content-sha256" && (len(values) != 1 || values[0] != hash) {
			return "", false
		}
	}
	// The line of the request is what was signed: handlers in front may have changed
	// the URL.
	u, err := url.ParseRequestURI(r.RequestURI)
	if err != nil {
		return "", false
	}
	u.Scheme, u.Host = "https", r.Host
	copied := &http.Request{Method: r.Method, URL: u, Host: r.Host, Header: http.Header{}}
	for _, name := range c.headers {
		switch name {
		case "host":
		case "content-length":
			copied.ContentLength = int64(len(body))
		default:
			values, ok := r.Header[textproto.CanonicalMIMEHeaderKey(name)]
			if !ok {
				return "", false
			}
			copied.Header[textproto.CanonicalMIMEHeaderKey(name)] = slices.Clone(values)
		}
	}
	// The session token is a header that is signed like any other; the signer must
	// not add one of its own.
	keys := aws.Credentials{AccessKeyID: c.access, SecretAccessKey: key.SecretKey}
	if err := v4.NewSigner().SignHTTP(r.Context(), keys, copied, hash, c.service, c.region, at); err != nil {
		return "", false
	}
	again, ok := readClaim(copied.Header.Get("Authorization"))
	return again.signature, ok && slices.Equal(again.headers, c.headers)
}

// fresh reports whether the signature may still be used. Of many that come at the
// same moment none may look while another one has the mark in its hands.
func (v *Verifier) fresh(signature string, now time.Time) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	first, seen := v.seen.Take(signature)
	if !seen {
		first = now
	}
	v.seen.Put(signature, first)
	return now.Sub(first) <= repeatFor
}
