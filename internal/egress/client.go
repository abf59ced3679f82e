package egress

import (
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
	return &http.Client{
		Timeout:       o.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport:     byScheme{sealed: p.transport(o, config, false), plain: p.transport(o, config, true)},
	}
}

// transport makes the connections of one kind. The address behind a name is looked
// at whenever one is made.
func (p Policy) transport(o ClientOptions, config *tls.Config, plain bool) *http.Transport {
	dialer := &net.Dialer{Timeout: o.Timeout, Control: func(_, address string, _ syscall.RawConn) error { return p.checkDial(address, plain) }}
	return &http.Transport{
		DialContext: dialer.DialContext, TLSHandshakeTimeout: o.Timeout, TLSClientConfig: config,
		MaxResponseHeaderBytes: maxHeader, DisableKeepAlives: o.Idle <= 0, IdleConnTimeout: o.Idle,
		MaxIdleConns: idleConns, MaxIdleConnsPerHost: idleConnsPer,
	}
}

// byScheme keeps requests that go out in the clear from the others, since their
// connections are looked at with another rule: what was looked at once holds for
// all requests on it.
type byScheme struct{ sealed, plain *http.Transport }

// RoundTrip implements [http.RoundTripper].
func (b byScheme) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme == "http" {
		return b.plain.RoundTrip(r)
	}
	return b.sealed.RoundTrip(r)
}

// CloseIdleConnections is what [http.Client.CloseIdleConnections] asks for.
func (b byScheme) CloseIdleConnections() {
	b.sealed.CloseIdleConnections()
	b.plain.CloseIdleConnections()
}
