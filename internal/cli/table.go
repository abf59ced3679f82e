package cli

import (
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// cell is one piece of text in a table.
type cell struct {
	text string
	tone tone
}

// column is how a column behaves when the terminal is too narrow.
type column struct {
	head string
	min  int // may be cut down to so many columns; 0: never cut
}

// table is rows under heads; a note is a line of its own below its row.
type table struct {
	columns []column
	rows    [][]cell
	notes   map[int]string // by row
}

const gap = 2 // blanks between two columns

func (t *table) add(cells ...cell) { t.rows = append(t.rows, cells) }

func (t *table) note(text string) {
	if t.notes == nil {
		t.notes = make(map[int]string)
	}
	t.notes[len(t.rows)-1] = text
}

// hide leaves out a column.
func (t *table) hide(head string) {
	at := slices.IndexFunc(t.columns, func(c column) bool { return c.head == head })
	if at < 0 {
		return
	}
	t.columns = slices.Delete(t.columns, at, at+1)
	for i, row := range t.rows {
		t.rows[i] = slices.Delete(row, at, at+1)
	}
}

// widths are as wide as the text, then cut where that is allowed, the last
// column first, until the table fits.
func (t *table) widths(limit int) []int {
	widths := make([]int, len(t.columns))
	total := gap * (len(widths) - 1)
	for i, c := range t.columns {
		widths[i] = utf8.RuneCountInString(c.head)
		for _, row := range t.rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i].text))
		}
		total += widths[i]
	}
	for i := len(widths) - 1; i >= 0 && limit > 0 && total > limit; i-- {
		if least := t.columns[i].min; least > 0 && widths[i] > least {
			cut := min(total-limit, widths[i]-least)
			widths[i] -= cut
			total -= cut
		}
	}
	return widths
}

// print writes the table. Columns in which nothing stands are left out.
func (t *table) print(w io.Writer, st style) {
	t.dropEmpty()
	widths := t.widths(st.width)
	line := func(cells []cell) {
		var b strings.Builder
		for i, c := range cells {
			text := fit(c.text, widths[i])
			b.WriteString(st.paint(c.tone, text))
			if i < len(cells)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(text)+gap))
			}
		}
		_, _ = io.WriteString(w, strings.TrimRight(b.String(), " ")+"\n")
	}
	heads := make([]cell, len(t.columns))
	for i, c := range t.columns {
		heads[i] = cell{c.head, faint}
	}
	line(heads)
	for i, row := range t.rows {
		line(row)
		if note := t.notes[i]; note != "" {
			_, _ = io.WriteString(w, "  "+st.paint(warn, note)+"\n")
		}
	}
}

func (t *table) dropEmpty() {
	for i := range slices.Backward(t.columns) {
		empty := true
		for _, row := range t.rows {
			empty = empty && row[i].text == ""
		}
		if !empty {
			continue
		}
		t.columns = append(t.columns[:i:i], t.columns[i+1:]...)
		for j, row := range t.rows {
			t.rows[j] = append(row[:i:i], row[i+1:]...)
		}
	}
}
