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
	var c *Cancellation
	if errors.As(context.Cause(ctx), &c) {
		return c
	}
	return nil
}

// forChild is the cancellation as a descendant of the stopped run gets it.
func (c *Cancellation) forChild(origin RunID) *Cancellation {
	child := *c
	child.Cause, child.Origin = CauseParent, origin
	return &child
}

// CleanReason makes free text from a peer safe to keep, log and show: valid
// UTF-8, no control characters (line breaks and tabs become blanks), at most
// [MaxReason] bytes, cut at a character.
func CleanReason(s string) string { return clean(s, MaxReason) }

func clean(s string, limit int) string {
	if len(s) > limit {
		s = s[:limit]
		for len(s) > 0 && !utf8.ValidString(s[max(0, len(s)-utf8.UTFMax):]) && !utf8.RuneStart(s[len(s)-1]) {
			s = s[:len(s)-1]
		}
		if r, size := utf8.DecodeLastRuneInString(s); r == utf8.RuneError && size == 1 {
			s = s[:len(s)-1]
		}
	}
	s = strings.ToValidUTF8(s, "\uFFFD")
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\r', r == '\t':
			return ' '
		case unicode.IsControl(r), r == '\u2028', r == '\u2029', unicode.Is(unicode.Bidi_Control, r):
			return -1
		}
		return r
	}, s))
}

func (c *Cancellation) complete(now time.Time) error {
	if c.Stop.IsZero() {
		c.Stop = NewStopID()
	}
	if c.At.IsZero() {
		c.At = now
	}
	c.Reason, c.By, c.Via = CleanReason(c.Reason), clean(c.By, maxName), clean(c.Via, maxName)
	switch c.Cause {
	case CauseUser, CauseOperator, CauseParent, CauseDeadline, CauseDisconnect, CauseShutdown, CausePeer:
		return nil
	}
	return fmt.Errorf("%w: cause %.32q (want user, operator, parent, deadline, disconnect, shutdown or peer)", ErrBadRequest, c.Cause)
}
