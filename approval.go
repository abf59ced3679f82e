package belay

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Approvals is how a door shows people what waits for them, and brings their
// answers. A [Tree] implements it for its runs. Who may decide what is for the
// door to check, before. Safe for concurrent use.
type Approvals interface {
	// Approvals returns the open questions of runs that match, oldest first.
	Approvals(ctx context.Context, f Filter) ([]Approval, error)

	// Decide answers a question, exactly once: Choice is [ChoiceApproved],
	// [ChoiceDeclined] or [ChoiceDismissed]. It returns the approval as it stands. Of a question that
	// was answered before or has expired that is the first decision, beside an
	// error that wraps [ErrDecided]. One that is unknown, and one that was
	// withdrawn since nobody waits for the answer any more, is [ErrNotFound].
	Decide(ctx context.Context, id ApprovalID, d Decision) (Approval, error)
}

// ErrDecided reports an answer to a question that had been answered before.
var ErrDecided = errors.New("already decided")

// errNoQuestion is [ErrNotFound] in the right words.
var errNoQuestion error = noQuestion{}

type noQuestion struct{}

func (noQuestion) Error() string { return "no such question" }

func (noQuestion) Is(target error) bool { return target == ErrNotFound }

// ErrDeclined reports that a person did not allow what was asked for. A run
// that ends because of it ends [Declined]; [Tree.Do] sees to that.
var ErrDeclined = errors.New("declined")

// Question is what a run asks a person before it goes on.
type Question struct {
	Title string `json:"title,omitempty"` // at most 256 bytes; default: the run's name
	Text  string `json:"text"`            // required; at most 8 KiB, line breaks stay

	// Primary and Secondary label the answers that are offered: yes and no. One
	// without a label is not offered. Nothing is approved without Primary; no
	// can be said all the same. At most 128 bytes each.
	Primary   string `json:"primary,omitempty"`
	Secondary string `json:"secondary,omitempty"`

	// Preview labels a look at what would happen, which Look takes: see [Previewer].
	// Neither is offered without the other.
	Preview string `json:"preview,omitempty"`

	// Look returns what there is to see. It is called without any lock, by one
	// goroutine at a time, and returns when ctx ends, at the latest with the
	// question.
	Look func(ctx context.Context) (string, error) `json:"-"`

	Timeout time.Duration `json:"-"` // default 10 min; negative: as long as the run

	// Show is called once, without any lock, when the question has an id, for an
	// asker who has a way of its own to the person, and brings the answer with
	// [Tree.Decide]. It must not block. Nil: the doors are enough.
	Show func(Approval) `json:"-"`
}

// DefaultAskTimeout is how long a [Question] is open (AT-61).
const DefaultAskTimeout = 10 * time.Minute

// Bounds of what a run may ask.
const (
	maxQuestion = 8 << 10 // bytes of a text
	maxAnswer   = 128     // bytes of a label
	maxAsking   = 16      // open questions of one run
	maxDecided  = 1000    // decided ones that a tree remembers
)

// own checks and bounds what the asker gave.
func (q *Question) own(name string) error {
	q.Title, q.Text = clean(q.Title, maxName), cleanText(q.Text, maxQuestion)
	q.Primary, q.Secondary = clean(q.Primary, maxAnswer), clean(q.Secondary, maxAnswer)
	if q.Preview = clean(q.Preview, maxAnswer); q.Preview == "" || q.Look == nil {
		q.Preview, q.Look = "", nil
	}
	if q.Text == "" {
		return fmt.Errorf("%w: a question needs a text", ErrBadRequest)
	}
	if q.Title == "" {
		q.Title = name
	}
	if q.Timeout == 0 {
		q.Timeout = DefaultAskTimeout
	}
	return nil
}

// cleanText is clean with line breaks kept, for what is shown in a place of
// its own.
func cleanText(s string, limit int) string {
	if !strings.ContainsAny(s, "\r\n") {
		return clean(s, limit)
	}
	s = strings.ToValidUTF8(cut(s, 2*limit), "\uFFFD")
	s = strings.ReplaceAll(s, "\r\n", "\n")
	s = strings.Map(func(r rune) rune {
		if r == '\n' {
			return r
		}
		return harmless(r)
	}, s)
	return strings.TrimSpace(cut(strings.TrimSpace(s), limit))
}

// Choice is what was decided about a question.
type Choice string

// The choices. The first three are a person's; the others are made by the tree.
const (
	ChoiceApproved  Choice = "approved"  // the primary answer
	ChoiceDeclined  Choice = "declined"  // the secondary answer
	ChoiceDismissed Choice = "dismissed" // put away without an answer
	ChoiceExpired   Choice = "expired"   // nobody answered in time
	ChoiceWithdrawn Choice = "withdrawn" // nobody waits for the answer any more: the run was stopped or is over, or the asker gave up
)

// Decision is the answer to a question. It is made once and never changes.
type Decision struct {
	Choice Choice    `json:"choice"`
	By     string    `json:"by,omitempty"`     // the principal, as far as it is known
	Via    string    `json:"via,omitempty"`    // the door
	Reason string    `json:"reason,omitempty"` // free text, bounded and without control characters
	At     time.Time `json:"at"`               // zero: filled in
}

// Err is nil if the question was approved, else an error that wraps
// [ErrDeclined] and says by what.
func (d *Decision) Err() error {
	if d.Choice == ChoiceApproved {
		return nil
	}
	text := string(d.Choice)
	if d.Choice == ChoiceDeclined {
		text = "by " + d.By
	}
	if d.Choice == ChoiceDeclined && d.By == "" {
		text = "by a person"
	}
	if d.Reason != "" {
		text += ": " + d.Reason
	}
	return fmt.Errorf("%w (%s)", ErrDeclined, text)
}

// own checks and bounds what a door gave.
func (d *Decision) own(q *Question, now time.Time) error {
	d.By, d.Via, d.Reason = clean(d.By, maxName), clean(d.Via, maxName), CleanReason(d.Reason)
	if d.At.IsZero() || d.At.After(now) {
		d.At = now
	}
	switch d.Choice {
	case ChoiceApproved:
		if q.Primary == "" {
			return fmt.Errorf("%w: %s is not offered by this question (decline or dismiss it)", ErrBadRequest, ChoiceApproved)
		}
		return nil
	case ChoiceDeclined, ChoiceDismissed:
		return nil
	}
	return fmt.Errorf("%w: choice %.32q (want %s, %s or %s)", ErrBadRequest, d.Choice, ChoiceApproved, ChoiceDeclined, ChoiceDismissed)
}

// Approval is one question of one run, as it stood when it was asked for.
type Approval struct {
	ID       ApprovalID `json:"id"`
	Run      Info       `json:"run"`
	Question Question   `json:"question"`
	Asked    time.Time  `json:"asked"`
	Expires  time.Time  `json:"expires,omitzero"`   // zero: never
	Decision *Decision  `json:"decision,omitempty"` // nil: open
}
