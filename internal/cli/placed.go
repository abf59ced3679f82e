package cli

import (
	"context"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/gateway"
	"github.com/belayhq/belay/local"
)

// placed asks the process above below which of its runs a call of a server
// hangs: the turn of an editor's session that runs at that moment, say.
type placed struct {
	parent *local.Parent
	server string
}

var _ gateway.Placer = placed{}

// placer is nil where there is nobody to ask.
func (h *host) placer(server string) gateway.Placer {
	if !h.parent.Places() {
		return nil
	}
	return placed{h.parent, server}
}

// Place implements [gateway.Placer].
func (p placed) Place(ctx context.Context, tool, toolUse string) belay.RunID {
	return p.parent.Place(ctx, local.Asked{Server: p.server, Tool: tool, ToolUse: toolUse})
}

// StopOf implements [gateway.Placer].
func (p placed) StopOf(run belay.RunID) *belay.Cancellation { return p.parent.StopOf(run) }
