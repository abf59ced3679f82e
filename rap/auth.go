package rap

import "net/http"

// Authenticator says who sent a request to a tool server. The same one guards
// invocations, cancels and closes (RAP-32, RAP-38). Safe for concurrent use.
type Authenticator interface {
	// Authenticate returns the caller's name: equal for two requests exactly when
	// they come from the same caller, since calls are keyed by it. body returns the
	// whole body, which only schemes that sign it need; it may be called once, and
	// its error is to be returned. An error that wraps [ErrUnauthenticated] is
	// answered with 401, one that wraps belay.ErrForbidden with 403.
	Authenticate(r *http.Request, body func() ([]byte, error)) (caller string, err error)

	// Challenge is the WWW-Authenticate header of a 401.
	Challenge() string
}

// Signer adds to a request what proves who sends it. Safe for concurrent use.
type Signer interface {
	// Sign adds headers to r, whose body is body. It is the last thing that touches
	// the request before it is sent.
	Sign(r *http.Request, body []byte) error
}
