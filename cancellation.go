package belay

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// MaxReason is the most bytes of a reason that are kept (MCP-G21).
const MaxReason = 1024

// Cancellation says who stopped a run, why, when and by which door. It is the
// cause of every context that Belay ends: context.Cause(ctx) is a
// *Cancellation. It is never changed after it was made.
type Cancellation struct {
	Stop   StopID    `json:"stop"`             // the act; the same on every way by which it arrives
	Cause  Cause     `json:"cause"`            // why this run in particular
	By     string    `json:"by,omitempty"`     // the principal, as far as it is known
	Reason string    `json:"reason,omitempty"` // free text, bounded and without control characters
	Via    string    `json:"via,omitempty"`    // the door: mcp, cli, deadline, …
	At     time.Time `json:"at"`               // when the Stop was accepted
	Origin RunID     `json:"origin,omitzero"`  // the run on which Stop was pressed, where that is an ancestor
}

// Error implements error, so that a Cancellation can be a context's cause.
func (c *Cancellation) Error() string {
	var b strings.Builder
	b.WriteString("cancelled (")
	b.WriteString(string(c.Cause))
	if c.By != "" {
		b.WriteString(" by " + c.By)
	}
	b.WriteByte(')')
	if c.Reason != "" {
		b.WriteString(": " + c.Reason)
	}
	return b.String()
}

// Is makes errors.Is(err, ErrCancelled) and errors.Is(err, context.Canceled)
// true, and for a deadline also errors.Is(err, context.DeadlineExceeded), so
// that code which knows only the standard library keeps working.
func (c *Cancellation) Is(target error) bool {
	switch target {
	case ErrCancelled, context.Canceled:
		return true
	case context.DeadlineExceeded:
		return c.Cause == CauseDeadline
	}
	return false
}

// CancellationOf returns the cancellation that ended ctx, or nil if ctx is
// alive or was ended by somebody else.
func CancellationOf(ctx context.Context) *Cancellation {
	c, _ := errors.AsType[*Cancellation](context.Cause(ctx))
	return c
}

// forChild is the cancellation as a descendant of the stopped run gets it. The
// origin stays the run on which Stop was pressed, over any number of processes.
func (c *Cancellation) forChild(above RunID) *Cancellation {
	child := *c
	child.Cause = CauseParent
	if c.Cause != CauseParent || c.Origin.IsZero() {
		child.Origin = above
	}
	return &child
}

// CleanReason makes free text from a peer safe to keep, log and show: valid
// UTF-8, no control characters (line breaks and tabs become blanks), at most
// [MaxReason] bytes, cut at a character.
func CleanReason(s string) string { return clean(s, MaxReason) }

func clean(s string, limit int) string {
	if plain(s, limit) {
		return s
	}
	// Removing and replacing characters changes the length both ways: cut
	// before, to bound the work, and again after.
	s = strings.Map(harmless, strings.ToValidUTF8(cut(s, 2*limit), "\uFFFD"))
	return strings.TrimSpace(cut(strings.TrimSpace(s), limit))
}

// plain reports whether s is short ASCII that can stay as it is, which nearly
// all names and reasons are.
func plain(s string, limit int) bool {
	if s == "" {
		return true
	}
	if len(s) > limit || s[0] == ' ' || s[len(s)-1] == ' ' {
		return false
	}
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// harmless maps a character to one that does not move the cursor, break the
// line or turn the direction of writing; -1 drops it.
func harmless(r rune) rune {
	switch {
	case r == '\n', r == '\r', r == '\t':
		return ' '
	case unicode.IsControl(r), r == '\u2028', r == '\u2029', unicode.Is(unicode.Bidi_Control, r):
		return -1
	}
	return r
}

// cut is the longest beginning of s of at most limit bytes that does not end
// within a character.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for i := limit; i > limit-utf8.UTFMax && i > 0; i-- {
		if utf8.RuneStart(s[i]) {
			return s[:i]
		}
	}
	return s[:limit] // not UTF-8 anyway
}

// complete fills in what may be zero and bounds what is free text. A time in
// the future comes from another machine's clock; ours is the one that counts.
func (c *Cancellation) complete(now time.Time) error {
	if c.Stop.IsZero() {
		c.Stop = NewStopID()
	}
	if c.At.IsZero() || c.At.After(now) {
		c.At = now
	}
	c.Reason, c.By, c.Via = CleanReason(c.Reason), clean(c.By, maxName), clean(c.Via, maxName)
	switch c.Cause {
	case CauseUser, CauseOperator, CauseParent, CauseDeadline, CauseDisconnect, CauseShutdown, CausePeer:
		return nil
	}
	return fmt.Errorf("%w: cause %.32q (want user, operator, parent, deadline, disconnect, shutdown or peer)", ErrBadRequest, c.Cause)
}
