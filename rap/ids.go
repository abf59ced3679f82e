package rap

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// CheckID says whether a group, call or user id may be used (RAP-35): 1 to
// [MaxID] bytes of UTF-8 without control characters. Everything else is allowed,
// also "../x": an id is a key, never a path.
//
// The replacement character U+FFFD is refused, since two ids that differ only in what
// cannot be decoded would become one by it.
func CheckID(id string) error {
	switch {
	case id == "":
		return fmt.Errorf("%w: the id is empty", ErrMalformed)
	case len(id) > MaxID:
		return fmt.Errorf("%w: the id has %d bytes, at most %d are allowed", ErrMalformed, len(id), MaxID)
	case !utf8.ValidString(id) || strings.ContainsRune(id, utf8.RuneError):
		return fmt.Errorf("%w: the id is not valid UTF-8", ErrMalformed)
	case strings.ContainsFunc(id, unicode.IsControl):
		return fmt.Errorf("%w: the id contains a control character", ErrMalformed)
	}
	return nil
}
