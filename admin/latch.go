package admin

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/belayhq/belay"
)

// Switch is a [Latch] in memory, for one process. Whoever dispatches calls asks
// Refuses before each. The zero Switch is lifted and ready to use.
type Switch struct {
	mu    sync.Mutex
	state LatchState
}

var _ Latch = (*Switch)(nil)

// Refuses returns nil, or an error that wraps [belay.ErrForbidden] and says who
// engaged the latch and why.
func (s *Switch) Refuses() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.state.Engaged {
		return nil
	}
	return fmt.Errorf("%w: all work was stopped by %s at %s (%s); new calls wait until the latch is lifted",
		belay.ErrForbidden, s.state.By, s.state.At.UTC().Format(time.RFC3339), s.state.Reason)
}

// State implements [Latch].
func (s *Switch) State(context.Context) (LatchState, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state, nil
}

// Engage implements [Latch].
func (s *Switch) Engage(_ context.Context, by, reason string) (LatchState, error) {
	return s.turn(true, by, reason), nil
}

// Lift implements [Latch].
func (s *Switch) Lift(_ context.Context, by, reason string) (LatchState, error) {
	return s.turn(false, by, reason), nil
}

func (s *Switch) turn(on bool, by, reason string) LatchState {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.Engaged != on {
		s.state = LatchState{Engaged: on, By: by, Reason: belay.CleanReason(reason), At: time.Now()}
	}
	return s.state
}
