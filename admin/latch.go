package admin

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/belayhq/belay"
)

// Switch is a [Latch] for one process. Whoever dispatches calls asks Refuses
// before each. The zero Switch is lifted and ready to use; one that is to outlive
// the process has Keep, and is given its state again with Restore.
type Switch struct {
	// Keep writes a new state down before it is told to anybody; nil: nobody does.
	// An engaged latch refuses from before Keep is called, and goes on to if Keep
	// fails; one that cannot be written down is not lifted, since a restart would
	// engage it again behind everybody's back.
	Keep func(LatchState) error

	turning sync.Mutex // one turn at a time; before mu
	unkept  bool       // guarded by turning: engaged, and Keep has failed
	mu      sync.Mutex
	state   LatchState
}

var _ Latch = (*Switch)(nil)

// Refuses returns nil, or an error that wraps [belay.ErrForbidden] and says who
// engaged the latch and why.
func (s *Switch) Refuses() error {
	state := s.now()
	if !state.Engaged {
		return nil
	}
	why := ""
	if state.Reason != "" {
		why = ": " + state.Reason
	}
	return fmt.Errorf("%w: all work was stopped by %s at %s%s; no new call starts until the latch is lifted",
		belay.ErrForbidden, state.By, state.At.UTC().Format(time.RFC3339), why)
}

// State implements [Latch].
func (s *Switch) State(context.Context) (LatchState, error) { return s.now(), nil }

// Restore sets the state that an earlier process wrote down.
func (s *Switch) Restore(state LatchState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = state
}

// Engage implements [Latch]. One that is engaged and could not be written down is
// written down by the next.
func (s *Switch) Engage(_ context.Context, by, reason string) (LatchState, error) {
	s.turning.Lock()
	defer s.turning.Unlock()
	state, changed := s.turned(true, by, reason)
	if !changed && !s.unkept {
		return state, nil
	}
	s.Restore(state)
	err := s.keep(state)
	s.unkept = err != nil
	return state, err
}

// Lift implements [Latch].
func (s *Switch) Lift(_ context.Context, by, reason string) (LatchState, error) {
	s.turning.Lock()
	defer s.turning.Unlock()
	state, changed := s.turned(false, by, reason)
	if !changed {
		return state, nil
	}
	if err := s.keep(state); err != nil {
		return s.now(), err
	}
	s.unkept = false
	s.Restore(state)
	return state, nil
}

func (s *Switch) now() LatchState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// turned is the state after a turn; who turned it first stays.
func (s *Switch) turned(on bool, by, reason string) (state LatchState, changed bool) {
	if state = s.now(); state.Engaged == on {
		return state, false
	}
	return LatchState{Engaged: on, By: by, Reason: belay.CleanReason(reason), At: time.Now()}, true
}

func (s *Switch) keep(state LatchState) error {
	if s.Keep == nil {
		return nil
	}
	if err := s.Keep(state); err != nil {
		return fmt.Errorf("the latch could not be written down: %w", err)
	}
	return nil
}
