package adopt

import (
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/tailscale/hujson"
)

// Upstream is what `belay serve` has to know about a remote server whose entry
// was pointed at it.
type Upstream struct {
	Name      string   `json:"name"` // as in /mcp/NAME
	URL       string   `json:"url"`
	Transport string   `json:"transport,omitempty"` // "sse" for the transport of 2024-11-05
	Headers   []string `json:"headers,omitempty"`   // their names; the values stay in the file
}

// address is how an entry names a remote server.
type address struct {
	member    *hujson.ObjectMember
	url       string
	transport string // http or sse
	headers   []header
	signIn    bool // it is said to need OAuth
}

type header struct{ name, value string }

// findAddress reads the remote server of an entry; nil if there is none.
func (d *document) findAddress(obj *hujson.Object, e *Editors) (*address, string, error) {
	for _, rule := range e.Remotes {
		m, err := d.member(obj, rule.URL)
		if err != nil {
			return nil, "", err
		}
		if m == nil || isNull(m.Value) {
			continue
		}
		u, ok := text(m.Value)
		if !ok {
			return nil, "its " + rule.URL + " is not a text", nil
		}
		a := &address{member: m, url: u, transport: rule.transportOf(u)}
		headers, err := d.member(obj, "headers")
		if err != nil {
			return nil, "", err
		}
		if headers != nil {
			if list, ok := headers.Value.Value.(*hujson.Object); ok {
				for i := range list.Members {
					v, _ := text(list.Members[i].Value)
					a.headers = append(a.headers, header{name(&list.Members[i]), v})
				}
			}
		}
		for i := range obj.Members {
			if slices.Contains(e.SignIn, name(&obj.Members[i])) && says(obj.Members[i].Value, nil) {
				a.signIn = true
			}
		}
		return a, "", nil
	}
	return nil, "", nil
}

// transportOf follows the habit of the 2024-11-05 transport to end in /sse.
func (r remote) transportOf(u string) string {
	if p, err := url.Parse(u); err == nil && strings.HasSuffix(strings.TrimSuffix(p.Path, "/"), "/sse") {
		return "sse"
	}
	return r.Transport
}

// served matches an address that was pointed at `belay serve`: the original is
// the fragment, which clients keep to themselves.
var served = regexp.MustCompile(`^https?://[^/?#]+/mcp/[^/?#]+(?:/sse)?#(https?://.*)$`)

// serveBlocked says why an entry is not to be served, or is empty.
func (a *address) serveBlocked(o *Options, named bool) string {
	u, err := url.Parse(a.url)
	switch {
	case strings.Contains(a.url, "$"):
		return "its address holds variables of the editor, which belay serve does not know"
	case err != nil, u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return "its address is not an http URL"
	case u.Fragment != "":
		return "its address has a fragment already"
	case strings.HasPrefix(a.url, o.serve()+"/"):
		return "it is served by Belay already"
	case a.signIn:
		return "it signs in by OAuth, which Belay does not do yet"
	case slices.ContainsFunc(a.headers, func(h header) bool { return strings.Contains(h.value, "$") }):
		return "its headers hold variables of the editor, which belay serve does not know"
	case len(a.headers) == 0 && !isLoopback(u.Hostname()) && !named:
		return "it has no headers and may sign in by OAuth, which Belay does not do yet (--only NAME does it all the same)"
	}
	return ""
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// serve points the entry at `belay serve`. The original stays in the fragment,
// as it is written.
func (d *document) serve(a *address, base, server string) ([]edit, *Upstream) {
	up := &Upstream{Name: pathName(server), URL: a.url}
	front := base + "/mcp/" + up.Name
	if a.transport == "sse" {
		front += "/sse"
		up.Transport = "sse"
	}
	for _, h := range a.headers {
		up.Headers = append(up.Headers, h.name)
	}
	v := a.member.Value
	written := d.raw(v)
	return []edit{{v.StartOffset, v.EndOffset, `"` + front + "#" + written[1:]}}, up
}

// unserve is the opposite; false when the address is not one of serve's.
func (d *document) unserve(a *address) ([]edit, bool) {
	if !served.MatchString(a.url) {
		return nil, false
	}
	v := a.member.Value
	_, original, ok := strings.Cut(d.raw(v), "#")
	if !ok {
		return nil, false // the # is written as an escape: not by us
	}
	return []edit{{v.StartOffset, v.EndOffset, `"` + original}}, true
}

// pathName makes a server's key one safe segment of a path.
func pathName(key string) string {
	s := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_', r == '.':
			return r
		}
		return '-'
	}, key)
	if s = strings.Trim(s, "-."); s == "" {
		return "server"
	}
	return s[:min(len(s), maxName)]
}
