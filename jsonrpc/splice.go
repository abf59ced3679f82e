package jsonrpc

import (
	"fmt"
	"slices"
)

// Edit replaces the bytes at At by New. An At with Start == End inserts. The new
// bytes are written as they are: they must be JSON that fits there.
type Edit struct {
	At  Span
	New []byte
}

// AppendSplice appends frame to dst with edits applied, copying each byte once.
// Every byte outside the edits stays as it is (MCP-G2). Edits may come in any
// order, those at one place are applied in the order given; the slice is sorted
// in place. dst must not overlap frame. Edits that overlap or lie outside the
// frame are a mistake in the calling code and panic, like a slice index.
func AppendSplice(dst, frame []byte, edits ...Edit) []byte {
	return appendSorted(slices.Grow(dst, splicedLen(frame, edits)), frame, edits)
}

// appendSorted is AppendSplice for edits that splicedLen has seen.
func appendSorted(dst, frame []byte, edits []Edit) []byte {
	at := 0
	for _, e := range edits {
		dst = append(dst, frame[at:e.At.Start]...)
		dst = append(dst, e.New...)
		at = e.At.End
	}
	return append(dst, frame[at:]...)
}

// splicedLen sorts and checks edits and returns the length of the result.
func splicedLen(frame []byte, edits []Edit) int {
	if len(edits) > 1 {
		slices.SortStableFunc(edits, func(a, b Edit) int { return a.At.Start - b.At.Start })
	}
	n, at := len(frame), 0
	for _, e := range edits {
		if e.At.Start < at || e.At.End < e.At.Start || e.At.End > len(frame) {
			panic(fmt.Sprintf("jsonrpc: edit [%d:%d] overlaps another or lies outside the frame of %d bytes", e.At.Start, e.At.End, len(frame)))
		}
		at = e.At.End
		n += len(e.New) - e.At.Len()
	}
	return n
}

// AppendInsertMember appends frame to dst with one more member, key and raw JSON
// value, put in front of the members of the object at s. The key must not be
// there yet. It is how a _meta entry is added. Like AppendSplice it panics when
// there is no object at s.
func AppendInsertMember(dst, frame []byte, s Span, key string, value []byte) []byte {
	return AppendSplice(dst, frame, InsertMember(frame, s, key, value))
}

// InsertMember returns the [Edit] that AppendInsertMember makes, to be joined with
// others.
func InsertMember(frame []byte, s Span, key string, value []byte) Edit {
	if KindAt(frame, s) != ObjectValue {
		panic(fmt.Sprintf("jsonrpc: no object at [%d:%d] to insert %q into", s.Start, s.End, key))
	}
	at := s.Start + 1
	text := make([]byte, 0, len(key)+len(value)+4)
	text = appendString(text, key)
	text = append(text, ':')
	text = append(text, value...)
	if i := skipSpace(frame[:s.End], at); i < s.End && frame[i] != '}' {
		text = append(text, ',')
	}
	return Edit{At: Span{at, at}, New: text}
}
