package egress

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"syscall"
	"time"
)

// ClientOptions are the settings of a Client; zero values mean their defaults.
type ClientOptions struct {
	Timeout time.Duration // for a request with its answer; 0: 10 s
	TLS     *tls.Config   // roots and client certificates; nil: the system's and none
	Idle    time.Duration // how long a connection waits for its next request; 0: none waits
}

const (
	defaultTimeout = 10 * time.Second
	maxHeader      = 16 << 10 // of an answer
	idleConns      = 256      // in all; they may all lead to one address: the callbacks of one runtime do
	idleConnsPer   = 256
)

type plainKey struct{}

// Client returns a client for addresses that the policy allows. It is to be ended
// with CloseIdleConnections where connections wait.
func (p Policy) Client(o ClientOptions) *http.Client {
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	config := o.TLS.Clone()
	if config == nil {
		config = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	config.MinVersion = max(config.MinVersion, tls.VersionTLS12)
	dialer := &net.Dialer{Timeout: o.Timeout, ControlContext: p.control}
	return &http.Client{
		Timeout:       o.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: marking{&http.Transport{
			DialContext: dialer.DialContext, TLSHandshakeTimeout: o.Timeout, TLSClientConfig: config,
			MaxResponseHeaderBytes: maxHeader, DisableKeepAlives: o.Idle <= 0, IdleConnTimeout: o.Idle,
			MaxIdleConns: idleConns, MaxIdleConnsPerHost: idleConnsPer,
		}},
	}
}

// control looks at the address behind a name when a connection is made.
func (p Policy) control(ctx context.Context, _, address string, _ syscall.RawConn) error {
	plain, _ := ctx.Value(plainKey{}).(bool)
	return p.checkDial(address, plain)
}

// marking tells the dialer whether a request goes out in the clear. Connections of
// the two kinds are never shared, so that what was looked at once holds for all
// requests on it.
type marking struct{ *http.Transport }

// RoundTrip implements [http.RoundTripper].
func (m marking) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme == "http" {
		r = r.WithContext(context.WithValue(r.Context(), plainKey{}, true))
	}
	return m.Transport.RoundTrip(r)
}
