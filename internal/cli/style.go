package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// style is how an output stream wants its text.
type style struct {
	terminal bool // a person is looking
	colour   bool
	width    int // columns; 0: no limit
	height   int // rows
}

// styleOf looks at where w leads.
func styleOf(w io.Writer, getenv func(string) string) style {
	f, ok := w.(*os.File)
	if !ok {
		return style{}
	}
	width, height, ok := terminalSize(f)
	if !ok {
		return style{}
	}
	return style{terminal: true, width: width, height: height, colour: getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"}
}

// tone is what a piece of text is to feel like.
type tone string

const (
	plain tone = ""
	bold  tone = "1"
	faint tone = "2"
	good  tone = "32"
	bad   tone = "31"
	warn  tone = "33"
)

// paint colours text where colour is wanted. Widths are counted before.
func (s style) paint(t tone, text string) string {
	if !s.colour || t == plain || text == "" {
		return text
	}
	return "\x1b[" + string(t) + "m" + text + "\x1b[0m"
}

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

// fit cuts text to a number of columns, with a sign that it was cut.
func fit(s string, width int) string {
	if width <= 0 || utf8.RuneCountInString(s) <= width {
		return s
	}
	runes := []rune(s)
	if width == 1 {
		return "…"
	}
	return string(runes[:width-1]) + "…"
}

// short is a duration as people say it: two parts at most.
func short(d time.Duration) string {
	switch d = max(d, 0); {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
}

// ago is how long before now a moment was.
func ago(now, then time.Time) string { return short(now.Sub(then)) + " ago" }

// count is a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// wall is a time as the clock on the person's wall shows it.
func wall(t time.Time) time.Time { return t.Local() } //nolint:gosmopolitan // people read it; programs get RFC 3339 from --json

// clock is the time of day.
func clock(t time.Time) string { return wall(t).Format("15:04:05.000") }
