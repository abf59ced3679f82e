package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/belayhq/belay"
)

// ErrUnauthorized says that the server does not know who asks: no token, or one
// that is wrong or has expired. It wraps [belay.ErrForbidden].
var ErrUnauthorized = fmt.Errorf("%w: not signed in", belay.ErrForbidden)

// ErrLimited says that too many requests came from this principal. It wraps
// [belay.ErrTooMany]; [Error.RetryAfter] says when to try again.
var ErrLimited = fmt.Errorf("%w: too many requests", belay.ErrTooMany)

// Error is a server's refusal. It wraps the sentinel of package belay that its
// code or status stands for, which decides about exit codes and retries.
type Error struct {
	Status     int           // of HTTP
	Code       belay.Code    // of the domain; empty where the server named none
	Detail     string        // the server's words, without control characters
	RetryAfter time.Duration // zero: the server said nothing about it
	Candidates []Candidate   // with [belay.ErrAmbiguous]: the runs that the name fits, newest first
	More       int           // candidates beyond those

	class error
}

// Candidate is one of several runs that a name fits.
type Candidate struct {
	Run     belay.RunID
	Name    string
	Started time.Time
}

// Error implements error: the server's words, and the status for those who look
// into its log.
func (e *Error) Error() string {
	text := e.Detail
	if text == "" {
		text = strings.ToLower(http.StatusText(e.Status))
	}
	return fmt.Sprintf("%s (HTTP %d)", text, e.Status)
}

// Unwrap makes errors.Is see the sentinel.
func (e *Error) Unwrap() error { return e.class }

// maxProblem is more than any refusal of a server has.
const maxProblem = 256 << 10

const codePrefix = "urn:belay:error:"

// problemIn reads a refusal in any of the forms that a server has: problem
// details (RFC 9457) of /v1, {"detail": …} of the Orchestrate family, or a
// proxy's own text, which is not shown.
func problemIn(status int, h http.Header, body []byte) *Error {
	e := &Error{Status: status, RetryAfter: retryAfter(h)}
	var p struct {
		Type   string `json:"type"`
		Detail any    `json:"detail"`
		Errors []struct {
			Message  string `json:"message"`
			Location string `json:"location"`
		} `json:"errors"`
		Candidates []struct {
			Run          belay.RunID `json:"run"`
			Name         string      `json:"name"`
			RegisteredAt float64     `json:"registered_at"`
		} `json:"candidates"`
		More int `json:"more"`
	}
	ours := json.Unmarshal(body, &p) == nil
	if text, ok := p.Detail.(string); ok {
		e.Detail = belay.CleanReason(text)
	}
	for _, f := range p.Errors {
		e.Detail = belay.CleanReason(strings.TrimPrefix(e.Detail+"; "+f.Location+": "+f.Message, "; "))
	}
	for _, c := range p.Candidates {
		e.Candidates = append(e.Candidates, Candidate{c.Run, belay.CleanReason(c.Name), time.UnixMicro(int64(c.RegisteredAt * 1e6))})
	}
	if !ours && strings.Contains(string(body), "HTTP request to an HTTPS server") { // net/http's own words
		e.Detail = "the server encrypts: begin its address with https://"
	}
	e.More = p.More
	if code, ok := strings.CutPrefix(p.Type, codePrefix); ok {
		e.Code = belay.Code(code)
	}
	e.class = classOf(status, e, ours)
	if status == http.StatusNotFound && errors.Is(e, belay.ErrUnsupported) {
		e.Detail = "this server does not offer that: it is no Belay, an older one, or has this part switched off"
	}
	return e
}

// classOf is the sentinel of a refusal: that of its code, else of its status. A
// 404 without a code is about the path, not about a run.
func classOf(status int, e *Error, ours bool) error {
	if class := belay.ErrorOf(e.Code); class != nil {
		return class
	}
	switch {
	case e.Code == "latched": // not a fault of the server, though its status says so
		return belay.ErrForbidden
	case status == http.StatusUnauthorized:
		return ErrUnauthorized
	case status == http.StatusForbidden:
		return belay.ErrForbidden
	case status == http.StatusTooManyRequests:
		return ErrLimited
	case status == http.StatusConflict && len(e.Candidates) > 0:
		return belay.ErrAmbiguous
	case status == http.StatusNotFound && ours && e.Detail == "Run not found":
		return belay.ErrNotFound
	case status == http.StatusNotFound, status == http.StatusMethodNotAllowed, status == http.StatusNotImplemented:
		return belay.ErrUnsupported
	case status == http.StatusBadGateway, status == http.StatusServiceUnavailable, status == http.StatusGatewayTimeout:
		return belay.ErrUnreachable
	case status >= 400 && status < 500:
		return belay.ErrBadRequest
	}
	return errServer
}

var errServer = errors.New("the server failed")

// retryAfter reads whole seconds or a date; anything else is nothing.
func retryAfter(h http.Header) time.Duration {
	text := h.Get("Retry-After")
	if text == "" {
		return 0
	}
	if d, err := time.ParseDuration(text + "s"); err == nil && d > 0 {
		return d
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(time.Until(at), 0)
	}
	return 0
}

// unreached is an error of the connection: nobody is there, or not in time.
// What the HTTP library says is taken apart, since its text repeats the whole
// URL.
func (c *Client) unreached(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	if errors.Is(err, errRedirect) {
		return fmt.Errorf("%w: %s: %w", belay.ErrForbidden, c.named, err)
	}
	return fmt.Errorf("%s %w: %w", c.named, belay.ErrUnreachable, err)
}
