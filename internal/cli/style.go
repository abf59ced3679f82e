package cli

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// oneLine makes text from anywhere safe to print as part of one line: control
// and direction characters go, line breaks and tabs become blanks.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t', r == '\r':
			return ' '
		case unicode.IsControl(r), r == utf8.RuneError, unicode.Is(unicode.Bidi_Control, r), r == '\u2028', r == '\u2029':
			return -1
		}
		return r
	}, s)
}
