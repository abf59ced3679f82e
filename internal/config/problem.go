package config

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// ErrInvalid is matched by every error about what a file says, and not by those
// about reading it.
var ErrInvalid = errors.New("the configuration is not used")

// Problem is one thing wrong in a file.
type Problem struct {
	File         string
	Line, Column int    // from 1; 0: the file as a whole
	Text         string // what is wrong, which value, what to do
	Source       string // the line, without what may be secret; may be empty
	mark         int    // blanks before the mark below Source
}

// String is one line: file:line:column: what is wrong.
func (p Problem) String() string {
	if p.Line == 0 {
		return p.File + ": " + p.Text
	}
	return fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, p.Text)
}

// Problems is everything wrong in the configuration; it matches [ErrInvalid].
type Problems []Problem

// maxProblems are reported; whoever made more has another question.
const maxProblems = 25

// Error shows each problem with its source line, over several lines.
func (ps Problems) Error() string {
	var b strings.Builder
	for i, p := range ps {
		if i == maxProblems {
			fmt.Fprintf(&b, "\nand %d more", len(ps)-i)
			break
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(p.String())
		if p.Source != "" {
			fmt.Fprintf(&b, "\n  %4d | %s\n       | %s^", p.Line, p.Source, strings.Repeat(" ", p.mark))
		}
	}
	return b.String()
}

// Is makes errors.Is(err, ErrInvalid) true.
func (ps Problems) Is(target error) bool { return target == ErrInvalid }

// spot is where a problem is: at the key, or at the value if there is one.
type spot struct {
	key    *node // nil in a list and at the top
	value  *node
	secret bool // the value must not be shown
}

// node is where to point: at a list or a map the key says more.
func (s spot) node() *node {
	if s.value == nil || s.key != nil && s.value.kind > kindBool {
		return s.key
	}
	return s.value
}

// atKey is the spot of the key itself.
func (s spot) atKey() spot { return spot{key: s.key, secret: true} }

// excerpt is what may be shown of the line of a spot, and how far into it the
// mark belongs. Of everything beside the key and the value in question only
// the presence is shown: it may be a secret.
func (s spot) excerpt(lines []string) (text string, mark int) {
	at := s.node()
	if at == nil || at.line < 1 || at.line > len(lines) {
		return "", 0
	}
	line := []rune(strings.TrimRight(lines[at.line-1], "\r"))
	indent := 0
	for indent < len(line) && indent < maxIndent && (unicode.IsSpace(line[indent]) || line[indent] == '-') {
		indent++
	}
	shown := append([]rune(nil), line[:indent]...)
	for i, r := range shown {
		if r == '\t' {
			shown[i] = ' '
		}
	}
	end := indent
	put := func(n *node, visible bool) {
		from, to := n.column-1, n.column-1+n.width
		if n.line != at.line || from < end || to > len(line) {
			return
		}
		if strings.TrimSpace(string(line[end:from])) != "" && strings.Trim(string(line[end:from]), ": \t") != "" {
			shown = append(shown, []rune("… ")...)
		} else if end > indent {
			shown = append(shown, line[end:from]...)
		}
		if n == at {
			mark = len(shown)
		}
		if visible {
			shown = append(shown, line[from:to]...)
		} else {
			shown = append(shown, '…')
		}
		end = to
	}
	if s.key != nil {
		put(s.key, true)
	}
	if at == s.value {
		put(at, !s.secret && at.kind <= kindBool)
	}
	rest := strings.TrimSpace(string(line[end:]))
	if strings.HasPrefix(rest, ":") {
		shown = append(shown, ':')
		rest = strings.TrimSpace(rest[1:])
	}
	if rest != "" && (len(shown) == 0 || shown[len(shown)-1] != '…') {
		shown = append(shown, []rune(" …")...)
	}
	return printable(string(shown)), mark
}

const maxIndent = 40

// printable replaces what would not stay on one line of a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}
