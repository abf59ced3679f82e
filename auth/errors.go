package auth

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/belayhq/belay"
)

// ErrUnauthenticated: it is not known who sent the request. Every other
// sentinel about credentials wraps it, so that one check tells a 401.
var ErrUnauthenticated = errors.New("not authenticated")

// What can be wrong with credentials. The texts go to the log; what a caller
// is told is in [Describe] and says less.
var (
	ErrNoCredentials = fmt.Errorf("%w: the request has no Authorization header", ErrUnauthenticated)
	ErrCookie        = fmt.Errorf("%w: a cookie is no credential here", ErrUnauthenticated)
	ErrTokenInQuery  = fmt.Errorf("%w: a token in the query string is refused, it ends up in logs and histories", ErrUnauthenticated)
	ErrMalformed     = fmt.Errorf("%w: the credentials are malformed", ErrUnauthenticated)
	ErrTooLong       = fmt.Errorf("%w: the token is too long", ErrUnauthenticated)
	ErrUnknownToken  = fmt.Errorf("%w: nobody has this token", ErrUnauthenticated)
	ErrAlgorithm     = fmt.Errorf("%w: the token's algorithm is not the one of its key", ErrUnauthenticated)
	ErrUnknownKey    = fmt.Errorf("%w: no key of the issuer fits the token", ErrUnauthenticated)
	ErrSignature     = fmt.Errorf("%w: the token's signature is wrong", ErrUnauthenticated)
	ErrExpired       = fmt.Errorf("%w: expired", ErrUnauthenticated)
	ErrNotYetValid   = fmt.Errorf("%w: not valid yet", ErrUnauthenticated)
	ErrAudience      = fmt.Errorf("%w: the token was made for another audience", ErrUnauthenticated)
	ErrIssuer        = fmt.Errorf("%w: the token's issuer is not known here", ErrUnauthenticated)
	ErrClaims        = fmt.Errorf("%w: a claim is missing or cannot be", ErrUnauthenticated)
	ErrCertificate   = fmt.Errorf("%w: the client certificate names no principal", ErrUnauthenticated)
	ErrPeer          = fmt.Errorf("%w: the socket's other end is another user", ErrUnauthenticated)
)

// Other sentinels.
var (
	// ErrUnavailable: whether the credentials are good cannot be said now,
	// because the issuer's keys cannot be had. It is no 401: the client's token
	// may be perfect, and a new one would not help.
	ErrUnavailable = fmt.Errorf("the issuer's keys %w", belay.ErrUnreachable)

	// ErrForbidden: it is known who asks, and that they may not. It wraps
	// [belay.ErrForbidden].
	ErrForbidden = fmt.Errorf("%w: a permission is missing", belay.ErrForbidden)

	// ErrTooManyRequests: the principal's rate is used up; see [Limited].
	ErrTooManyRequests = errors.New("too many requests")

	// ErrConfig: a setting that cannot be; from [New] only.
	ErrConfig = fmt.Errorf("authentication: %w", belay.ErrBadRequest)
)

// Limited is the error of a request over its principal's rate. It wraps
// [ErrTooManyRequests].
type Limited struct {
	After time.Duration // until the next one would pass
}

// Error implements error.
func (l *Limited) Error() string {
	return fmt.Sprintf("%v: try again in %v", ErrTooManyRequests, l.After.Round(time.Millisecond))
}

// Unwrap is [ErrTooManyRequests].
func (l *Limited) Unwrap() error { return ErrTooManyRequests }

// Answer is what a caller is told about an error of this package. It never
// holds anything that came from the request.
type Answer struct {
	Status       int    // the HTTP status
	Detail       string // one sentence, the orchestrate sheet's own where it has one
	Authenticate string // the WWW-Authenticate header; "" for none
	RetryAfter   string // the Retry-After header, whole seconds; "" for none
}

// Header writes the answer's headers, if any.
func (a Answer) Header(h http.Header) {
	if a.Authenticate != "" {
		h.Set("WWW-Authenticate", a.Authenticate)
	}
	if a.RetryAfter != "" {
		h.Set("Retry-After", a.RetryAfter)
	}
}

// retryKeys is what a client waits when an issuer's keys cannot be had.
const retryKeys = 10 * time.Second

// Describe is the one place where errors of this package become an HTTP
// answer (ORC-33, ORC-34; RFC 6750 section 3). Which check of a token failed is
// said only where an honest client can act on it: that it has expired. An
// error of somebody else is 500 and says nothing.
func Describe(err error) Answer {
	const bearer = `Bearer realm="belay"` //nolint:gosec // a challenge, not an answer to one
	var limited *Limited
	switch {
	case errors.Is(err, ErrCookie):
		return Answer{Status: http.StatusUnauthorized, Detail: "Cookie authentication not allowed for API requests. Use Authorization header.", Authenticate: bearer}
	case errors.Is(err, ErrTokenInQuery):
		return Answer{
			Status: http.StatusUnauthorized, Detail: "A token in the query string is not accepted. Use Authorization header.",
			Authenticate: bearer + `, error="invalid_request", error_description="token in the query string"`,
		}
	case errors.Is(err, ErrNoCredentials):
		// RFC 6750 3.1: no error code for a request that did not try.
		return Answer{Status: http.StatusUnauthorized, Detail: "Authorization token required", Authenticate: bearer}
	case errors.Is(err, ErrExpired):
		return Answer{
			Status: http.StatusUnauthorized, Detail: "Invalid authentication credentials",
			Authenticate: bearer + `, error="invalid_token", error_description="the token has expired"`,
		}
	case errors.Is(err, ErrUnauthenticated):
		return Answer{Status: http.StatusUnauthorized, Detail: "Invalid authentication credentials", Authenticate: bearer + `, error="invalid_token"`}
	case errors.As(err, &limited):
		return Answer{Status: http.StatusTooManyRequests, Detail: "Too many requests", RetryAfter: seconds(limited.After)}
	case errors.Is(err, ErrTooManyRequests):
		return Answer{Status: http.StatusTooManyRequests, Detail: "Too many requests", RetryAfter: "1"}
	case errors.Is(err, ErrUnavailable):
		return Answer{Status: http.StatusServiceUnavailable, Detail: "Authentication is unavailable", RetryAfter: seconds(retryKeys)}
	case errors.Is(err, belay.ErrForbidden):
		return Answer{Status: http.StatusForbidden, Detail: "Access denied"}
	default:
		return Answer{Status: http.StatusInternalServerError, Detail: "Internal error"}
	}
}

// seconds is a Retry-After value: whole seconds, never too early, at least one.
func seconds(d time.Duration) string {
	return strconv.FormatInt(max(1, int64(math.Ceil(d.Seconds()))), 10)
}
