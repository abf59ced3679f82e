package cli

import (
	"context"
	"sync/atomic"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/acp/agent"
	"github.com/belayhq/belay/acp/bridge"
)

// offspring is the agent's process tree as the bridge wants it: the two know nothing
// of each other.
type offspring struct{ *agent.Agent }

var (
	_ bridge.Offspring = offspring{}
	_ bridge.Brood     = (*agent.Brood)(nil)
	_ bridge.Brood     = (*agent.Litter)(nil)
	_ bridge.Agent     = whole{}
)

// Turn implements bridge.Offspring.
func (o offspring) Turn(turn *belay.Run) bridge.Brood { return o.Agent.Turn(turn) }

// Session implements bridge.Offspring.
func (o offspring) Session(session *belay.Run) bridge.Brood { return o.Agent.Session(session) }

// whole is the agent with all that it has started.
type whole struct {
	*agent.Agent
	forced *atomic.Bool // force was used while the agent's own process lived
}

// Terminate implements bridge.Agent.
func (w whole) Terminate(ctx context.Context) (*belay.Evidence, error) {
	w.note()
	return w.Agent.Terminate(ctx)
}

// Kill implements bridge.Agent.
func (w whole) Kill(ctx context.Context) (*belay.Evidence, error) {
	w.note()
	return w.Agent.Kill(ctx)
}

func (w whole) note() {
	select {
	case <-w.Done():
	default:
		w.forced.Store(true)
	}
}

// Exit implements bridge.Agent: it does not wait.
func (w whole) Exit() bridge.Exit {
	select {
	case <-w.Done():
	default:
		return bridge.Exit{}
	}
	exit := w.Agent.Exit()
	e := bridge.Exit{Ended: true, Code: exit.Code}
	if exit.Signal != 0 {
		e.Signal = exit.Signal.String()
	}
	return e
}
