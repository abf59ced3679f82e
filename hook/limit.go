package hook

import "context"

// How many actions run at once in this process. Checks get fewer, so that
// checks that hang leave room for a kill.
const (
	maxRunning = 64
	maxChecks  = 48
)

var (
	running = make(chan struct{}, maxRunning)
	checks  = make(chan struct{}, maxChecks)
)

// enter waits for a place and returns what gives it back.
func enter(ctx context.Context, s Step) (leave func(), err error) {
	if s != Alive {
		return take(ctx, running)
	}
	free, err := take(ctx, checks)
	if err != nil {
		return nil, err
	}
	done, err := take(ctx, running)
	if err != nil {
		free()
		return nil, err
	}
	return func() { done(); free() }, nil
}

func take(ctx context.Context, places chan struct{}) (func(), error) {
	select {
	case places <- struct{}{}:
		return func() { <-places }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
