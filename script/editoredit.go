package script

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// errEdit is wrapped by what keeps an edit from being made; the file is as it was.
var errEdit = errors.New("the edit does not fit the file")

// edit is one change of a file. It has one of two forms: by lines (StartLine and
// Content), or by blocks (ExistingBlock and NewBlock), and both are documented
// (AT-81).
type edit struct {
	StartLine *int    `json:"startLine"`
	Content   *string `json:"content"`

	ExistingBlock *string `json:"existingBlock"`
	NewBlock      *string `json:"newBlock"`
	ContextBefore string  `json:"contextBefore"`
	ContextAfter  string  `json:"contextAfter"`
	StartLineHint int     `json:"startLineHint"`
}

// parseEdits reads what a script passed, all of one form. lines says which.
func parseEdits(text string) (list []edit, lines bool, err error) {
	wrong := errors.New("operations are an array of {startLine, content} or of {existingBlock, newBlock}")
	d := json.NewDecoder(strings.NewReader(text))
	if first, err := d.Token(); err != nil || first != json.Delim('[') {
		return nil, false, wrong
	}
	for d.More() { // one by one: a list may be long beyond all measure
		var e edit
		switch err := d.Decode(&e); {
		case err != nil:
			return nil, false, wrong
		case len(list) == maxEditorEdits:
			return nil, false, fmt.Errorf("at most %d operations are possible at once", maxEditorEdits)
		}
		list = append(list, e)
	}
	if len(list) == 0 {
		return nil, false, errors.New("there are no operations")
	}
	for i, e := range list {
		byLines, byBlocks := e.StartLine != nil && e.Content != nil, e.ExistingBlock != nil && e.NewBlock != nil
		if byLines == byBlocks || i > 0 && byLines != lines {
			return nil, false, fmt.Errorf("operation %d: each is {startLine, content}, or each is {existingBlock, newBlock}", i+1)
		}
		lines = byLines
	}
	return list, lines, nil
}

// splitLines cuts a text behind its line ends.
func splitLines(text string) []string {
	lines := strings.SplitAfter(text, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// unixLines makes line ends \n where all of them are \r\n, and says how to go back.
// A file with both kinds is left alone.
func unixLines(text string) (string, func(string) string) {
	ends := strings.Count(text, "\n")
	if ends == 0 || ends != strings.Count(text, "\r\n") {
		return text, func(s string) string { return s }
	}
	return strings.ReplaceAll(text, "\r\n", "\n"), func(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") }
}

// whole is a piece of content as whole lines.
func wholeLines(content string) string {
	content = strings.ReplaceAll(content, "\r\n", "\n")
	if content != "" && !strings.HasSuffix(content, "\n") {
		content += "\n"
	}
	return content
}

// insertLines puts each content before its line. Lines are those of the text as it
// was; what goes before the same line keeps its order. Line n+1 is the end.
func insertLines(text string, list []edit) (string, error) {
	text, back := unixLines(text)
	lines := splitLines(text)
	before := make([][]string, len(lines)+1)
	for _, e := range list {
		at := *e.StartLine
		if at < 1 || at > len(lines)+1 {
			return "", fmt.Errorf("%w: it has %d lines, and line %d is asked for", errEdit, len(lines), at)
		}
		before[at-1] = append(before[at-1], wholeLines(*e.Content))
	}
	var b strings.Builder
	for i, line := range lines {
		for _, s := range before[i] {
			b.WriteString(s)
		}
		b.WriteString(line)
	}
	if last := before[len(lines)]; len(last) > 0 {
		if b.Len() > 0 && !strings.HasSuffix(b.String(), "\n") {
			b.WriteByte('\n')
		}
		for _, s := range last {
			b.WriteString(s)
		}
	}
	return back(b.String()), nil
}

// replaceLines puts each content over as many lines as it has, from its line on.
// Lines are those of the text as it was, and no two may meet.
func replaceLines(text string, list []edit) (string, error) {
	text, back := unixLines(text)
	lines := splitLines(text)
	ended := strings.HasSuffix(text, "\n")
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b edit) int { return *a.StartLine - *b.StartLine })
	var b strings.Builder
	next := 0 // the first line that is not written yet
	for _, e := range list {
		at, content := *e.StartLine-1, wholeLines(*e.Content)
		switch {
		case at < 0 || at >= len(lines):
			return "", fmt.Errorf("%w: it has %d lines, and line %d is asked for", errEdit, len(lines), *e.StartLine)
		case at < next:
			return "", fmt.Errorf("%w: two operations replace line %d", errEdit, *e.StartLine)
		}
		for _, line := range lines[next:at] {
			b.WriteString(line)
		}
		next = min(at+max(strings.Count(content, "\n"), 1), len(lines))
		if next == len(lines) && !ended {
			content = strings.TrimSuffix(content, "\n")
		}
		b.WriteString(content)
	}
	for _, line := range lines[next:] {
		b.WriteString(line)
	}
	return back(b.String()), nil
}

// replaceBlocks puts one block in the place of another, one after the other. A block
// that is there more than once needs its surroundings, or a line to be near to: a
// guess would change what nobody looked at.
func replaceBlocks(text string, list []edit) (string, error) {
	text, back := unixLines(text)
	for i, e := range list {
		old := strings.ReplaceAll(*e.ExistingBlock, "\r\n", "\n")
		if old == "" {
			return "", fmt.Errorf("%w: the existing block of operation %d is empty", errEdit, i+1)
		}
		at, err := find(text, old, e)
		if err != nil {
			return "", fmt.Errorf("%w of operation %d", err, i+1)
		}
		text = text[:at] + strings.ReplaceAll(*e.NewBlock, "\r\n", "\n") + text[at+len(old):]
		if len(text) > 2*MaxEditorFile {
			return "", errEditorLarge
		}
	}
	return back(text), nil
}

// maxEditorPlaces bounds how often a block may be there and still be looked for.
const maxEditorPlaces = 10_000

// find is where the block of an edit lies.
func find(text, block string, e edit) (int, error) {
	var places []int
	for from, seen := 0, 0; ; seen++ {
		at := strings.Index(text[from:], block)
		if at < 0 {
			break
		}
		if seen == maxEditorPlaces {
			return 0, fmt.Errorf("%w: it has the existing block more than %d times", errEdit, maxEditorPlaces)
		}
		if at += from; fits(text, at, at+len(block), e) {
			places = append(places, at)
		}
		from = at + 1
	}
	switch {
	case len(places) == 0:
		return 0, fmt.Errorf("%w: it does not have the existing block", errEdit)
	case len(places) == 1:
		return places[0], nil
	case e.StartLineHint < 1:
		return 0, fmt.Errorf("%w: it has the existing block %d times", errEdit, len(places))
	}
	best, distance, tie, line, counted := 0, -1, false, 1, 0
	for _, at := range places {
		line += strings.Count(text[counted:at], "\n")
		counted = at
		switch d := max(line-e.StartLineHint, e.StartLineHint-line); {
		case distance < 0 || d < distance:
			best, distance, tie = at, d, false
		case d == distance:
			tie = true
		}
	}
	if tie {
		return 0, fmt.Errorf("%w: it has the existing block %d times, two of them equally near to line %d", errEdit, len(places), e.StartLineHint)
	}
	return best, nil
}

// fits compares what stands around a block with what the edit says of it. Some line
// ends between the two do not count.
func fits(text string, from, to int, e edit) bool {
	const ends, some = "\r\n", 16
	before := strings.Trim(strings.ReplaceAll(e.ContextBefore, "\r\n", "\n"), ends)
	after := strings.Trim(strings.ReplaceAll(e.ContextAfter, "\r\n", "\n"), ends)
	left := text[max(0, from-len(before)-some):from]
	right := text[to:min(len(text), to+len(after)+some)]
	return strings.HasSuffix(strings.TrimRight(left, ends), before) && strings.HasPrefix(strings.TrimLeft(right, ends), after)
}
