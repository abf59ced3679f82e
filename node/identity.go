package node

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/belayhq/belay/admin"
	"github.com/belayhq/belay/auth"
	"github.com/belayhq/belay/mcp/httpserver"
)

// SetAuth replaces who there is, from the next request on. Event streams of
// whoever is not known any more, or may see something else now, end. With an error, which wraps [auth.ErrConfig], nothing is changed.
func (s *Server) SetAuth(c auth.Config) error {
	c.LocalToken, c.Socket, c.Log = s.local, true, s.log
	a, err := auth.New(c)
	if err != nil {
		return err
	}
	s.open.Store(!c.Configured())
	if old := s.who.Swap(a); old != nil {
		old.Close()
	}
	if s.api != nil {
		s.api.Renew()
	}
	return nil
}

// principal says who sent a request, confined if it speaks from inside a run.
func (s *Server) principal(r *http.Request) (auth.Principal, error) {
	p, err := s.who.Load().Authenticate(r)
	if err != nil {
		return p, err
	}
	if p.Method == auth.ByLocalToken && !overLoopback(r) {
		return auth.Principal{}, fmt.Errorf("%w: this machine's own token came from %s; it is good over loopback only", auth.ErrUnknownToken, r.RemoteAddr)
	}
	if !personal(p) {
		return p, nil // nothing is taken from it by finding out where it sits
	}
	l := s.linkOf(r)
	switch {
	case l == nil:
		return p, nil
	case l.foreign && p.Method == auth.ByLocalToken:
		return p.Confined(stranger), nil // nobody but this user is given that token
	}
	return p.Confined(l.inside...), nil
}

// personal reports whether the principal may do anything that a process inside
// a run's tree may not: all but reading. Whoever calls tools or registers runs
// has runs, which the JSON-RPC doors stop without any other permission.
func personal(p auth.Principal) bool {
	return slices.ContainsFunc(p.Permissions(), func(may auth.Permission) bool {
		return may != auth.RunsRead && may != auth.RunsReadOwn
	})
}

// identify is who calls an MCP endpoint. Where nobody is configured, everybody
// who reaches it is local: that is this machine's users, for the hub listens on
// loopback only then.
func (s *Server) identify(r *http.Request) (httpserver.Identity, error) {
	if s.open.Load() {
		// The listener refuses this, too; it was bound when somebody was configured.
		if !overLoopback(r) {
			return httpserver.Identity{}, refusal{fmt.Errorf("%w: nobody is configured, and the request came from %s", auth.ErrNoCredentials, r.RemoteAddr)}
		}
		return httpserver.Identity{Principal: auth.LocalName, Unproven: true}, nil
	}
	p, err := s.who.Load().Authenticate(r)
	if err == nil && p.Method == auth.ByLocalToken && !overLoopback(r) {
		err = auth.ErrUnknownToken
	}
	if err == nil {
		err = p.Need(auth.ToolsCall)
	}
	if err != nil {
		s.countRefusal(err)
		return httpserver.Identity{}, refusal{err}
	}
	return httpserver.Identity{Principal: p.Name, Expires: p.Expires}, nil
}

// refusal is an error of package auth with the answer that it gets.
type refusal struct{ error }

// Unwrap is the reason.
func (r refusal) Unwrap() error { return r.error }

// Refusal implements [httpserver.Refuser].
func (r refusal) Refusal() (int, http.Header, string) {
	a := auth.Describe(r.error)
	h := http.Header{}
	a.Header(h)
	return a.Status, h, a.Detail
}

// authorizer tells the admin API who asks.
type authorizer struct{ s *Server }

// Principal implements [admin.Authorizer].
func (a authorizer) Principal(r *http.Request) (admin.Principal, error) {
	p, err := a.s.principal(r)
	switch {
	case err == nil:
		return caller{p}, nil
	case errors.Is(err, auth.ErrNoCredentials), errors.Is(err, auth.ErrCookie):
		return nil, fmt.Errorf("%w: %w", admin.ErrNoCredentials, err)
	case errors.Is(err, auth.ErrUnavailable):
		return nil, fmt.Errorf("%w: %w", admin.ErrAuthUnavailable, err)
	default:
		return nil, fmt.Errorf("%w: %w", admin.ErrBadCredentials, err)
	}
}

// caller is a principal in the admin API's words.
type caller struct{ p auth.Principal }

// Name implements [admin.Principal].
func (c caller) Name() string { return c.p.Name }

// May implements [admin.Principal].
func (c caller) May(permission string) bool { return c.p.May(auth.Permission(permission)) }

// Expires is when the credentials end; zero: never. Streams end then.
func (c caller) Expires() time.Time { return c.p.Expires }

// Inside is the runs from within which the principal speaks, innermost first.
func (c caller) Inside() []string { return c.p.Inside() }
