package jsonrpc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// readEvents reads a stream to its end; each event is one line of text.
func readEvents(r *EventReader) (events []string, errs []error) {
	for {
		e, err := r.Next()
		if err == nil {
			events = append(events, fmt.Sprintf("%s|%s|%s|%s", e.ID, e.Name, e.Data, e.Retry))
			continue
		}
		errs = append(errs, err)
		if !errors.Is(err, ErrTooLong) {
			return events, errs
		}
	}
}

// sources gives the same bytes in different pieces.
func sources(input string) map[string]io.Reader {
	return map[string]io.Reader{
		"whole":    strings.NewReader(input),
		"halves":   iotest.HalfReader(strings.NewReader(input)),
		"one byte": iotest.OneByteReader(strings.NewReader(input)),
		"data+err": iotest.DataErrReader(strings.NewReader(input)),
	}
}

// MCP-33, MCP-34: events as the format says, whatever the pieces and line ends.
func TestEventReader(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	const lf = "\xef\xbb\xbfdata: {\"a\":1}\n\n" +
		": a comment\n\n" +
		"id: 7\nevent: message\ndata:{\"b\":\ndata: 2}\nunknown: x\nretry: 1500\n\n" +
		"id: 8\ndata\n\n" +
		"event: endpoint\ndata:  /m?s=1\n\n" +
		"event: nothing\n\n\n\n" +
		"data: a\n: inside\ndata: b\ndata:\n\n" +
		"retry: 10x\n\nretry:\n\nid: a\x00b\n\n" +
		"id\ndata: LONG\n\n" +
		"data: no blank line\n"
	text := strings.ReplaceAll(lf, "LONG", long)
	for end, input := range map[string]string{
		"LF": text, "CRLF": strings.ReplaceAll(text, "\n", "\r\n"), "CR": strings.ReplaceAll(text, "\n", "\r"),
	} {
		for name, src := range sources(input) {
			r := NewEventReader(src, ReaderOptions{})
			got, errs := readEvents(r)
			want(t, got, `|message|{"a":1}|0s`, "7|message|{\"b\":\n2}|1.5s", "8|message||0s", "|endpoint| /m?s=1|0s",
				"|message|a\nb\n|0s", "|message|"+long+"|0s", "|message|no blank line|0s")
			if len(errs) != 1 || errs[0] != io.EOF {
				t.Errorf("%s, %s: %v", end, name, errs)
			}
			if r.LastID() != "" {
				t.Errorf("%s, %s: last id %q was taken back", end, name, r.LastID())
			}
		}
	}
}

// Only the first line of a stream may begin with a byte order mark, also an empty
// one; anywhere else it is a part of a name that nobody knows.
func TestEventReaderByteOrderMark(t *testing.T) {
	const mark = "\xef\xbb\xbf"
	for input, events := range map[string][]string{
		mark + "\ndata: a\n\n":                {"|message|a|0s"},
		mark + "data: a\n\n":                  {"|message|a|0s"},
		"\n" + mark + "data: a\n\n":           {},
		mark + mark + "data: a\n\n":           {},
		": c\n\n" + mark + "id: 7\n\n":        {},
		mark + ": c\n" + mark + "data: a\n\n": {},
	} {
		for name, src := range sources(input) {
			if got, errs := readEvents(NewEventReader(src, ReaderOptions{})); len(errs) != 1 || errs[0] != io.EOF || !slices.Equal(got, events) {
				t.Errorf("%q, %s: %q %v, want %q", input, name, got, errs, events)
			}
		}
	}
}

// MCP-G3: an oversized event costs that event only, and its ends tell whose it
// was.
func TestEventReaderSurvivesLongEvents(t *testing.T) {
	long := `{"result":{"text":"` + strings.Repeat("x", 300_000) + `"},"jsonrpc":"2.0","id":"b-7"}`
	twice := `{"jsonrpc":"2.0","id":"b-8","result":"` + strings.Repeat("y", 600)
	exact := strings.Repeat("z", 1000)
	input := "data: a\n\ndata: " + long + "\nid: 5\n\ndata: b\n\ndata: " + twice + "\n: comment\ndata:" + twice + "\n\ndata: " + exact + "\n\n" +
		"data: " + strings.Repeat("d\ndata:", 1000) + "\n\ndata:" + exact + "!\n\n: " + strings.Repeat("c", 5000) + "\n\ndata: c\n\n"
	for name, src := range sources(input) {
		got, errs := readEvents(NewEventReader(src, ReaderOptions{Max: 1000}))
		want(t, got, "|message|a|0s", "|message|b|0s", "|message|"+exact+"|0s", "|message|c|0s")
		if errs[len(errs)-1] != io.EOF || len(errs) < 5 {
			t.Fatalf("%s: %v", name, errs)
		}
		for i, id := range []string{"b-7", "b-8"} {
			var e *TooLongError
			if !errors.As(errs[i], &e) || len(e.Prefix) > PrefixLen || len(e.Tail) > TailLen {
				t.Fatalf("%s: %v", name, errs[i])
			}
			if got, kind, ok := e.Salvage(); got != StringID(id) || kind != Response || !ok {
				t.Errorf("%s: salvaged %v %v %v", name, got, kind, ok)
			}
			if i == 0 && e.Size != int64(len(long)) {
				t.Errorf("%s: size %d, want %d", name, e.Size, len(long))
			}
		}
	}
}

func TestEventReaderReportsHalfAnEvent(t *testing.T) {
	boom := errors.New("boom")
	for _, tc := range []struct {
		src  io.Reader
		size int64
		want error
	}{
		{strings.NewReader("data: a\n\ndata: {\"half"), 6, io.ErrUnexpectedEOF},
		{strings.NewReader("data: a\n\ndata: one\ndata: two"), 6, io.ErrUnexpectedEOF},
		{io.MultiReader(strings.NewReader("data: a\n\ndata: {\"half"), iotest.ErrReader(boom)), 6, boom},
		{strings.NewReader("data: a\n\ndata: " + strings.Repeat("x", 500)), 500, io.ErrUnexpectedEOF},
		{iotest.OneByteReader(strings.NewReader("data: a\n\ndata: " + strings.Repeat("x", 500))), 500, io.ErrUnexpectedEOF},
	} {
		events, errs := readEvents(NewEventReader(tc.src, ReaderOptions{Max: 100}))
		want(t, events, "|message|a|0s")
		var partial *PartialError
		if last := errs[len(errs)-1]; !errors.As(last, &partial) || partial.Size != tc.size || !errors.Is(last, tc.want) {
			t.Errorf("%v, want %v after %d bytes", errs, tc.want, tc.size)
		}
	}
	if _, errs := readEvents(NewEventReader(iotest.ErrReader(boom), ReaderOptions{})); len(errs) != 1 || errs[0] != boom {
		t.Error(errs)
	}
}

// DESIGN section 9: a waiting reader is small again after a burst, and one that
// goes on to another stream remembers where the last one was.
func TestEventReaderShrinks(t *testing.T) {
	pr, pw := io.Pipe()
	r := NewEventReader(pr, ReaderOptions{})
	go func() {
		_, _ = pw.Write(append(AppendEvent(nil, "e-1", "", bytes.Repeat([]byte{'x'}, 3<<20)), "data: small\n\n"...))
		_ = pw.Close()
	}()
	if _, errs := readEvents(r); errs[0] != io.EOF {
		t.Fatal(errs)
	}
	if len(r.buf) != eventBuf {
		t.Errorf("buffer of %d bytes", len(r.buf))
	}
	r.Reset(strings.NewReader("data: b\n\n"), r.LastID())
	if e, err := r.Next(); err != nil || string(e.Data) != "b" || r.LastID() != "e-1" {
		t.Errorf("%+v %v, last id %q", e, err, r.LastID())
	}
	r.Release()
	if _, err := r.Next(); err != io.EOF {
		t.Error(err)
	}
}

func TestAppendEvent(t *testing.T) {
	for _, tc := range []struct{ id, event, frame, want string }{
		{"", "", `{"a":1}`, "data: {\"a\":1}\n\n"},
		{"7", "message", `{}`, "id: 7\nevent: message\ndata: {}\n\n"},
		{"7\ndata: x", "m\rn", `{}`, "id: 7\nevent: m\ndata: {}\n\n"},
		{"7", "", "", "id: 7\ndata: \n\n"},
		{"", "", "{\n \"a\":\r\n1\r}\n", "data: {\ndata:  \"a\":\ndata: 1\ndata: }\ndata: \n\n"},
	} {
		if got := string(AppendEvent([]byte("+"), tc.id, tc.event, []byte(tc.frame))); got != "+"+tc.want {
			t.Errorf("%q, want %q", got, tc.want)
		}
	}
	if got := string(AppendComment(AppendComment(AppendRetry(nil, 1500*time.Millisecond), "still here\nx"), "")); got != "retry: 1500\n: still here\n\n:\n\n" {
		t.Errorf("%q", got)
	}
}

// FuzzEventReader holds the reader against one that has the whole stream at
// once, and checks that what it reads does not depend on the pieces.
func FuzzEventReader(f *testing.F) {
	for _, s := range []string{
		"data: {}\n\n", "\xef\xbb\xbfid: 1\r\ndata: a\r\ndata: b\r\n\r\n", "data: a\rdata:b\r\rretry: 5\n\n: c\n\nevent: x\ndata\n",
		"data: 12345678901234567890123456789012345678901234567890\n\ndata: b\n\n", "data: x", "d\nda\ndat\ndata\n\n", "id: a\n\nid\n\ndata:\n\n",
	} {
		f.Add([]byte(s), uint8(40))
	}
	f.Fuzz(func(t *testing.T, input []byte, limit uint8) {
		opts := ReaderOptions{Max: int(limit) + 1}
		r := NewEventReader(bytes.NewReader(input), opts)
		got, errs := readEvents(r)
		one := NewEventReader(iotest.OneByteReader(bytes.NewReader(input)), opts)
		other, otherErrs := readEvents(one)
		if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", other) || one.LastID() != r.LastID() {
			t.Fatalf("%q, but in pieces %q", got, other)
		}
		if len(errs) != len(otherErrs) {
			t.Fatalf("%v, but in pieces %v", errs, otherErrs)
		}
		if len(input) <= int(limit) { // then nothing can be too long
			if want := simpleEvents(string(input)); fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
				t.Fatalf("%q, want %q", got, want)
			}
		}
	})
}

// simpleEvents is the format read in the plainest way.
func simpleEvents(input string) (events []string) {
	input = strings.ReplaceAll(strings.ReplaceAll(strings.TrimPrefix(input, "\xef\xbb\xbf"), "\r\n", "\n"), "\r", "\n")
	whole := strings.HasSuffix(input, "\n")
	lines := strings.Split(input, "\n")
	if whole {
		lines[len(lines)-1] = ""
	}
	e, data, said := Event{Name: EventMessage}, []string(nil), false
	for i, line := range lines {
		last := i == len(lines)-1
		if last && !whole {
			return events
		}
		if line == "" {
			if said {
				events = append(events, fmt.Sprintf("%s|%s|%s|%s", e.ID, e.Name, strings.Join(data, "\n"), e.Retry))
			}
			e, data, said = Event{Name: EventMessage}, nil, false
			continue
		}
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "data":
			data, said = append(data, value), true
		case "event":
			if e.Name = value; value == "" {
				e.Name = EventMessage
			}
		case "id":
			if strings.IndexFunc(value, func(c rune) bool { return c < ' ' || c == 0x7f }) < 0 {
				e.ID, said = value, true
			}
		case "retry":
			if ms := strings.Trim(value, "0123456789"); ms == "" && value != "" {
				n := int64(0)
				for _, c := range value {
					n = min(n*10+int64(c-'0'), int64(maxRetry/time.Millisecond))
				}
				e.Retry, said = time.Duration(n)*time.Millisecond, true
			}
		}
	}
	return events
}

// FuzzAppendEvent: what is written as an event is read as that event.
func FuzzAppendEvent(f *testing.F) {
	f.Add("1", "message", []byte(`{"a":1}`))
	f.Add("1\n2", "", []byte("{\r\n}\r"))
	f.Fuzz(func(t *testing.T, id, name string, frame []byte) {
		e, err := NewEventReader(bytes.NewReader(AppendEvent(nil, id, name, frame)), ReaderOptions{}).Next()
		plain := strings.ReplaceAll(strings.ReplaceAll(string(frame), "\r\n", "\n"), "\r", "\n")
		if err != nil || string(e.Data) != plain {
			t.Fatalf("%q: %+v %v", frame, e, err)
		}
	})
}
