package auth

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// LocalName is the one principal of a machine without configured
// authentication.
const LocalName = "local"

// The most bytes of names.
const (
	maxPlain = 64  // of a name in the configuration
	maxName  = 256 // of a principal; the domain keeps owners up to this length
)

// Method is how somebody showed who they are.
type Method string

// The methods.
const (
	ByToken       Method = "token"       // a static token
	ByJWT         Method = "jwt"         // a signed token of an issuer
	ByCertificate Method = "certificate" // mutual TLS
	BySocket      Method = "socket"      // the kernel's word about a unix socket's other end
	ByLocalToken  Method = "local-token" // the 0600 token of this user
	ByLoopback    Method = "loopback"    // nothing was asked for; see [LocalCaller]
)

// Principal is somebody, and what they may do. It is a value: copies are
// independent, and nothing in it changes. The zero Principal is nobody and may
// do nothing.
type Principal struct {
	// Name is what a run's owner is compared with. It is printable, of at most
	// 256 bytes, has no space at its ends, and is the same for the same person
	// through every door. Names of different sources cannot meet: those of
	// issuers contain ":", configured ones do not.
	Name string

	Method  Method
	Expires time.Time // when the credentials end; zero: never. Long streams end then

	may    Set
	inside []string
}

// NewPrincipal makes a principal, for doors with an authentication of their
// own and for a principal that came from another node. A name or permission
// that cannot be is [ErrConfig].
func NewPrincipal(name string, m Method, may ...Permission) (Principal, error) {
	if !goodName(name) {
		return Principal{}, fmt.Errorf("%w: %.64q cannot be a principal's name: 1 to %d printable bytes without spaces at the ends", ErrConfig, name, maxName)
	}
	set, err := SetOf(may...)
	if err != nil {
		return Principal{}, err
	}
	return Principal{Name: name, Method: m, may: set}, nil
}

// LocalCaller is who calls the MCP endpoints over loopback where no
// authentication is configured (DESIGN 11, 10). It calls tools, and its session
// stops what it called; /v1 and the Orchestrate family are closed to it, since
// any process of the machine gets it for the asking.
func LocalCaller() Principal {
	may, _ := SetOf(ToolsCall) // a constant of the table
	return Principal{Name: LocalName, Method: ByLoopback, may: may}
}

// May reports whether p has the permission, for itself at least: of
// runs.read.own and runs.cancel.own it does not say whose runs; see
// [Principal.Reach].
func (p Principal) May(permission Permission) bool { return p.Name != "" && p.may.Has(permission) }

// Need is nil if p has the permission, else an error that wraps [ErrForbidden]
// and names both.
func (p Principal) Need(permission Permission) error {
	if p.May(permission) {
		return nil
	}
	return fmt.Errorf("%w: %q has no %s", ErrForbidden, p.Name, permission)
}

// Permissions is what p may do, in the table's order.
func (p Principal) Permissions() []Permission { return p.may.List() }

// Reach says whose runs something may be done to.
type Reach uint8

// The reaches, from the least to the most.
const (
	Nothing Reach = iota // nobody's: the door is closed
	Own                  // those whose owner is the principal
	All                  // everybody's
)

// Reach is how far p gets through a door that any of these permissions opens:
// Own by one that ends in ".own", All by another one, and the farther of
// several (ORC-35). A filter by owner is right for Own: what it leaves out must
// look exactly like what does not exist.
func (p Principal) Reach(door ...Permission) Reach {
	reach := Nothing
	for _, permission := range door {
		switch i := permission.bit(); {
		case !p.May(permission):
		case table[i].own:
			reach = max(reach, Own)
		default:
			return All
		}
	}
	return reach
}

// Reads is whose runs, receipts and events p may see.
func (p Principal) Reads() Reach { return p.Reach(RunsRead, RunsReadOwn) }

// Cancels is whose runs p may stop.
func (p Principal) Cancels() Reach { return p.Reach(RunsCancel, RunsCancelOwn) }

// Owns reports whether p is the owner of a run. A run without owner belongs to
// nobody.
func (p Principal) Owns(owner string) bool { return owner != "" && owner == p.Name }

// MayRead reports whether p may see a run of this owner.
func (p Principal) MayRead(owner string) bool { return p.within(p.Reads(), owner) }

// MayCancel reports whether p may stop a run of this owner.
func (p Principal) MayCancel(owner string) bool { return p.within(p.Cancels(), owner) }

func (p Principal) within(r Reach, owner string) bool {
	return r == All || r == Own && p.Owns(owner)
}

// Confined is p as it speaks from inside the process trees of these runs,
// innermost first: an agent that holds its user's token. It may never approve,
// set or lift the latch, or use the Orchestrate family, and stops nothing by
// its own right (DESIGN 11, 10). A door that can tell that a run lies at or
// below one of [Principal.Inside] may let that one Stop through. No runs: p
// itself.
//
// The same user is not a sandbox: a process that left the tree is taken for
// the user.
func (p Principal) Confined(runs ...string) Principal {
	if len(runs) == 0 {
		return p
	}
	p.may = p.may.confined()
	p.inside = slices.Clone(runs)
	return p
}

// Inside is the runs from within which p speaks; nil for everybody else.
func (p Principal) Inside() []string { return slices.Clone(p.inside) }

// String is the name, and from within which run it speaks: what a receipt's
// "by" says.
func (p Principal) String() string {
	switch {
	case p.Name == "":
		return "nobody"
	case len(p.inside) > 0:
		return p.Name + " (inside " + p.inside[0] + ")"
	default:
		return p.Name
	}
}

// LogValue implements [slog.LogValuer]: never a token, nor a claim.
func (p Principal) LogValue() slog.Value {
	return slog.GroupValue(slog.String("name", p.String()), slog.String("method", string(p.Method)))
}

// plainName reports whether a name may stand in the configuration. There is no
// ":" in it, so that it never meets the name of an issuer's subject.
func plainName(s string) bool {
	if s == "" || len(s) > maxPlain {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if !alphanumeric(c) && c != '.' && c != '_' && c != '@' && c != '-' {
			return false
		}
	}
	return true
}

func alphanumeric(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// goodName reports whether a text may be a principal's name. One that is not
// is refused rather than cleaned: cleaning makes two people one. Format
// characters, which turn the direction of a log line, are not printable; those
// that are and cannot be seen would make two people look like one.
func goodName(s string) bool {
	if s == "" || len(s) > maxName || !utf8.ValidString(s) || strings.TrimSpace(s) != s {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool {
		return !unicode.IsPrint(r) || r == utf8.RuneError || unicode.In(r, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point)
	})
}
