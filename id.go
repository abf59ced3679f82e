package belay

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"
)

// RunID names a run: 128 bits, minted by Belay, never by a caller (ORC-67). The
// first 48 are milliseconds since 1970, so that ids sort by time; the other 80 are
// random, so that nobody guesses one. Those of one [Tree] rise in the order of
// registration: of two in one millisecond the second may go on from the first in
// its upper 16 of these bits. The zero RunID means "none".
type RunID [16]byte

// StopID names one act of stopping: one press of one button. A cancellation
// that reaches a run by several ways carries the same StopID on each, which is
// how a duplicate made by machinery is told from a person's second Stop.
type StopID [16]byte

// ApprovalID names one question that a run asked.
type ApprovalID [16]byte

const (
	askPrefix  = "ask_"
	runPrefix  = "run_"
	stopPrefix = "stop_"
	idAlphabet = "0123456789abcdefghjkmnpqrstvwxyz" // Crockford's base 32: no i, l, o, u
	idTextLen  = 26                                 // 128 bits in 5-bit digits
)

// ErrBadID reports a text that is not an id of the wanted kind.
var ErrBadID = errors.New("not a valid id")

// NewRunID mints an id for a run that starts now. Safe for concurrent use.
func NewRunID() RunID { return RunID(mint(time.Now())) }

// NewStopID mints an id for a Stop that is pressed now. Safe for concurrent use.
func NewStopID() StopID { return StopID(mint(time.Now())) }

func mint(now time.Time) (id [16]byte) {
	rand.Read(id[6:]) // never fails: crypto/rand ends the program instead
	ms := uint64(now.UnixMilli())
	id[0], id[1] = byte(ms>>40), byte(ms>>32)
	binary.BigEndian.PutUint32(id[2:6], uint32(ms))
	return id
}

// follow makes the id greater than every one whose first half is at most head,
// even when the clock was set back, and returns the first half of the new one.
// An id that is greater already stays as it was drawn; another one goes on from
// head by a random step, so that its neighbours tell nobody how far it is.
func (id *RunID) follow(head uint64) uint64 {
	own := binary.BigEndian.Uint64(id[:8])
	if own > head {
		return own
	}
	const steps = 8 // thousands of ids fit into a millisecond; more run ahead of the clock
	head += 1 + own%steps
	binary.BigEndian.PutUint64(id[:8], head)
	return head
}

// IsZero reports whether the id names nothing.
func (id RunID) IsZero() bool { return id == RunID{} }

// IsZero reports whether the id names nothing.
func (id ApprovalID) IsZero() bool { return id == ApprovalID{} }

// IsZero reports whether the id names nothing.
func (id StopID) IsZero() bool { return id == StopID{} }

// Time is when the id was minted, to the millisecond.
func (id RunID) Time() time.Time {
	return time.UnixMilli(int64(binary.BigEndian.Uint64(id[:8]) >> 16))
}

// String is "run_" and 26 lower-case base-32 digits; texts sort as the ids do.
// The zero id is the empty string.
func (id RunID) String() string { return idText(runPrefix, id) }

// String is "stop_" and 26 lower-case base-32 digits; empty for the zero id.
func (id StopID) String() string { return idText(stopPrefix, id) }

// MarshalText implements [encoding.TextMarshaler].
func (id RunID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// String is "ask_" and 26 lower-case base-32 digits; empty for the zero id.
func (id ApprovalID) String() string { return idText(askPrefix, id) }

// MarshalText implements [encoding.TextMarshaler].
func (id ApprovalID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// MarshalText implements [encoding.TextMarshaler].
func (id StopID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler]; empty text is the zero id.
func (id *RunID) UnmarshalText(text []byte) error {
	return unmarshalID(runPrefix, text, (*[16]byte)(id))
}

// UnmarshalText implements [encoding.TextUnmarshaler]; empty text is the zero id.
func (id *StopID) UnmarshalText(text []byte) error {
	return unmarshalID(stopPrefix, text, (*[16]byte)(id))
}

// UnmarshalText implements [encoding.TextUnmarshaler]; empty text is the zero id.
func (id *ApprovalID) UnmarshalText(text []byte) error {
	return unmarshalID(askPrefix, text, (*[16]byte)(id))
}

// ParseApprovalID reads the text form of an approval's id, as [ParseRunID] does
// that of a run's.
func ParseApprovalID(s string) (ApprovalID, error) {
	id, err := parseID(askPrefix, s)
	return ApprovalID(id), err
}

// ParseRunID reads the text form of a run id. It accepts exactly what String
// writes; anything else is an error that wraps [ErrBadID].
func ParseRunID(s string) (RunID, error) {
	id, err := parseID(runPrefix, s)
	return RunID(id), err
}

func unmarshalID(prefix string, text []byte, id *[16]byte) (err error) {
	if len(text) == 0 {
		*id = [16]byte{}
		return nil
	}
	parsed, err := parseID(prefix, string(text))
	if err == nil {
		*id = parsed
	}
	return err
}

func idText(prefix string, id [16]byte) string {
	if id == ([16]byte{}) {
		return ""
	}
	buf := make([]byte, 0, len(stopPrefix)+idTextLen)
	buf = append(buf, prefix...)
	hi, lo := binary.BigEndian.Uint64(id[:8]), binary.BigEndian.Uint64(id[8:])
	for i := idTextLen - 1; i >= 0; i-- { // 26 digits hold 130 bits; the top two are zero
		shift := uint(i * 5)
		var digit uint64
		switch {
		case shift >= 64:
			digit = hi >> (shift - 64)
		case shift == 60: // the digit that straddles both halves
			digit = lo>>60 | hi<<4
		default:
			digit = lo >> shift
		}
		buf = append(buf, idAlphabet[digit&31])
	}
	return string(buf)
}

func parseID(prefix, s string) (id [16]byte, err error) {
	digits, ok := strings.CutPrefix(s, prefix)
	if !ok || len(digits) != idTextLen {
		return id, fmt.Errorf("%w: %.64q (want %s and %d characters)", ErrBadID, s, prefix, idTextLen)
	}
	var hi, lo uint64
	for i := range idTextLen {
		d := strings.IndexByte(idAlphabet, digits[i])
		if d < 0 || i == 0 && d > 7 {
			return id, fmt.Errorf("%w: %.64q (character %d is not allowed there)", ErrBadID, s, len(prefix)+i+1)
		}
		hi = hi<<5 | lo>>59
		lo = lo<<5 | uint64(d)
	}
	if hi == 0 && lo == 0 {
		return id, fmt.Errorf("%w: %q names nothing", ErrBadID, s)
	}
	binary.BigEndian.PutUint64(id[:8], hi)
	binary.BigEndian.PutUint64(id[8:], lo)
	return id, nil
}
