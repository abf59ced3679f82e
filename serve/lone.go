package serve

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/belayhq/belay"
)

// Lone is one server at a path of the caller's choice, without a hub: for whoever
// keeps the path a secret, so that it may be listed nowhere. It is an
// http.Handler for that path and all below it, and checks Host and Origin itself.
// It must be ended with Close.
type Lone struct{ e *endpoint }

// NewLone serves a definition at path. Unlike a hub's its name may be any text.
// An error matches [ErrDefinition].
func NewLone(o Options, d Definition, path string) (*Lone, error) {
	ways := 0
	for _, is := range []bool{d.URL != "", d.Serve != nil, d.Scripts != nil} {
		if is {
			ways++
		}
	}
	if d.Name == "" || len(d.Command) > 0 || ways != 1 {
		return nil, fmt.Errorf("%w: a server at a path of its own needs a name, and one of a url, scripts and a function", ErrDefinition)
	}
	if !strings.HasPrefix(path, "/") || strings.HasSuffix(path, "/") || untidy(path) {
		return nil, fmt.Errorf("%w: %q cannot be the path of a server", ErrDefinition, path)
	}
	if err := d.checkHooks(); err != nil {
		return nil, fmt.Errorf("%w: server %q: %w", ErrDefinition, d.Name, err)
	}
	o = o.withDefaults()
	return &Lone{newEndpoint(&o, d, path)}, nil
}

// ServeHTTP serves one exchange.
func (l *Lone) ServeHTTP(w http.ResponseWriter, r *http.Request) { l.e.handler.ServeHTTP(w, r) }

// Close stops everything with c, cause shutdown unless it says another, and
// waits until it is over or ctx is. It may be called again.
func (l *Lone) Close(ctx context.Context, c belay.Cancellation) error {
	if c.Cause == "" {
		c.Cause = belay.CauseShutdown
	}
	return l.e.close(ctx, c)
}
