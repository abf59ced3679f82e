package ledger

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/belayhq/belay"
)

func names(runs []Entry) []string {
	var list []string
	for _, r := range runs {
		list = append(list, r.Name)
	}
	return list
}

// TestFilters: each condition narrows, together they narrow further.
func TestFilters(t *testing.T) {
	l := open(t, at(t), Options{})
	start := time.Now().Add(-time.Hour)
	list := numbered(6, func(i int) belay.Detail {
		d := ended("", []string{"ann", "bob"}[i%2])
		switch i {
		case 1:
			d = cancelled("", "bob", "eve", "r")
		case 2:
			d = inFlight("", "ann")
		case 3:
			d.Outcome, d.Kind, d.Server = belay.Failed, belay.KindScript, "other"
		}
		d.Name = fmt.Sprint(i)
		d.Labels = map[string]string{"parity": fmt.Sprint(i % 2)}
		if i >= 4 {
			d.Labels["trace"] = "t1"
		}
		d.Address = []string{`7`, `"7"`, `"a\u00e9\"b"`, `1.5`, `"broken`, ``}[i]
		return d
	})
	list[4].Parent, list[5].Parent = list[0].ID, list[4].ID
	must(t, l.Commit(t.Context(), list...))
	for name, c := range map[string]struct {
		q    Query
		want string
	}{
		"all":         {Query{}, "5 4 3 2 1 0"},
		"outcome":     {Query{Outcomes: []belay.Outcome{belay.Cancelled}}, "1"},
		"outcomes":    {Query{Outcomes: []belay.Outcome{belay.Pending, belay.Failed, belay.Cancelled, belay.Failed}}, "3 2 1"},
		"in flight":   {Query{InFlight: true}, "2"},
		"cancelled":   {Query{Cancelled: true}, "1"},
		"verdict":     {Query{Verdicts: []belay.Verdict{belay.Confirmed, belay.Signalled}}, "1"},
		"stopped by":  {Query{StoppedBy: "eve"}, "1"},
		"kind":        {Query{Kinds: []belay.Kind{belay.KindScript, belay.KindTask}}, "3"},
		"owner":       {Query{Owner: "ann"}, "4 2 0"},
		"server":      {Query{Server: "other"}, "3"},
		"label":       {Query{Labels: map[string]string{"parity": "1"}}, "5 3 1"},
		"labels":      {Query{Labels: map[string]string{"parity": "1", "trace": "t1"}}, "5"},
		"under":       {Query{Under: list[0].ID}, "5 4 0"},
		"under label": {Query{Under: list[0].ID, Labels: map[string]string{"trace": "t1"}}, "5 4"},
		"since":       {Query{Since: list[4].Started}, "5 4"},
		"before":      {Query{Before: list[1].Started}, "0"},
		"age span":    {Query{Since: start.Add(-time.Minute), Before: time.Now(), Owner: "bob", Outcomes: []belay.Outcome{belay.Completed}}, "5"},
		"nothing":     {Query{Owner: "' OR 1=1 --"}, ""},
		"request":     {Query{Request: "7"}, "1 0"}, // ORC-70
		"its owner":   {Query{Request: "7", Owner: "ann"}, "0"},
		"escapes":     {Query{Request: `aé"b`}, "2"},
		"fraction":    {Query{Request: "1.5"}, "3"},
		"no JSON":     {Query{Request: `"broken`}, "4"},
		"as written":  {Query{Request: `"7"`}, ""},
		"stop":        {Query{Stop: list[1].Cancellation.Stop}, "1"},
		"other stop":  {Query{Stop: belay.NewStopID()}, ""},
		"receipt":     {Query{Receipt: true}, "1"},
		"all of it":   {Query{Receipt: true, Stop: list[1].Cancellation.Stop, Request: "7", Owner: "bob", Labels: map[string]string{"parity": "1"}, Behind: list[2].ID}, "1"},
		"behind":      {Query{Behind: list[2].ID}, "1 0"},
		"not behind":  {Query{Behind: list[1].ID, Receipt: true}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := l.List(t.Context(), c.q)
			must(t, err)
			if got := strings.Join(names(p.Runs), " "); got != c.want || p.Next != "" {
				t.Errorf("got %q (next %q), want %q", got, p.Next, c.want)
			}
			whole, next, err := l.Find(t.Context(), c.q)
			must(t, err)
			for i, r := range whole {
				if r.ID != p.Runs[i].ID || (r.Receipt != nil) != (r.Cancellation != nil) {
					t.Errorf("found %+v", r)
				}
			}
			if len(whole) != len(p.Runs) || next != "" {
				t.Errorf("found %d", len(whole))
			}
		})
	}
	for _, q := range []Query{{Limit: -1}, {Limit: MaxLimit + 1}, {Cursor: "x"}, {Cursor: cursorOf(belay.RunID{})}} {
		if _, err := l.List(t.Context(), q); !errors.Is(err, belay.ErrBadRequest) {
			t.Errorf("%+v: %v", q, err)
		}
	}
}

// TestPaging: every run comes once, newest first, while others are added.
func TestPaging(t *testing.T) {
	l := open(t, at(t), Options{})
	list := numbered(60, func(i int) belay.Detail {
		d := ended("", "ann")
		d.Outcome = []belay.Outcome{belay.Completed, belay.Failed}[i%2]
		d.Labels = map[string]string{"k": "v"}
		return d
	})
	must(t, l.Commit(t.Context(), list...))
	for name, q := range map[string]Query{
		"all": {}, "outcomes": {Outcomes: []belay.Outcome{belay.Failed, belay.Completed}},
		"label": {Labels: map[string]string{"k": "v"}}, "owner": {Owner: "ann"},
	} {
		q.Limit = 7
		q.Before = time.Now().Add(-time.Minute) // what is added below is newer
		var got []string
		for {
			p, err := l.List(t.Context(), q)
			must(t, err)
			got = append(got, names(p.Runs)...)
			late := ended("late", "ann")
			late.Labels = map[string]string{"k": "v"}
			must(t, l.Commit(t.Context(), late))
			if q.Cursor = p.Next; p.Next == "" {
				break
			}
		}
		slices.Reverse(got)
		for i := range list {
			if len(got) != len(list) || got[i] != fmt.Sprint(i) {
				t.Fatalf("%s: %v", name, got)
			}
		}
	}
}

// TestPlans: the common lists walk an index in their order; none sorts or reads
// the whole table.
func TestPlans(t *testing.T) {
	l := open(t, at(t), Options{})
	for _, q := range []Query{
		{Outcomes: []belay.Outcome{belay.Failed}},
		{Owner: "a"},
		{Server: "s"},
		{InFlight: true},
		{Cancelled: true},
		{StoppedBy: "a"},
		{Request: "1"},
		{Request: "1", Owner: "a"},
		{Receipt: true},
		{Receipt: true, Owner: "a"},
		{Stop: belay.NewStopID()},
		{Behind: belay.NewRunID()},
		{Owner: "a", Outcomes: []belay.Outcome{belay.Failed}},
		{Labels: map[string]string{"a": "b", "c": "d"}},
		{Since: time.Now()},
		{Cursor: cursorOf(belay.NewRunID()), Outcomes: []belay.Outcome{belay.Failed}},
	} {
		all := plan(t, l, q)
		if strings.Contains(all, "TEMP B-TREE") || strings.Contains(all, "SCAN runs") && !strings.Contains(all, "USING") {
			t.Errorf("%+v: %s", q, all)
		}
		if q.Request != "" && q.Owner != "" && !strings.Contains(all, "runs_owner_request") {
			t.Errorf("one's own small id is looked for among everybody's: %s", all)
		}
	}
}

// plan is how SQLite finds what a query asks for.
func plan(t *testing.T, l *Ledger, q Query) string {
	t.Helper()
	text, args, err := q.sql(columns, 50)
	must(t, err)
	rows, err := l.readers.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+text, args...)
	must(t, err)
	defer rows.Close()
	var steps []string
	for rows.Next() {
		var id, parent, x int
		var detail string
		must(t, rows.Scan(&id, &parent, &x, &detail))
		steps = append(steps, detail)
	}
	must(t, rows.Err())
	return strings.Join(steps, "; ")
}

// TestExport: JSON lines can be read back; a CSV cell is never a formula.
func TestExport(t *testing.T) {
	l := open(t, at(t), Options{})
	evil := []string{"=1+1", "+1", "-1", "@SUM(A1)", "  =1", "\t=1", "＝1", "|calc", "ok", "a,\"b\"\n=c"}
	list := numbered(len(evil), func(i int) belay.Detail { return cancelled(evil[i], "ann", "bob", evil[i]) })
	must(t, l.Commit(t.Context(), append(list, ended("no receipt", "ann"))...))

	var text bytes.Buffer
	must(t, l.Export(t.Context(), &text, JSONLines, Query{Owner: "ann"}))
	dec := json.NewDecoder(&text)
	n := 0
	for dec.More() {
		var r Record
		must(t, dec.Decode(&r))
		if r.Receipt == nil || r.Receipt.Run != r.ID || r.Cancellation.By != "bob" {
			t.Errorf("record %+v", r)
		}
		n++
	}
	if n != len(evil) {
		t.Errorf("%d records, want %d", n, len(evil))
	}

	text.Reset()
	must(t, l.Export(t.Context(), &text, CSV, Query{}))
	rows, err := csv.NewReader(&text).ReadAll()
	must(t, err)
	if len(rows) != len(evil)+1 || !slices.Equal(rows[0], csvHead) {
		t.Fatalf("%d rows, head %v", len(rows), rows[0])
	}
	for _, row := range rows[1:] {
		for i, cell := range row {
			if cell != "" && strings.ContainsAny(cell[:1], "=+-@\t\r|") || strings.HasPrefix(strings.TrimSpace(cell), "=") || strings.HasPrefix(cell, "＝") {
				t.Errorf("%s: %q is a formula", csvHead[i], cell)
			}
		}
	}
	text.Reset()
	must(t, l.Export(t.Context(), &text, JSONLines, Query{Limit: 3}))
	if n := strings.Count(text.String(), "\n"); n != 3 {
		t.Errorf("limit 3: %d", n)
	}
	if err := l.Export(t.Context(), &text, "xml", Query{}); !errors.Is(err, belay.ErrBadRequest) {
		t.Errorf("format xml: %v", err)
	}
}

// TestCursors: what is accepted is exactly what is given out, and nothing panics.
// A property and not a fuzz target, for which all of SQLite would be built anew.
func TestCursors(t *testing.T) {
	for _, s := range []string{cursorOf(belay.NewRunID()), "", "AQ", strings.Repeat("_", 23), strings.Repeat("A", 22) + "\n"} {
		checkCursor(t, s)
	}
	rapid.Check(t, func(t *rapid.T) {
		checkCursor(t, rapid.OneOf(rapid.String(), rapid.StringMatching(`[A-Za-z0-9_-]{20,24}`)).Draw(t, "cursor"))
	})
}

func checkCursor(t interface{ Errorf(string, ...any) }, s string) {
	id, err := parseCursor(s)
	switch {
	case err == nil && cursorOf(id) != s:
		t.Errorf("%q and %q are the same cursor", s, cursorOf(id))
	case err != nil && !errors.Is(err, ErrBadCursor):
		t.Errorf("%q: %v", s, err)
	}
}
