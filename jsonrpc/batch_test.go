package jsonrpc

import (
	"errors"
	"strings"
	"testing"
)

// MCP-40, MCP-G38: batches of the 2025-03-26 revision are split into messages.
func TestSplitBatch(t *testing.T) {
	frame := ` [ {"jsonrpc":"2.0","id":1,"method":"a"} ,{"jsonrpc":"2.0","method":"b","params":[1,2]},7,[{"jsonrpc":"2.0","method":"c"}] ] `
	if !IsBatch([]byte(frame)) || IsBatch([]byte(` {"a":[]}`)) || IsBatch(nil) {
		t.Error("IsBatch")
	}
	elems, err := SplitBatch([]byte(frame), 0)
	if err != nil || len(elems) != 4 {
		t.Fatalf("%q %v", elems, err)
	}
	// Each bad element gets its own error; a nested batch is one.
	for i, bad := range []bool{false, false, true, true} {
		var e Envelope
		if err := Parse(elems[i], &e); (err != nil) != bad || bad && !errors.Is(err, ErrNotObject) {
			t.Errorf("element %d: %v", i, err)
		}
	}
}

func TestSplitBatchRefuses(t *testing.T) {
	for _, tc := range []struct {
		frame string
		want  error
	}{
		{`[]`, ErrEmptyBatch},
		{` [ ] `, ErrEmptyBatch},
		{`[1,2,3,4]`, ErrBatchTooLong},
		{`[1,2`, ErrSyntax},
		{`[1,2,]`, ErrSyntax},
		{`[1] 2`, ErrSyntax},
		{``, ErrSyntax},
		{`{}`, ErrInvalid},
		{`{`, ErrSyntax},
		{strings.Repeat(`[`, MaxDepth+2) + strings.Repeat(`]`, MaxDepth+2), ErrDepth},
	} {
		if elems, err := SplitBatch([]byte(tc.frame), 3); !errors.Is(err, tc.want) || elems != nil || Code(err) == 0 {
			t.Errorf("%.40s: %q, %v", tc.frame, elems, err)
		}
	}
	if elems, err := SplitBatch([]byte(`[1,2,3]`), 3); err != nil || len(elems) != 3 {
		t.Errorf("batch at the limit: %v", err)
	}
}
