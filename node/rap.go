package node

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/egress"
	"github.com/belayhq/belay/internal/rapdoor"
	"github.com/belayhq/belay/mcp/httpserver"
	"github.com/belayhq/belay/rap"
	"github.com/belayhq/belay/rap/sigv4"
)

// RAPOptions say how servers are offered to runtimes of the Reactive Agent Protocol,
// each at /rap/NAME. Who calls there needs the permission tools.call, as at
// /mcp/NAME.
type RAPOptions struct {
	BaseURL   string                 // how runtimes reach this server, without a path; empty: as the Host of a request says
	Addresses egress.Policy          // of callback URLs
	SigV4     *sigv4.VerifierOptions // runtimes that sign, beside those in Auth; nil: none
}

// openRAP makes the door and mounts it.
func (s *Server) openRAP() error {
	o := s.o.RAP
	if o == nil {
		return nil
	}
	callers := rapCallers{s: s}
	if o.SigV4 != nil {
		v, err := sigv4.NewVerifier(*o.SigV4)
		if err != nil {
			return err
		}
		callers.keys = v
	}
	var err error
	s.rap, err = rapdoor.New(rapdoor.Options{
		Tree: s.tree, Authenticator: callers, Owner: owner,
		Servers: func(name string) (httpserver.Backend, bool) { return s.hub.Backend(name) },
		Relay:   func(name string) (rapdoor.Relay, bool) { return s.hub.Relay(name) },
		BaseURL: o.BaseURL, Private: o.Addresses.Private, Plain: o.Addresses.Plain, NoLoopback: o.Addresses.NoLoopback, Off: o.Addresses.Off,
		Version: s.o.Serve.Version, Log: s.log,
	})
	if err != nil {
		return err
	}
	s.hub.Handle(rapdoor.Prefix, s.rap)
	return nil
}

// CloseRAP ends the calls of runtimes and delivers what became of them, while the
// servers behind are still there. Nothing is taken any more. Without such a door it
// does nothing.
func (s *Server) CloseRAP(ctx context.Context, c belay.Cancellation) error {
	if s.rap == nil {
		return nil
	}
	return s.rap.Close(ctx, c)
}

// rapCallers finds out which runtime sent a request.
type rapCallers struct {
	s    *Server
	keys *sigv4.Verifier // nil: none sign
}

// insideMark parts a principal's name from the run inside whose process tree it
// speaks; names hold no such character. What speaks from there is a caller of its
// own: it reaches the calls that were made from there, and not its user's others
// (DESIGN 11, 10).
const insideMark = "\x1f"

// owner is the principal that a caller is.
func owner(caller string) string {
	name, _, _ := strings.Cut(caller, insideMark)
	return name
}

// Authenticate implements [rap.Authenticator].
func (c rapCallers) Authenticate(r *http.Request, body func() ([]byte, error)) (string, error) {
	name, err := "", rap.ErrNoCredentials
	if c.keys != nil {
		name, err = c.keys.Authenticate(r, body)
	}
	if errors.Is(err, rap.ErrNoCredentials) {
		var who httpserver.Identity
		if who, err = c.s.identify(r); err != nil {
			return "", turnedAway{err}
		}
		name = who.Principal
	}
	if err != nil {
		return "", err
	}
	// A runtime need not stay for the answer to a cancel, and is then as one that
	// hides: its cancel must not be lost for that.
	if l := c.s.linkOf(r); l != nil && len(l.inside) > 0 && l.inside[0] != somebody {
		name += insideMark + l.inside[0]
	}
	return name, nil
}

// Challenge implements [rap.Authenticator].
func (c rapCallers) Challenge() string {
	if c.keys != nil {
		return c.keys.Challenge() + `, Bearer realm="belay"`
	}
	return `Bearer realm="belay"`
}

// turnedAway is a refusal of identify in the words of package rap.
type turnedAway struct{ error }

// Unwrap is the reason.
func (t turnedAway) Unwrap() error { return t.error }

// Refusal is the answer.
func (t turnedAway) Refusal() (int, http.Header) {
	if r, ok := errors.AsType[refusal](t.error); ok {
		status, header, _ := r.Refusal()
		return status, header
	}
	return http.StatusUnauthorized, http.Header{"Www-Authenticate": {`Bearer realm="belay"`}}
}
