package httpclient

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
)

// Transport says which of the HTTP transports a server speaks.
type Transport uint8

// The transports.
const (
	// Auto is Streamable HTTP; when the POST of initialize gets 400, 404 or 405
	// without a JSON-RPC message, HTTP+SSE is tried.
	Auto Transport = iota
	// Streamable is Streamable HTTP, from 2025-03-26 on, in both eras.
	Streamable
	// SSE is HTTP+SSE of 2024-11-05.
	SSE
)

// String names the transport as in configuration files.
func (t Transport) String() string {
	switch t {
	case Streamable:
		return "streamable"
	case SSE:
		return "sse"
	default:
		return "auto"
	}
}

// Config says how a server is reached. Zero values mean defaults.
type Config struct {
	// URL is the server's endpoint, http or https. Required.
	URL string
	// Header goes along with every HTTP request, Authorization for example. It
	// cannot replace what the protocol sets.
	Header http.Header
	// Transport is what the server speaks; the default finds out.
	Transport Transport
	// Client makes the HTTP requests; nil: one that all connections share, with
	// many idle connections per host and keep-alives. It must not follow
	// redirects and must take 2,000 requests to one host at once.
	Client http.RoundTripper
	// MaxMessage bounds a message in bytes (MCP-G3); 0: 16 MiB.
	MaxMessage int
	// MaxInFlight bounds the requests in flight; 0: 65,536.
	MaxInFlight int
	// AnswerWait is how long the answer to a notification is waited for before
	// the next one goes; 0: 10 s. It holds up no request but those behind
	// notifications/initialized.
	AnswerWait time.Duration
	// Log takes what has no other place to go; nil: nothing is logged.
	Log *slog.Logger
}

// Receiver takes what the server says. Its methods are called from several
// goroutines at once, must not wait for the network, and must not call
// [Conn.Close] or [Conn.Cancel]; [Conn.Send] and [Conn.Forget] may be called.
type Receiver interface {
	// Message is one message. m and its frame are valid during the call only.
	//
	// about is our id of the request on whose stream a request or notification of
	// the server came; the zero ID for the session's own stream. For a response it
	// is always the id of the request that is answered, also where the server
	// could not say it (id null). status is the HTTP status that came with it.
	Message(m *mcp.Message, about jsonrpc.ID, status int)

	// Lost says that a request will get no answer, and why; see the errors of this
	// package. One that matches ErrUnreachable never reached the server.
	Lost(id jsonrpc.ID, err error)

	// Over says that the session has ended and why; nothing goes on. It is called
	// at most once, after Lost was called for everything in flight, and not on
	// Close.
	Over(err error)
}

// withDefaults checks the config and fills it in.
func (cfg Config) withDefaults() (Config, *url.URL, error) {
	u, err := url.Parse(cfg.URL)
	switch {
	case err != nil:
		return cfg, nil, fmt.Errorf("%w: URL %q: %w", ErrConfig, withoutSecrets(cfg.URL), urlError(err))
	case u.Scheme != "http" && u.Scheme != "https":
		return cfg, nil, fmt.Errorf("%w: URL %q must begin with http:// or https://", ErrConfig, withoutSecrets(cfg.URL))
	case u.Host == "":
		return cfg, nil, fmt.Errorf("%w: URL %q names no host", ErrConfig, withoutSecrets(cfg.URL))
	case u.User != nil:
		return cfg, nil, fmt.Errorf("%w: the URL of %s has a user name in it; put it into a header Authorization", ErrConfig, u.Host)
	case cfg.Transport > SSE:
		return cfg, nil, fmt.Errorf("%w: transport %d is unknown", ErrConfig, cfg.Transport)
	}
	for name, values := range cfg.Header {
		for _, v := range values {
			if !validToken(name) || !validValue(v) {
				return cfg, nil, fmt.Errorf("%w: header %q cannot be sent: it has characters that are not allowed", ErrConfig, name)
			}
		}
	}
	u.Fragment = ""
	if cfg.Client == nil {
		cfg.Client = shared()
	}
	if cfg.MaxMessage <= 0 {
		cfg.MaxMessage = jsonrpc.DefaultMaxLine
	}
	if cfg.MaxInFlight <= 0 {
		cfg.MaxInFlight = jsonrpc.DefaultMaxInFlight
	}
	if cfg.AnswerWait <= 0 {
		cfg.AnswerWait = 10 * time.Second
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return cfg, u, nil
}

// NewTransport returns an HTTP client that is made for this package: thousands
// of requests to one host at once without one waiting for another, connections
// made within 10 s, dead ones noticed within a minute, nothing decompressed.
func NewTransport() *http.Transport {
	dialer := &net.Dialer{
		Timeout:         10 * time.Second,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 10 * time.Second, Count: 4},
	}
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return jsonrpc.Quick(c), nil
		},
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    10 * time.Second,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: 20 * time.Second, PingTimeout: 20 * time.Second},
		MaxIdleConns:           8192,
		MaxIdleConnsPerHost:    4096,
		IdleConnTimeout:        30 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
		DisableCompression:     true, // a stream must not wait in a decompressor
		ReadBufferSize:         2 << 10,
		WriteBufferSize:        2 << 10,
	}
}

var shared = sync.OnceValue(NewTransport)

// CloseIdleConnections closes the idle connections of the client that all
// connections share by default.
func CloseIdleConnections() { shared().CloseIdleConnections() }

// validToken reports whether s can be the name of a header.
func validToken(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || strings.IndexByte(`()<>@,;:\"/[]?={}`, c) >= 0 {
			return false
		}
	}
	return s != ""
}

// validValue reports whether s can be the value of a header.
func validValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}
