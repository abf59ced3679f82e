package bridge

import (
	"context"
	"fmt"

	"github.com/belayhq/belay"
)

// Bridge stands between one editor and one agent. Make it with [New].
type Bridge struct {
	o Options
}

// New returns a bridge that relays nothing yet. It fails, with an error that wraps
// [ErrSetting], if the options make no sense.
func New(o Options) (*Bridge, error) {
	var err error
	if o.Settings, err = o.Settings.withDefaults(); err != nil {
		return nil, fmt.Errorf("bridge: %w", err)
	}
	if o.Tree == nil {
		return nil, fmt.Errorf("bridge: %w: there is no tree for the runs", ErrSetting)
	}
	return &Bridge{o: o}, nil
}

// Serve relays between the two peers until one of them is gone or ctx ends, which
// is a shutdown; then it stops what runs, ends the agent with its tree, and
// returns when nothing of this is left to do. It can be called once.
func (b *Bridge) Serve(ctx context.Context, editor, agent Pipes) (Result, error) {
	return Result{}, fmt.Errorf("bridge: %w", belay.ErrUnsupported)
}
