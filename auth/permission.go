package auth

import (
	"fmt"
	"slices"
	"strings"
)

// Permission is one thing that a principal may do. The table is closed: a word
// that is not in it is an error in the configuration, not a permission that
// nobody checks.
type Permission string

// The permissions (DESIGN section 8).
const (
	RunsReadOwn   Permission = "runs.read.own"       // see one's own runs, receipts and events
	RunsRead      Permission = "runs.read"           // see everybody's
	RunsCancelOwn Permission = "runs.cancel.own"     // stop one's own runs
	RunsCancel    Permission = "runs.cancel"         // stop everybody's
	RunsRegister  Permission = "runs.register"       // register runs that Belay did not see start, and report on them
	ToolsCall     Permission = "tools.call"          // call tools through the MCP endpoints
	ToolsApprove  Permission = "tools.approve"       // approve or decline what waits for a person
	LatchSet      Permission = "latch.set"           // stop everything and refuse new calls
	LatchLift     Permission = "latch.lift"          // let calls in again
	SystemConfig  Permission = "admin.system_config" // the Orchestrate family (ORC-10, ORC-19), erasure, settings
)

// facts of one permission; its place in the table is its bit in a Set.
type facts struct {
	name    Permission
	implies Permission // "" for none; its own implications do not count
	own     bool       // it reaches the principal's own runs only
	person  bool       // taken from whoever speaks from inside a run's process tree
}

// table is every permission. Only "all" implies its "own": seeing is not
// stopping, and stopping is not seeing.
var table = []facts{
	{name: RunsReadOwn, own: true},
	{name: RunsRead, implies: RunsReadOwn},
	{name: RunsCancelOwn, own: true, person: true},
	{name: RunsCancel, implies: RunsCancelOwn, person: true},
	{name: RunsRegister},
	{name: ToolsCall},
	{name: ToolsApprove, person: true},
	{name: LatchSet, person: true},
	{name: LatchLift, person: true},
	{name: SystemConfig, person: true},
}

// bit is the place of p in the table, -1 if it has none.
func (p Permission) bit() int {
	// A switch-like search over ten constants; hot paths ask for one or two.
	return slices.IndexFunc(table, func(f facts) bool { return f.name == p })
}

// Permissions is the whole table, in order.
func Permissions() []Permission {
	all := make([]Permission, len(table))
	for i, f := range table {
		all[i] = f.name
	}
	return all
}

// Set is a set of permissions. The zero Set permits nothing. It is a value and
// is never changed.
type Set struct{ bits uint32 }

// SetOf makes a set, with what its permissions imply: runs.read and
// runs.cancel imply their ".own". An unknown word is [ErrConfig].
func SetOf(list ...Permission) (Set, error) {
	var s Set
	for _, p := range list {
		i := p.bit()
		if i < 0 {
			return Set{}, fmt.Errorf("%w: %.64q is not a permission; there are %s", ErrConfig, p, words(Permissions()))
		}
		s.bits |= 1 << i
		if implied := table[i].implies; implied != "" {
			s.bits |= 1 << implied.bit()
		}
	}
	return s, nil
}

// everything is all permissions.
func everything() Set { return Set{bits: 1<<len(table) - 1} }

// Has reports whether p is in the set. An unknown word never is.
func (s Set) Has(p Permission) bool {
	i := p.bit()
	return i >= 0 && s.bits&(1<<i) != 0
}

// List is the permissions of the set in the table's order.
func (s Set) List() []Permission {
	var list []Permission
	for i, f := range table {
		if s.bits&(1<<i) != 0 {
			list = append(list, f.name)
		}
	}
	return list
}

// union is both together.
func (s Set) union(o Set) Set { return Set{bits: s.bits | o.bits} }

// confined is the set without what needs a person outside of the runs.
func (s Set) confined() Set {
	for i, f := range table {
		if f.person {
			s.bits &^= 1 << i
		}
	}
	return s
}

// builtin are the roles that every configuration has. They cannot be given
// another meaning there: whoever reads "operator" knows what it is.
var builtin = map[string][]Permission{
	"admin":    Permissions(),
	"operator": {RunsRead, RunsCancel, ToolsApprove, LatchSet, LatchLift},
	"user":     {ToolsCall, RunsReadOwn, RunsCancelOwn},
	"observer": {RunsRead},
	"runtime":  {RunsRegister, RunsReadOwn, RunsCancelOwn},
}

// roles are names of sets.
type roles map[string]Set

// makeRoles joins the built-in roles and those of the configuration.
func makeRoles(own map[string][]Permission) (roles, error) {
	all := make(roles, len(builtin)+len(own))
	for name, list := range builtin {
		set, err := SetOf(list...)
		if err != nil {
			return nil, err
		}
		all[name] = set
	}
	for name, list := range own {
		if _, taken := builtin[name]; taken {
			return nil, fmt.Errorf("%w: role %q is built in and means %s; choose another name", ErrConfig, name, words(builtin[name]))
		}
		if !plainName(name) {
			return nil, fmt.Errorf("%w: role %.64q: a name has 1 to %d of A-Z a-z 0-9 . _ @ -", ErrConfig, name, maxPlain)
		}
		set, err := SetOf(list...)
		if err != nil {
			return nil, fmt.Errorf("role %s: %w", name, err)
		}
		all[name] = set
	}
	return all, nil
}

// permissions is what the named roles permit together.
func (r roles) permissions(names []string) (Set, error) {
	var s Set
	for _, name := range names {
		set, ok := r[name]
		if !ok {
			known := make([]string, 0, len(r))
			for n := range r {
				known = append(known, n)
			}
			slices.Sort(known)
			return Set{}, fmt.Errorf("%w: there is no role %.64q; there are %s", ErrConfig, name, strings.Join(known, ", "))
		}
		s = s.union(set)
	}
	return s, nil
}

func words(list []Permission) string {
	texts := make([]string, len(list))
	for i, p := range list {
		texts[i] = string(p)
	}
	return strings.Join(texts, ", ")
}
