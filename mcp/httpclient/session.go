package httpclient

import (
	"errors"
	"fmt"
	"maps"
	"net/http"

	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
)

// The protocol's headers, in the form in which http.Header keeps them.
const (
	headerSession = "Mcp-Session-Id"
	headerVersion = "Mcp-Protocol-Version"
	headerMethod  = "Mcp-Method"
	headerName    = "Mcp-Name"
	headerLastID  = "Last-Event-Id"
	headerParam   = "Mcp-Param-"
)

const (
	typeJSON   = "application/json"
	typeEvents = "text/event-stream"
)

// maxSessionID bounds the id that a server gives to a session.
const maxSessionID = 1024

// session is what is known of the legacy session. Conn.mu guards it.
type session struct {
	kind    Transport // Auto until it is known
	id      string    // "" without one
	version string    // negotiated; "" before the handshake

	// base goes along with every POST, header with those of the session. Neither
	// is ever changed, since requests in flight use them.
	base, header http.Header

	ready     chan struct{} // closed when notifications/initialized has arrived and the session's own stream was answered; nil: it was not sent
	listening bool          // a goroutine looks after the session's own stream
}

func (s *session) reset(static http.Header) {
	s.id, s.version = "", ""
	s.base = make(http.Header, len(static)+2)
	for name, values := range static {
		s.base[http.CanonicalHeaderKey(name)] = values
	}
	s.base["Content-Type"] = []string{typeJSON}
	s.base["Accept"] = []string{typeJSON + ", " + typeEvents}
	s.header = s.base
}

// openedLocked notes what the answer to initialize says.
func (s *session) openedLocked(id, version string) {
	s.id, s.version = id, version
	s.header = maps.Clone(s.base)
	if id != "" {
		s.header[headerSession] = []string{id}
	}
	if version != "" {
		s.header[headerVersion] = []string{version}
	}
	if s.kind == Auto {
		s.kind = Streamable
	}
}

// opened notes the session that an answer to initialize begins (MCP-37, MCP-39).
func (c *Conn) opened(m *mcp.Message, id string) {
	var version string
	if at, ok, _ := jsonrpc.Member(m.Frame, m.Result, "protocolVersion"); ok {
		if text, err := jsonrpc.ReadString(m.Frame, at, 64); err == nil && validValue(text) {
			version = text
		}
	}
	if len(id) > maxSessionID || !validValue(id) {
		c.cfg.Log.Warn("the server gave its session an id that cannot be sent back", "bytes", len(id))
		id = ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch was := c.session.id; {
	case was == "" || was == id:
	case id == "":
		id = was // it was asked within that session
	default:
		c.cfg.Log.Warn("the server began another session within the session; the first is left to it")
	}
	c.session.openedLocked(id, version)
}

// callHeader is the header of a request's POST. A second initialize goes to the
// session as everything does: a server that took it for a stranger's would begin
// another one, and no cancel would reach what is in flight in the first.
func (c *Conn) callHeader(k *call) http.Header {
	c.mu.Lock()
	h := c.session.header
	if k.modern || k.method == mcp.MethodInitialize && c.session.id == "" {
		h = c.session.base
	}
	c.mu.Unlock()
	return with(h, k.extra)
}

// with joins headers. Requests share what has no extras, since HTTP clients must
// not change it.
func with(h, extra http.Header) http.Header {
	if len(extra) == 0 {
		return h
	}
	h = maps.Clone(h)
	maps.Copy(h, extra)
	return h
}

// sessionHeader is the header of a GET or DELETE, nil if there is no session id.
func (c *Conn) sessionHeader() http.Header {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session.id == "" {
		return nil
	}
	return withoutBody(c.session.header)
}

func (c *Conn) streamHeader(last string) http.Header {
	c.mu.Lock()
	h := withoutBody(c.session.header)
	c.mu.Unlock()
	h["Accept"] = []string{typeEvents}
	h["Cache-Control"] = []string{"no-cache"}
	if last != "" {
		h[headerLastID] = []string{last}
	}
	return h
}

func withoutBody(h http.Header) http.Header {
	h = maps.Clone(h)
	delete(h, "Content-Type")
	return h
}

// route sends a request where the session's transport wants it, and finds out
// which one that is.
func (c *Conn) route(k *call) error {
	c.mu.Lock()
	kind := c.session.kind
	c.mu.Unlock()
	if kind == SSE {
		return c.routeShared(k)
	}
	resp, err := k.post(c.callHeader(k), c.url) //nolint:bodyclose // answer closes it
	if err != nil {
		return err
	}
	err = k.answer(resp)
	if kind != Auto || k.method != mcp.MethodInitialize {
		return err
	}
	var status *StatusError
	if !errors.As(err, &status) || status.Status != http.StatusBadRequest && status.Status != http.StatusNotFound && status.Status != http.StatusMethodNotAllowed {
		return err
	}
	if older := c.routeShared(k); older != nil {
		return fmt.Errorf("%w (nor is it a server of 2024-11-05: %w)", err, older)
	}
	return nil
}

// expired reports whether an answer says that the session is over (MCP-37).
func (c *Conn) expired(header http.Header, status int) bool {
	return status == http.StatusNotFound && len(header[headerSession]) > 0
}
