package serve

import (
	"context"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/aggregate"
	"github.com/belayhq/belay/mcp/httpserver"
)

// joined is all servers as one, at /mcp: for clients that want one URL. What
// runs there runs in sessions of the servers themselves, under their policies.
type joined struct {
	backend *aggregate.Backend
	handler *httpserver.Handler
}

// JoinedPath is where all servers are reached as one.
const JoinedPath = "/mcp"

func newJoined(o *Options, members func() []aggregate.Member) *joined {
	log := o.Log.With("server", JoinedPath)
	b := aggregate.New(aggregate.Config{Members: members, Version: o.Version, PassCancels: o.PassCancels, Log: log})
	return &joined{b, httpserver.New(httpserver.Config{
		Backend: b, Path: JoinedPath, Identify: o.Identify,
		AllowedHosts: o.AllowedHosts, AllowedOrigins: o.AllowedOrigins, Log: log,
	})}
}

func (j *joined) close(ctx context.Context, c belay.Cancellation) error {
	if err := j.backend.Close(ctx, c); err != nil {
		return err
	}
	return j.handler.Close(ctx, c)
}

// list is the servers as they are now. It is cheap; nobody changes the list.
func (h *Hub) list() []aggregate.Member {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.members
}
