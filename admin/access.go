package admin

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/belayhq/belay"
)

// The permissions that this package asks about (DESIGN 8).
const (
	PermReadOwn      = "runs.read.own"
	PermRead         = "runs.read"
	PermCancelOwn    = "runs.cancel.own"
	PermCancel       = "runs.cancel"
	PermRegister     = "runs.register"
	PermCall         = "tools.call" // not asked about here; shown by whoami
	PermApprove      = "tools.approve"
	PermLatchSet     = "latch.set"
	PermLatchLift    = "latch.lift"
	PermSystemConfig = "admin.system_config" // the Orchestrate family's default; the latch; erasure
)

// permissions are all of them, in the order in which they are shown.
var permissions = []string{
	PermReadOwn, PermRead, PermCancelOwn, PermCancel, PermRegister, PermCall, PermApprove, PermLatchSet, PermLatchLift, PermSystemConfig,
}

// Errors that an [Authorizer] returns. Any other error counts as credentials
// that are not valid.
var (
	// ErrNoCredentials says that the request carries none.
	ErrNoCredentials = errors.New("no credentials")
	// ErrBadCredentials says that they are wrong, expired or not for us.
	ErrBadCredentials = errors.New("credentials are not valid")
	// ErrAuthUnavailable says that nobody can tell at present: a key server
	// that does not answer is no reason to call a good token bad.
	ErrAuthUnavailable = errors.New("credentials cannot be checked at present")
)

// Authorizer says who sends a request. It is asked once for each request, before
// anything of its body is read, from many goroutines at once. Cookies are no
// credentials (ORC-34). A peer whose process lies inside a run's tree gets a
// principal that is an [Insider]: to find that out, and to check Host and Origin,
// is the Authorizer's part.
type Authorizer interface {
	Principal(r *http.Request) (Principal, error)
}

// Principal is who asks. Its name is what [belay.Info.Owner] holds for its runs;
// it is never empty for somebody who is known.
type Principal interface {
	Name() string
	// May reports whether the principal holds the permission. It must not block.
	May(permission string) bool
}

// Insider is what a [Principal] may implement besides: it names the runs within
// whose process trees it speaks, innermost first; none for everybody else. Such
// a principal (an agent that holds its user's token) may stop a run at or below
// one of these, one at a time, since it may stop what it started. By its own
// permissions it stops nothing, and it never approves, turns the latch, erases
// or uses the Orchestrate family and the JSON-RPC doors, whatever May says
// (DESIGN 11, 10). What it registers hangs below the run that it speaks from,
// and it reports on nothing else.
// A text that is no run's id confines it to nothing.
type Insider interface{ Inside() []string }

// insideOf is the runs from within which p speaks.
func insideOf(p Principal) []string {
	if g, ok := p.(*guest); ok {
		p = g.Principal
	}
	if i, ok := p.(Insider); ok {
		return i.Inside()
	}
	return nil
}

// Expirer is what a [Principal] may implement besides: its credentials end then,
// and with them its event streams. Zero: never.
type Expirer interface{ Expires() time.Time }

// expiryOf is when p's credentials end; zero: never.
func expiryOf(p Principal) time.Time {
	if e, ok := p.(Expirer); ok {
		return e.Expires()
	}
	return time.Time{}
}

// nameOf is who did it, as receipts and logs say it: for an insider with the run
// from which it spoke.
func nameOf(p Principal) string {
	if inside := insideOf(p); len(inside) > 0 {
		return p.Name() + " (inside " + inside[0] + ")"
	}
	return p.Name()
}

// accountOf is under which name it counts what p uses of anything that is bounded.
// Agents inside of runs have an account of their own: else one that asks without
// end would keep its user from pressing Stop. No principal's name has a NUL.
func accountOf(p Principal) string {
	if len(insideOf(p)) > 0 {
		return p.Name() + "\x00inside"
	}
	return p.Name()
}

// reach says which runs a request may touch. The zero reach touches none.
type reach struct {
	all   bool
	owner string // with all unset: the runs of this owner; empty: none

	// below, if set, is asked about each run besides; then lists are never
	// selected by the reach alone.
	below func(belay.RunID) bool
}

func (r reach) none() bool { return !r.all && r.owner == "" }

// sees reports whether the run lies within the reach.
func (r reach) sees(i *belay.Info) bool {
	return (r.all || r.owner != "" && i.Owner == r.owner) && (r.below == nil || r.below(i.ID))
}

// narrow limits a filter to the reach. A filter that asks for somebody else's
// runs then selects none: ok is false.
func (r reach) narrow(f belay.Filter) (_ belay.Filter, ok bool) {
	if r.below != nil {
		if f.IDs = slices.DeleteFunc(slices.Clone(f.IDs), func(id belay.RunID) bool { return !r.below(id) }); len(f.IDs) == 0 {
			return f, false
		}
	}
	switch {
	case r.all:
		return f, true
	case r.owner == "", f.Owner != "" && f.Owner != r.owner:
		return f, false
	}
	f.Owner = r.owner
	return f, true
}

// reachBy is the reach that permissions of the two names give.
func reachBy(p Principal, all, own string) reach {
	switch {
	case p.May(all):
		return reach{all: true}
	case p.May(own):
		return reach{owner: p.Name()}
	}
	return reach{}
}

// confined is the reach of somebody who speaks from within these runs.
func (a *API) confined(ctx context.Context, inside []string) reach {
	var roots []belay.RunID
	for _, text := range inside[:min(len(inside), maxInside)] {
		if id, err := belay.ParseRunID(text); err == nil {
			roots = append(roots, id)
		}
	}
	return reach{all: true, below: func(id belay.RunID) bool {
		return slices.ContainsFunc(roots, func(root belay.RunID) bool { return a.isBelow(ctx, id, root) })
	}}
}

// maxInside bounds how deep a process may lie in trees within trees.
const maxInside = 64

// isBelow reports whether a run is the root or lies below it. Where that cannot
// be found out it does not.
func (a *API) isBelow(ctx context.Context, id, root belay.RunID) bool {
	runs, _ := a.o.Control.List(ctx, belay.Filter{IDs: []belay.RunID{id}, Under: root})
	return len(runs) > 0
}

// reachOf is whose runs p may read or stop.
func (a *API) reachOf(ctx context.Context, p Principal, v verb) reach {
	if inside := insideOf(p); len(inside) > 0 && v == toCancel {
		return a.confined(ctx, inside)
	}
	return reachBy(p, v.all, v.own)
}

// orchestrateReach is the reach in the Orchestrate family (ORC-35): only the
// configured permissions open it. runs.* open the verb that they name; any
// other permission opens both, for all runs.
func orchestrateReach(p Principal, permissions []string, v verb) reach {
	own := ""
	if len(insideOf(p)) > 0 {
		return reach{}
	}
	for _, perm := range permissions {
		switch perm {
		case PermReadOwn, PermCancelOwn:
			if perm == v.own && p.May(perm) {
				own = p.Name()
			}
		case PermRead, PermCancel:
			if perm == v.all && p.May(perm) {
				return reach{all: true}
			}
		default:
			if p.May(perm) {
				return reach{all: true}
			}
		}
	}
	return reach{owner: own}
}

// verb is one of the two things that can be done to a run, with the
// permissions that allow it.
type verb struct{ all, own string }

// What opens the operations that read and those that stop.
var (
	reading    = []string{PermRead, PermReadOwn}
	cancelling = []string{PermCancel, PermCancelOwn}
)

var (
	toRead   = verb{PermRead, PermReadOwn}
	toCancel = verb{PermCancel, PermCancelOwn}
)

// causeFor is the cause of a Stop by p of a run of this owner (DESIGN 12).
func causeFor(p Principal, owner string) belay.Cause {
	if owner != "" && owner == p.Name() {
		return belay.CauseUser
	}
	return belay.CauseOperator
}

// checkPermissions refuses a list that opens the door to nobody by accident.
func checkPermissions(list []string) []string {
	list = slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == "" })
	if len(list) == 0 {
		return []string{PermSystemConfig}
	}
	return list
}
