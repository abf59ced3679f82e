package belay

import (
	"context"
	"iter"
	"slices"
	"time"
)

// Control is the one interface through which anybody lists, watches, looks up
// and cancels runs. A [Tree] implements it for the runs it holds; other
// packages implement it for all Belay processes of a user, or for many
// machines. Whoever uses it cannot tell them apart. Safe for concurrent use.
type Control interface {
	// List returns the runs that match, oldest first. Runs that an
	// implementation could not ask for are an error beside the others: the
	// list is then what could be had.
	List(ctx context.Context, f Filter) ([]Info, error)

	// Get returns one run with its receipt, if it has one. An unknown run is
	// [ErrNotFound].
	Get(ctx context.Context, id RunID) (Detail, error)

	// Cancel stops every run that matches, each with its whole subtree. It
	// returns one result for each run that was matched or lies below one, in
	// the order of List. With req.Wait it returns when every verdict is final
	// or the time is over, else at once. Matching nothing is no error.
	Cancel(ctx context.Context, req CancelRequest) ([]CancelResult, error)

	// Watch yields events of matching runs from now on until ctx ends. A
	// reader that is too slow loses events; the next one it gets says how many.
	Watch(ctx context.Context, f Filter) iter.Seq2[Event, error]
}

// Filter selects runs. Its zero value selects every run in flight; each field
// that is set narrows the selection.
type Filter struct {
	IDs    []RunID           `json:"ids,omitempty"`    // any of these, ended ones too
	Under  RunID             `json:"under,omitzero"`   // this run and what lies below it
	Labels map[string]string `json:"labels,omitempty"` // all of these
	Kinds  []Kind            `json:"kinds,omitempty"`  // any of these
	Owner  string            `json:"owner,omitempty"`
	Server string            `json:"server,omitempty"`
	Works  []Work            `json:"works,omitempty"` // any of these states of the work
	Ends   []Outcome         `json:"ends,omitempty"`  // any of these outcomes
	Since  time.Time         `json:"since,omitzero"`  // begun then or later; zero: at any time
	Until  time.Time         `json:"until,omitzero"`  // begun then or before; zero: at any time
	Ended  bool              `json:"ended,omitempty"` // also runs that are over and still remembered
	Limit  int               `json:"limit,omitempty"` // at most so many, newest first dropped; 0: all
}

// Match reports whether the run passes every condition but Under and Limit,
// which need the tree.
func (f *Filter) Match(i *Info) bool {
	switch {
	case len(f.IDs) > 0 && !slices.Contains(f.IDs, i.ID):
		return false
	case len(f.IDs) == 0 && !f.Ended && i.Over():
		return false
	case len(f.Kinds) > 0 && !slices.Contains(f.Kinds, i.Kind):
		return false
	case len(f.Works) > 0 && !slices.Contains(f.Works, i.Work), len(f.Ends) > 0 && !slices.Contains(f.Ends, i.Outcome):
		return false
	case !f.Since.IsZero() && i.Started.Before(f.Since), !f.Until.IsZero() && i.Started.After(f.Until):
		return false
	case f.Owner != "" && f.Owner != i.Owner, f.Server != "" && f.Server != i.Server:
		return false
	}
	return hasLabels(i.Labels, f.Labels)
}

// Info is a run as it stood when it was asked for.
type Info struct {
	ID           RunID             `json:"id"`
	Parent       RunID             `json:"parent,omitzero"`
	Kind         Kind              `json:"kind"`
	Name         string            `json:"name"`
	Server       string            `json:"server,omitempty"`
	Owner        string            `json:"owner,omitempty"`
	Address      string            `json:"address,omitempty"` // how the protocol names it, for people
	Labels       map[string]string `json:"labels,omitempty"`
	Outcome      Outcome           `json:"outcome"`
	Work         Work              `json:"work"`
	Started      time.Time         `json:"started"`
	Ended        time.Time         `json:"ended,omitzero"`
	Deadline     time.Time         `json:"deadline,omitzero"`
	Cancellation *Cancellation     `json:"cancellation,omitempty"`
	Verdict      Verdict           `json:"verdict,omitempty"`
	Held         string            `json:"held,omitempty"`
	Pid          int               `json:"pid,omitempty"`  // of the Belay process that holds the run
	Node         string            `json:"node,omitempty"` // of the machine, where there are several
}

// Over reports whether neither the caller nor the work is waiting for
// anything. A run that was told and then kept, so that a person's second Stop
// could still use force, is not over.
func (i *Info) Over() bool {
	return i.Outcome.Terminal() && (i.Work == Stopped || i.Work == Unconfirmed && i.Held == "")
}

// Detail is one run with its receipt; Receipt is nil if it was not cancelled.
type Detail struct {
	Info
	Receipt *Receipt `json:"receipt,omitempty"`
}

// CancelRequest asks for a Stop.
type CancelRequest struct {
	Filter Filter `json:"filter"`

	// Cancellation says who, why and by which door. Stop and At are filled in
	// when they are zero. Cause is required: user or operator for a person's.
	Cancellation Cancellation `json:"cancellation"`

	// Escalate says that a person pressed: runs that are being stopped
	// already take their next step now. Without it, such runs are left alone.
	Escalate bool `json:"escalate,omitempty"`

	Now    bool `json:"now,omitempty"`     // straight to kill (DESIGN: force)
	DryRun bool `json:"dry_run,omitempty"` // change nothing; say what would happen

	// Wait is how long to wait for final verdicts: zero not at all, negative
	// until they are final.
	Wait time.Duration `json:"wait,omitempty"`
}

// CancelResult is what became of one run of a [CancelRequest].
type CancelResult struct {
	Run      Info     `json:"run"`
	Affected bool     `json:"affected"`          // this Stop changed something: stopped or escalated
	Receipt  *Receipt `json:"receipt,omitempty"` // as it stood at the end of the wait; nil for a dry run
	Plan     *Plan    `json:"plan,omitempty"`    // of a dry run
}
