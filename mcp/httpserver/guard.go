package httpserver

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// ErrForeign says that a request looks like one that a foreign web page made a
// browser send.
var ErrForeign = errors.New("not served")

// Guard refuses what a foreign web page could make a browser send: a page that
// has re-bound its name to this machine (Host), or one that just posts
// (Origin). See [Config] for the lists. It applies to every request (MCP-43,
// MCP-G37, DESIGN section 8), and is no authentication: programs send what they
// like.
//
// Where a page can re-bind its name, which is over loopback in the clear, Host
// has to be a name of this machine. Elsewhere everybody is authenticated, TLS
// knows the name, or no browser gets there (unix sockets): any Host is fine
// there unless some are listed, and a page of that very Host may ask.
type Guard struct {
	AllowedHosts, AllowedOrigins []string
}

// Check returns nil, or why the request is not served; that matches
// [ErrForeign], and is answered with 403.
func (g *Guard) Check(r *http.Request) error {
	home, rule := cameBy(r)
	if !g.hostAllowed(r.Host, home, rule) {
		return fmt.Errorf("%w: Host %.100q is not one of this server; add it to the allowed hosts if it is yours", ErrForeign, r.Host)
	}
	origins := r.Header["Origin"]
	if len(origins) == 0 {
		return nil
	}
	if len(origins) > 1 || !g.originAllowed(origins[0], r, home) {
		return fmt.Errorf("%w: Origin %.100q is not allowed; add it to the allowed origins if it is yours", ErrForeign, origins[0])
	}
	return nil
}

func (h *Handler) guard(r *http.Request) *failure {
	g := Guard{h.cfg.AllowedHosts, h.cfg.AllowedOrigins}
	if err := g.Check(r); err != nil {
		return fail(http.StatusForbidden, codeInvalidRequest, noID, "%v", err)
	}
	return nil
}

// hostRule says what is asked of the Host header.
type hostRule uint8

const (
	hostOurs   hostRule = iota // a name of this machine, or a listed one
	hostListed                 // a listed one, if there are any
	hostAny
)

// cameBy says by which way a request came: home is over the loopback
// interface, so that nobody but this machine can have meant it.
func cameBy(r *http.Request) (home bool, rule hostRule) {
	switch a := r.Context().Value(http.LocalAddrContextKey).(type) {
	case *net.TCPAddr:
		home = a.IP.IsLoopback()
	case *net.UnixAddr:
		return false, hostAny
	}
	if home && r.TLS == nil {
		return true, hostOurs
	}
	return home, hostListed
}

func (g *Guard) hostAllowed(host string, home bool, rule hostRule) bool {
	if rule == hostAny || home && loopbackName(host) {
		return true
	}
	if len(g.AllowedHosts) == 0 {
		return rule != hostOurs
	}
	return listed(g.AllowedHosts, host)
}

func (g *Guard) originAllowed(origin string, r *http.Request, home bool) bool {
	for _, allowed := range g.AllowedOrigins {
		if allowed == "*" || strings.EqualFold(allowed, origin) {
			return true
		}
	}
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return false // also "null", which sandboxed pages send
	}
	if home && loopbackName(u.Host) {
		return true
	}
	// A page of a host that is ours by name; "*" in that list names nobody.
	for _, allowed := range g.AllowedHosts {
		if allowed != "*" && listed([]string{allowed}, u.Host) {
			return true
		}
	}
	return (!home || r.TLS != nil) && sameOrigin(u, r.Host, r.TLS)
}

// sameOrigin reports whether a page comes from the very host that it asks.
func sameOrigin(u *url.URL, host string, over *tls.ConnectionState) bool {
	if over != nil && u.Scheme != "https" {
		return false
	}
	port := ":80"
	if u.Scheme == "https" {
		port = ":443"
	}
	return host != "" && strings.EqualFold(strings.TrimSuffix(u.Host, port), strings.TrimSuffix(host, port))
}

// listed reports whether host is in the list: with its port, or by name.
func listed(list []string, host string) bool {
	name, _ := splitHost(host)
	for _, allowed := range list {
		if allowed == "*" || strings.EqualFold(allowed, host) {
			return true
		}
		if listed, port := splitHost(allowed); port == "" && strings.EqualFold(listed, name) {
			return true
		}
	}
	return false
}

func loopbackName(host string) bool {
	if host == "" {
		return false
	}
	name, _ := splitHost(host)
	if strings.EqualFold(name, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(name)
	return err == nil && ip.Unmap().IsLoopback()
}

// splitHost parts a host from its port; brackets of an IPv6 address go.
func splitHost(host string) (name, port string) {
	if name, port, err := net.SplitHostPort(host); err == nil {
		return name, port
	}
	return strings.Trim(host, "[]"), ""
}
