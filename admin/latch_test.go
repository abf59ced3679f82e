package admin

import (
	"errors"
	"testing"
)

// TestSwitchKept: what cannot be written down is refused all the same, and is
// not lifted.
func TestSwitchKept(t *testing.T) {
	full := errors.New("disk full")
	var kept []LatchState
	var fails error
	s := Switch{Keep: func(l LatchState) error {
		if fails == nil {
			kept = append(kept, l)
		}
		return fails
	}}
	fails = full
	if state, err := s.Engage(t.Context(), "ann", "fire"); !errors.Is(err, full) || !state.Engaged || s.Refuses() == nil {
		t.Errorf("engaged without a disk: %+v, %v, refuses %v", state, err, s.Refuses())
	}
	if state, err := s.Lift(t.Context(), "ann", ""); !errors.Is(err, full) || !state.Engaged || s.Refuses() == nil {
		t.Errorf("lifted without a disk: %+v, %v", state, err)
	}
	fails = nil
	if state, err := s.Engage(t.Context(), "eve", "again"); err != nil || state.By != "ann" || len(kept) != 1 {
		t.Errorf("written down by the next: %+v, %v, kept %+v", state, err, kept)
	}
	if state, err := s.Engage(t.Context(), "eve", "again"); err != nil || state.By != "ann" || len(kept) != 1 {
		t.Errorf("and once only: %+v, %v, kept %+v", state, err, kept)
	}
	if state, err := s.Lift(t.Context(), "ben", "out"); err != nil || state.Engaged || s.Refuses() != nil {
		t.Errorf("lifted: %+v, %v", state, err)
	}
	if state, err := s.Lift(t.Context(), "eve", ""); err != nil || state.By != "ben" {
		t.Errorf("lifted twice: %+v, %v", state, err)
	}
	if len(kept) != 2 || !kept[0].Engaged || kept[1].By != "ben" {
		t.Errorf("kept %+v", kept)
	}
	again := Switch{}
	again.Restore(LatchState{Engaged: true, By: "ann"})
	if again.Refuses() == nil {
		t.Error("a restored latch refuses nothing")
	}
}
