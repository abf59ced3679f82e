package jsonrpc

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func readAll(r *Reader) (lines []string, errs []error) {
	for {
		line, err := r.Next()
		if err == nil {
			lines = append(lines, string(line))
			continue
		}
		errs = append(errs, err)
		if !errors.Is(err, ErrTooLong) {
			return lines, errs
		}
	}
}

// MCP-24: one message per line, whatever the pipe's pieces are.
func TestReaderCutsLines(t *testing.T) {
	input := "{\"a\":1}\n\n \t\r\n{\"b\":2}\r\n" + strings.Repeat("x", 100_000) + "\nlast\n"
	for name, src := range map[string]io.Reader{
		"whole":    strings.NewReader(input),
		"halves":   iotest.HalfReader(strings.NewReader(input)),
		"one byte": iotest.OneByteReader(strings.NewReader(input)),
		"data+err": iotest.DataErrReader(strings.NewReader(input)),
	} {
		lines, errs := readAll(NewReader(src, ReaderOptions{}))
		want(t, lines, `{"a":1}`, `{"b":2}`, strings.Repeat("x", 100_000), "last")
		if len(errs) != 1 || errs[0] != io.EOF {
			t.Errorf("%s: %v", name, errs)
		}
	}
}

// MCP-G3: an oversized line costs that line only, and its ends tell whose it was.
func TestReaderSurvivesLongLines(t *testing.T) {
	long := `{"result":{"text":"` + strings.Repeat("x", 300_000) + `"},"jsonrpc":"2.0","id":"b-7"}`
	input := "a\n" + long + "\r\nb\n" + strings.Repeat("y", 1001) + "\n" + strings.Repeat("z", 1000) + "\r\nc\n"
	for name, src := range map[string]io.Reader{
		"whole":    strings.NewReader(input),
		"one byte": iotest.OneByteReader(strings.NewReader(input)),
	} {
		lines, errs := readAll(NewReader(src, ReaderOptions{Max: 1000}))
		want(t, lines, "a", "b", strings.Repeat("z", 1000), "c")
		var tooLong *TooLongError
		if len(errs) != 3 || !errors.As(errs[0], &tooLong) {
			t.Fatalf("%s: %v", name, errs)
		}
		if tooLong.Size != int64(len(long)) || !strings.HasPrefix(long, string(tooLong.Prefix)) || !strings.HasSuffix(long, string(tooLong.Tail)) ||
			len(tooLong.Tail) == 0 || len(tooLong.Prefix) > PrefixLen || len(tooLong.Tail) > TailLen {
			t.Errorf("%s: size %d, %d, %d", name, tooLong.Size, len(tooLong.Prefix), len(tooLong.Tail))
		}
		if id, kind, ok := tooLong.Salvage(); id != StringID("b-7") || kind != Response || !ok {
			t.Errorf("%s: salvaged %v %v %v", name, id, kind, ok)
		}
		if !errors.As(errs[1], &tooLong) || tooLong.Size != 1001 {
			t.Errorf("%s: %v", name, errs[1])
		}
	}
}

func TestReaderReportsHalfALine(t *testing.T) {
	boom := errors.New("boom")
	for _, tc := range []struct {
		src  io.Reader
		max  int
		size int64
		want error
	}{
		{strings.NewReader("a\n{\"half"), 0, 6, io.ErrUnexpectedEOF},
		{io.MultiReader(strings.NewReader("a\n{\"half"), iotest.ErrReader(boom)), 0, 6, boom},
		{strings.NewReader("a\n" + strings.Repeat("x", 500)), 100, 500, io.ErrUnexpectedEOF},
		{iotest.OneByteReader(strings.NewReader("a\n" + strings.Repeat("x", 500))), 100, 500, io.ErrUnexpectedEOF},
	} {
		lines, errs := readAll(NewReader(tc.src, ReaderOptions{Max: tc.max}))
		want(t, lines, "a")
		last := errs[len(errs)-1]
		var partial *PartialError
		if !errors.As(last, &partial) || partial.Size != tc.size || !errors.Is(last, tc.want) {
			t.Errorf("%v, want %v after %d bytes", errs, tc.want, tc.size)
		}
	}
	_, errs := readAll(NewReader(iotest.ErrReader(boom), ReaderOptions{}))
	if len(errs) != 1 || errs[0] != boom {
		t.Error(errs)
	}
}

// DESIGN section 9: an idle reader is small again after a burst.
func TestReaderShrinks(t *testing.T) {
	big := append(bytes.Repeat([]byte{'x'}, 3<<20), '\n')
	src := io.MultiReader(bytes.NewReader(big), strings.NewReader("small\n"), strings.NewReader(strings.Repeat("s\n", 100)))
	r := NewReader(src, ReaderOptions{})
	for {
		if _, err := r.Next(); err != nil {
			break
		}
	}
	if len(r.buf) != tinyBuf {
		t.Errorf("buffer of %d bytes", len(r.buf))
	}
}

func TestIsNoise(t *testing.T) {
	for line, noise := range map[string]bool{"": true, " \t": true, "Listening on 3000": true, "\x1b[31m": true, `"x"`: true, "1": true, ` {"a":1}`: false, "[": false} {
		if IsNoise([]byte(line)) != noise {
			t.Errorf("IsNoise(%q) = %v", line, !noise)
		}
	}
}

// Ready tells when the next line is there already, and not about long ones.
func TestReady(t *testing.T) {
	long := strings.Repeat("x", readyWithin)
	r := NewReader(strings.NewReader("one\ntwo\n"+long+"\nlast"), ReaderOptions{})
	if r.Ready() {
		t.Error("ready before anything was read")
	}
	for _, want := range []bool{true, false, false} {
		if _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
		if r.Ready() != want {
			t.Errorf("ready %v, want %v", !want, want)
		}
	}
}
