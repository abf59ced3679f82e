package admin

import (
	"context"
	"time"

	"github.com/belayhq/belay"
)

// History remembers runs longer than a Control does (ORC-53): ended ones with
// their receipts, over a restart too. Safe for concurrent use.
type History interface {
	// Get returns a run. An unknown one is [belay.ErrNotFound].
	Get(ctx context.Context, id belay.RunID) (belay.Detail, error)
	// Find returns runs that match, newest first.
	Find(ctx context.Context, q HistoryQuery) ([]belay.Detail, error)
}

// HistoryQuery selects remembered runs; each field that is set narrows it.
type HistoryQuery struct {
	Filter    belay.Filter // its Owner, Server, Kinds, Labels and Under; the rest is empty
	RequestID string       // the text of the protocol's id, as [RequestText] gives it
	Stop      belay.StopID // stopped by this act
	Stopped   bool         // only runs with a receipt
	Before    belay.RunID  // only runs older than this one
	Limit     int          // at most so many; never 0 when this package asks for runs
}

// Format is the form of an export.
type Format string

// The formats.
const (
	CSV    Format = "csv"
	NDJSON Format = "ndjson" // one JSON object on each line
)

// Finder is what a [belay.Control] may implement besides: it finds the runs
// with a protocol id without copying all others. Runs that have ended and are
// remembered are found with ended. owner is empty for every owner. The order
// does not matter. An error is beside the runs, as with List.
type Finder interface {
	FindRequest(ctx context.Context, text, owner string, ended bool) ([]belay.Info, error)
}

// Pager is what a [belay.Control] may implement besides: it lists part of the
// runs without copying all others, newest first by id, at most limit and, unless
// before is zero, only runs with a smaller id. An error is beside the runs, as
// with List.
type Pager interface {
	ListBefore(ctx context.Context, f belay.Filter, before belay.RunID, limit int) ([]belay.Info, error)
}

// Queued is what an error of [belay.Control.Cancel] may implement to say that
// the cancel could not be delivered now, was written down, and will be carried
// out when the run's node is back (ORC-47). Any other error that leaves the run
// untouched is answered with 503 (ORC-49).
type Queued interface {
	error
	Queued() bool
}

// Broadcaster tells connected MCP sessions of a cancel (ORC-7, ORC-44). It is
// called once for each cancel that stopped something or whose id nobody knows,
// after the runs were stopped, from many goroutines at once, and must not
// block: the answer waits for it. It leaves out every session in which the id is
// in flight in either direction, and those of revision 2026-07-28 (DESIGN 11,
// 11). What it returns is logged and changes nothing (ORC-45).
type Broadcaster interface {
	Broadcast(ctx context.Context, n Notice) error
}

// Notice is what sessions are told.
type Notice struct {
	RequestID string      // as the caller gave it
	Reason    string      // empty: none; then the frame has no reason, since MCP allows only a string
	Run       belay.RunID // zero: nobody knows the id
	Audience  Audience
	Owner     string // whose sessions, with ToOwner
	Frame     []byte // the JSON-RPC notification, ready to send; read only
}

// Audience says whose sessions get a [Notice].
type Audience string

// The audiences (ORC-44).
const (
	ToOwner  Audience = "owner" // the sessions of the run's owner, or of the caller when nobody knows the id
	ToAll    Audience = "all"   // every session: for deployments with one tenant
	ToNobody Audience = "off"
)

// EarlyStops remembers cancels of calls that have not arrived yet (ORC-79). It
// is asked only about ids that nobody knows. [Tombstones] is one.
type EarlyStops interface {
	// Put remembers that the owner's next call with this id must not start. It
	// returns false if it did not.
	Put(owner, id string, c belay.Cancellation) bool
	// Take forgets it again and reports whether it was there: the call turned
	// out to have arrived after all.
	Take(owner, id string) (belay.Cancellation, bool)
}

// Limiter bounds how often a principal may use the cancel endpoints and the
// Orchestrate family (ORC-36). Safe for concurrent use.
type Limiter interface {
	// Allow takes one from the principal's allowance. When there is none left
	// it says after which time it is worth to try again.
	Allow(principal string) (ok bool, retry time.Duration)
}

// Latch is the stop-all latch: while it is engaged no new call starts. The one
// who dispatches calls asks it; this package only turns it. Safe for concurrent
// use. [Switch] is one.
type Latch interface {
	State(ctx context.Context) (LatchState, error)
	// Engage refuses new calls from its return on. Engaged already, it changes
	// nothing and returns the state as it is. With an error beside a state that is
	// engaged it refuses all the same, and was not written down.
	Engage(ctx context.Context, by, reason string) (LatchState, error)
	Lift(ctx context.Context, by, reason string) (LatchState, error)
}

// LatchState is how the latch stands, and who turned it last.
type LatchState struct {
	Engaged bool      `json:"engaged"`
	By      string    `json:"by,omitempty" doc:"who turned it last"`
	Reason  string    `json:"reason,omitempty"`
	At      time.Time `json:"at,omitzero" doc:"when it was turned last"`
}
