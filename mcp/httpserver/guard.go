package httpserver

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// guard refuses what a foreign web page could make a browser send: a page that
// has re-bound its name to this machine (Host), or one that just posts
// (Origin). It applies to every request (MCP-43, MCP-G37).
func (h *Handler) guard(r *http.Request) *failure {
	home := overLoopback(r)
	if !h.hostAllowed(r.Host, home) {
		return fail(http.StatusForbidden, codeInvalidRequest, noID, "Host %.100q is not served; add it to the allowed hosts if it is yours", r.Host)
	}
	origins := r.Header["Origin"]
	if len(origins) == 0 {
		return nil
	}
	if len(origins) > 1 || !h.originAllowed(origins[0], home) {
		return fail(http.StatusForbidden, codeInvalidRequest, noID, "Origin %.100q is not allowed; add it to the allowed origins if it is yours", origins[0])
	}
	return nil
}

// overLoopback reports whether the connection came in over the loopback
// interface, so that nobody but this machine can have meant it.
func overLoopback(r *http.Request) bool {
	tcp, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

func (h *Handler) hostAllowed(host string, home bool) bool {
	if home && loopbackName(host) {
		return true
	}
	if len(h.cfg.AllowedHosts) == 0 {
		return !home
	}
	return hostListed(h.cfg.AllowedHosts, host)
}

func (h *Handler) originAllowed(origin string, home bool) bool {
	for _, allowed := range h.cfg.AllowedOrigins {
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
	for _, allowed := range h.cfg.AllowedHosts {
		if allowed != "*" && hostListed([]string{allowed}, u.Host) {
			return true
		}
	}
	return false
}

// hostListed reports whether host is in the list: with its port, or by name.
func hostListed(list []string, host string) bool {
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
