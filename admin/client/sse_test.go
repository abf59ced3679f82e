package client

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// FuzzSSE: whatever a server sends, and however it is cut into pieces, is taken
// apart in the same way, without a panic.
func FuzzSSE(f *testing.F) {
	for _, s := range []string{
		"id: a-1\nevent: run.changed\ndata: {}\n\n", ": beat\n\n", "data: a\r\ndata: b\r\n\r\n", "data\n\n\n", "id: x\x00\ndata: y\n\n",
		"event: cut off\ndata: x\n", "\n\n\n", "data:a\n\nid: 2\n\ndata:b\n\n", "unknown: field\n\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		whole := readAll(t, bytes.NewReader(text))
		pieces := readAll(t, iotest.OneByteReader(bytes.NewReader(text)))
		if whole != pieces {
			t.Errorf("%q in pieces: %q, want %q", text, pieces, whole)
		}
	})
}

func readAll(t *testing.T, r io.Reader) string {
	t.Helper()
	var all strings.Builder
	for in := newSSEReader(r); ; {
		e, err := in.next()
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, errLine):
			return all.String()
		case err != nil:
			t.Fatal(err)
		}
		all.WriteString(e.String() + "|")
	}
}

// TestSSE: the fields that matter, and what is no event.
func TestSSE(t *testing.T) {
	const text = ": hello\n\nid: 1\nevent: a\ndata: x\ndata: y\n\ndata: z\n\nid: 3\nretry: 5\ndata:\n\ndata: cut off\n"
	if got, want := readAll(t, strings.NewReader(text)), "1 a x\ny|1  z|3  |"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	long := "data: " + strings.Repeat("x", maxLine+1) + "\n\n"
	if _, err := newSSEReader(strings.NewReader(long)).next(); !errors.Is(err, errLine) {
		t.Errorf("an endless line: %v", err)
	}
	many := strings.Repeat("data: "+strings.Repeat("x", 1<<20)+"\n", 9)
	if _, err := newSSEReader(strings.NewReader(many)).next(); !errors.Is(err, errLine) {
		t.Errorf("an endless event: %v", err)
	}
}
