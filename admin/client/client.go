package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/belayhq/belay"
)

// Options say which server, and who asks. Server is required; the zero value of
// any other field means what its comment says.
type Options struct {
	// Server is the address: http://host:port, https://host, either with a path
	// under which the server is mounted, or unix:/path for a unix socket.
	Server string

	// Token is the bearer token; empty: none is sent, as with a client
	// certificate or on a unix socket.
	Token string

	// TokenSource gives the token instead, for each request, so that one that
	// expires can be renewed. It is called from many goroutines at once.
	TokenSource func(context.Context) (string, error)

	// TLS holds the client's certificate and whom to trust. Nil: the system's
	// roots and no certificate. Not used with HTTP.
	TLS *tls.Config

	// HTTP carries the requests instead of a client of our own; it is copied.
	// It must have no Timeout, which would end event streams and waits; its own
	// rules for redirects are not used. Not allowed with a unix socket.
	HTTP *http.Client

	UserAgent string // default "belay-client"
}

// Client is one server as one principal. It implements [belay.Control]. Make it
// with [New]. Safe for concurrent use; it holds no goroutine but those of calls
// that run.
type Client struct {
	base  *url.URL
	http  *http.Client
	token func(context.Context) (string, error)
	agent string
	named string // the server as errors name it

	mu   sync.Mutex
	ears map[string]*ear // by owner, of whom a client has one unless its tokens change
}

// dialLimit bounds connecting, so that a machine that is off is said to be off
// and not waited for.
const dialLimit = 10 * time.Second

// New returns a client. Nothing is sent yet. Errors wrap [belay.ErrBadRequest].
func New(o Options) (*Client, error) {
	base, socket, err := parseServer(o.Server)
	if err != nil {
		return nil, err
	}
	c := &Client{base: base, token: o.TokenSource, agent: o.UserAgent, named: o.Server}
	if c.token == nil {
		c.token = func(context.Context) (string, error) { return o.Token, nil }
	}
	if c.agent == "" {
		c.agent = "belay-client"
	}
	switch {
	case o.HTTP != nil && socket != "":
		return nil, bad("HTTP cannot be given with the unix socket %s", o.Server)
	case o.HTTP != nil && o.HTTP.Timeout != 0:
		return nil, bad("HTTP has a Timeout of %s, which would end event streams; bound the contexts instead", o.HTTP.Timeout)
	case o.HTTP != nil:
		clone := *o.HTTP
		c.http = &clone
	default:
		c.http = &http.Client{Transport: newTransport(o.TLS, socket)}
	}
	c.http.CheckRedirect = stayHome
	c.http.Jar = nil // cookies are no credentials here
	return c, nil
}

// Server is the address as it was given.
func (c *Client) Server() string { return c.named }

// CloseIdle closes connections that nothing is using. The client can be used
// again afterwards.
func (c *Client) CloseIdle() { c.http.CloseIdleConnections() }

func bad(format string, args ...any) error {
	return fmt.Errorf("%w: %s", belay.ErrBadRequest, fmt.Sprintf(format, args...))
}

// parseServer returns where requests go; socket is empty for a network address.
func parseServer(text string) (base *url.URL, socket string, err error) {
	if path, ok := strings.CutPrefix(text, "unix:"); ok {
		path = strings.TrimPrefix(path, "//") // unix:///run/belay.sock is a common form
		if !filepath.IsAbs(path) {
			return nil, "", bad("server %q: a unix socket is named by an absolute path, such as unix:/run/belay.sock", text)
		}
		return &url.URL{Scheme: "http", Host: "localhost"}, path, nil
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		// Not the parser's words: they quote the text, and there may be a password in it.
		return nil, "", bad("the server's address must look like http://127.0.0.1:7474, https://belay.example.com or unix:/run/belay.sock")
	case u.User != nil:
		return nil, "", bad("the server's address %s holds a user or password; give a token instead", u.Redacted())
	case u.RawQuery != "" || u.Fragment != "":
		return nil, "", bad("the server's address %s://%s has a query or fragment", u.Scheme, u.Host)
	}
	u.Path = strings.TrimSuffix(u.Path, "/")
	u.RawPath = ""
	return u, "", nil
}

// newTransport works with a copy of the caller's configuration: net/http writes into
// its own, and another transport with the same one would then speak HTTP/2 by mistake.
func newTransport(config *tls.Config, socket string) *http.Transport {
	dialer := &net.Dialer{Timeout: dialLimit}
	t := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, TLSClientConfig: config.Clone(),
		TLSHandshakeTimeout: dialLimit, MaxResponseHeaderBytes: 64 << 10,
		MaxIdleConnsPerHost: 8, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true,
	}
	if socket != "" {
		t.Proxy = nil
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		}
	}
	return t
}

var errRedirect = errors.New("the server redirects to another address")

// stayHome follows redirects of reads within the server's own origin only:
// elsewhere the token would go to whoever the answer names, and a POST would
// become a GET that stops nothing.
func stayHome(r *http.Request, via []*http.Request) error {
	first := via[0]
	switch {
	case r.URL.Scheme != first.URL.Scheme, r.URL.Host != first.URL.Host, first.Method != http.MethodGet, len(via) > 3:
		return fmt.Errorf("%w (%s://%s); use that address if it is the right one", errRedirect, r.URL.Scheme, r.URL.Host)
	}
	return nil
}
