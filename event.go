package belay

import (
	"time"
)

// EventType says what happened to a run.
type EventType string

// The types of event.
const (
	EventRegistered EventType = "run.registered"
	EventChanged    EventType = "run.changed" // outcome or work changed
	EventCancelled  EventType = "run.cancelled"
	EventStep       EventType = "receipt.step"     // the ladder took a step or saw something
	EventFinal      EventType = "receipt.final"    // the verdict is final
	EventAsked      EventType = "approval.asked"   // the run asks a person, and waits
	EventDecided    EventType = "approval.decided" // by a person, or by nobody: expired, withdrawn
	EventEnded      EventType = "run.ended"        // neither caller nor work is waiting any more
)

// Event is one change of one run, as a watcher sees it.
type Event struct {
	Seq      uint64    `json:"seq"` // rising within one tree; where it jumps, events were lost or did not match
	At       time.Time `json:"at"`
	Type     EventType `json:"type"`
	Run      Info      `json:"run"`
	Receipt  *Receipt  `json:"receipt,omitempty"`  // with EventStep, EventFinal
	Approval *Approval `json:"approval,omitempty"` // with EventAsked, EventDecided
	Lost     uint64    `json:"lost,omitempty"`     // events that this watcher missed right before this one
}
