package rap

import (
	"errors"
	"strings"

	"github.com/belayhq/belay"
)

// Errors that callers branch on.
var (
	// ErrMalformed is wrapped by whatever Parse and Append functions refuse.
	ErrMalformed error = &class{"malformed message", belay.ErrBadRequest}
	// ErrTooLarge says that a body is over its limit; it is not read to its end.
	ErrTooLarge = errors.New("message too large")
	// ErrArguments says that an invocation can be answered, but not carried out:
	// it is acknowledged, and its error is the result (RAP-57).
	ErrArguments = errors.New("bad arguments")
	// ErrUnauthenticated says that a request does not prove who sent it (RAP-32).
	ErrUnauthenticated = errors.New("not authenticated")
)

// class is a sentinel of this package that is also one of belay's, by whose
// code doors answer, without its words.
type class struct {
	text string
	of   error
}

func (c *class) Error() string { return c.text }
func (c *class) Unwrap() error { return c.of }

// complaint is err for a reader who knows what it is about: without the words
// of the sentinels.
func complaint(err error) string {
	text := err.Error()
	for _, s := range []error{ErrArguments, ErrMalformed} {
		text = strings.ReplaceAll(text, s.Error()+": ", "")
	}
	return text
}
