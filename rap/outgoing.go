package rap

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// link is how requests get to one tool server: the client with its TLS, and
// what proves who sends them.
type link struct {
	send func(*http.Request) (*http.Response, error)
	own  bool   // send changes no header
	sign Signer // nil: nothing, or the client does it
}

// newLink is a link that follows no redirect: what was meant for one server,
// credentials included, never goes to another. Each request has a time of its own,
// so that without cookies nothing is left that a client would add to its transport.
func newLink(c *http.Client, s Signer) link {
	if c == nil {
		return link{send: sharedTransport.RoundTrip, own: true, sign: s}
	}
	if t, ok := c.Transport.(*http.Transport); ok && c.Jar == nil {
		return link{send: t.RoundTrip, own: true, sign: s}
	}
	own := *c
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	own.Timeout = 0
	return link{send: own.Do, sign: s}
}

// sharedTransport serves everybody who brings no client. Many calls go to few
// hosts, so that it keeps more idle connections than the default.
var sharedTransport = func() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // the standard library's
	t.MaxIdleConns, t.MaxIdleConnsPerHost = 4096, 256
	return t
}()

// do sends one request. Errors do not show the address, which may hold a token;
// that of an ended ctx is its cause.
func (l link) do(ctx context.Context, method, to string, body []byte) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, to, bytes.NewReader(body)) //nolint:gosec // G704: whoever names an address is checked before, and again when it is dialled
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, withoutURL(err))
	}
	switch {
	case method != http.MethodPost:
	case l.own && l.sign == nil:
		r.Header = jsonHeader
	default:
		r.Header["Content-Type"] = jsonHeader["Content-Type"]
	}
	if l.sign != nil {
		if err := l.sign.Sign(r, body); err != nil {
			return nil, fmt.Errorf("the request could not be signed: %w", err)
		}
	}
	resp, err := l.send(r)
	switch {
	case err == nil:
		return resp, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	return nil, withoutURL(err)
}

// post sends one JSON body and returns the status. An error says that there was
// no answer. Nothing of the answer's body is kept (RAP-12); a short one is
// swallowed, so that the connection can be used again.
func (l link) post(ctx context.Context, to string, body []byte) (int, error) {
	resp, err := l.do(ctx, http.MethodPost, to, body)
	if err != nil {
		return 0, err
	}
	if resp.ContentLength != 0 {
		_, _ = io.CopyN(io.Discard, resp.Body, 4<<10)
	}
	_ = resp.Body.Close()
	return resp.StatusCode, nil
}

// jsonHeader is the header of a post; not to be changed.
var jsonHeader = http.Header{"Content-Type": {ContentType}}

// withoutURL is the reason of a failed request alone.
func withoutURL(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

// statusError is an answer that is not what was hoped for.
type statusError int

func (s statusError) Error() string {
	if text := http.StatusText(int(s)); text != "" {
		return fmt.Sprintf("HTTP %d (%s)", int(s), text)
	}
	return fmt.Sprintf("HTTP %d", int(s))
}

// slowError ends a request that was given its time.
type slowError time.Duration

func (e slowError) Error() string { return "no answer within " + time.Duration(e).String() }

// Timeout says what it is to whoever asks as of an error of package net.
func (slowError) Timeout() bool { return true }
