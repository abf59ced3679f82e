package admin

import (
	"errors"
	"net/http"
	"slices"

	"github.com/belayhq/belay"
)

// The permissions that this package asks about (DESIGN 8).
const (
	PermReadOwn      = "runs.read.own"
	PermRead         = "runs.read"
	PermCancelOwn    = "runs.cancel.own"
	PermCancel       = "runs.cancel"
	PermSystemConfig = "admin.system_config" // the Orchestrate family's default; the latch
)

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
// credentials (ORC-34). A peer whose process lies inside a run's tree must not
// get a principal that may lift the latch or cancel another run (DESIGN 11, 10):
// that, and the checks of Host and Origin, are the Authorizer's part.
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

// reach says which runs a request may touch. The zero reach touches none.
type reach struct {
	all   bool
	owner string // with all unset: the runs of this owner; empty: none
}

func (r reach) none() bool { return !r.all && r.owner == "" }

// sees reports whether the run lies within the reach.
func (r reach) sees(i *belay.Info) bool {
	return r.all || r.owner != "" && i.Owner == r.owner
}

// narrow limits a filter to the reach. A filter that asks for somebody else's
// runs then selects none: ok is false.
func (r reach) narrow(f belay.Filter) (_ belay.Filter, ok bool) {
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

// orchestrateReach is the reach in the Orchestrate family (ORC-35): only the
// configured permissions open it. runs.* open the verb that they name; any
// other permission opens both, for all runs.
func orchestrateReach(p Principal, permissions []string, v verb) reach {
	own := ""
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
