package jsonrpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

var fuzzFrames = []string{
	`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","_meta":{"progressToken":1.50}}}`,
	`{"result":{"content":[{"type":"text","text":"a\"}],{\\"}]},"jsonrpc":"2.0","id":"b-1"}`,
	` { "error" : {"code":-32700} , "id" : null , "jsonrpc" : "2.\u0030" } `,
	`{"\u0069d":"\ud83d\ude00","jsonrpc":"2.0","metho\u0064":"a","x":1,"x":2}`,
	`{"jsonrpc":"2.0","id":1,"ID":2,"method":"m"}`,
	`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"\ud800"}}`,
	`{"jsonrpc":"2.0","id":9007199254740993,"result":null}`,
	"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"\xff\"}",
	`[{"jsonrpc":"2.0","id":1,"method":"m"},7,[]]`,
	`[]`, `{}`, `{`, `"`, `1e5`, `[1,]`, `{"a":1,}`, strings.Repeat(`[`, 1100) + strings.Repeat(`]`, 1100),
}

// FuzzParse holds Parse against encoding/json. Differences that are wanted: our
// depth bound is 1000, not 10,000.
func FuzzParse(f *testing.F) {
	for _, s := range fuzzFrames {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		before := bytes.Clone(frame)
		var e Envelope
		err := Parse(frame, &e)
		if !bytes.Equal(frame, before) {
			t.Fatal("Parse wrote to the frame")
		}
		switch {
		case errors.Is(err, ErrDepth):
			return
		case errors.Is(err, ErrSyntax) == json.Valid(frame):
			t.Fatalf("Parse says %v, encoding/json says valid=%v", err, json.Valid(frame))
		case err != nil:
			if !errors.Is(err, ErrSyntax) && !errors.Is(err, ErrInvalid) {
				t.Fatalf("error of no family: %v", err)
			}
			return
		}
		checkMembers(t, frame, e.Object)
		checkAccepted(t, frame, &e)
	})
}

// FuzzValid holds the validating scanner against two parsers that were written
// by others. With a lead of spaces each byte gets to each place of a word.
func FuzzValid(f *testing.F) {
	seeds := append([]string{
		`"` + strings.Repeat("plain text, ", 20) + `"`, `"\u00e9\ud800\""`, `"\u12x4"`, `"\x"`, "\"tab\tin a string\"", "\"\x7f\xff\x80\"",
		`-`, `-0`, `00`, `1.`, `.5`, `1e`, `1E+`, `-1.5e-10`, `tru`, `nul`, `nulll`, `[1 2]`, `{"a" 1}`, `{"a":}`, `{a:1}`, `[}`, `{]`, `[[],{}]`, `{"a":{},"b":[]}`,
		`{"a":[1,{"b":[{}]}],"c":"d"}`, `[,]`, `[1,,2]`, `{,}`, `1 2`, `{} {}`,
	}, fuzzFrames...)
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		before := bytes.Clone(text)
		got := checkWhole(text, MaxDepth)
		if !bytes.Equal(text, before) {
			t.Fatal("it wrote to the text")
		}
		if got.deep {
			return
		}
		if want := json.Valid(text); got.ok() != want {
			t.Fatalf("%q: %+v, encoding/json says valid=%v", text, got, want)
		}
		options := []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}
		if want := jsontext.Value(text).IsValid(options...); got.ok() != want {
			t.Fatalf("%q: %+v, jsontext says valid=%v", text, got, want)
		}
		if got.at < 0 || got.at > len(text) {
			t.Fatalf("%q: %+v", text, got)
		}
		if shifted := checkWhole(append([]byte("   "), text...), MaxDepth); shifted.ok() != got.ok() {
			t.Fatalf("%q: %+v, behind white space %+v", text, got, shifted)
		}
	})
}

// checkAccepted holds what must be true of every frame that Parse accepts.
func checkAccepted(t *testing.T, frame []byte, e *Envelope) {
	if (e.Kind == Request) != (e.Method != "" && e.IDAt.Ok()) && e.MethodAt.Len() > 2 {
		t.Fatalf("kind %v", e.Kind)
	}
	if e.IDAt.Ok() != !e.ID.IsZero() || string(e.IDAt.Of(frame)) != e.ID.Raw() {
		t.Fatalf("id %v at %v", e.ID, e.IDAt)
	}
	if id, kind, ok := Salvage(frame, nil); ok != e.IDAt.Ok() || id != e.ID || kind != e.Kind {
		t.Fatalf("Salvage of the whole: %v %v %v, Parse: %v %v", id, kind, ok, e.ID, e.Kind)
	}
	if !e.IDAt.Ok() {
		return
	}
	// Another id in and the old one back gives the same bytes.
	there := AppendSplice(nil, frame, Edit{e.IDAt, []byte(`"b-77"`)})
	var e2 Envelope
	if err := Parse(there, &e2); err != nil || e2.ID != StringID("b-77") || e2.Kind != e.Kind || e2.Method != e.Method {
		t.Fatalf("after the splice: %v %+v", err, e2)
	}
	back := AppendSplice(nil, there, Edit{e2.IDAt, e.ID.AppendTo(nil)})
	if !bytes.Equal(back, frame) {
		t.Fatalf("there and back:\n%q\n%q", frame, back)
	}
}

// checkMembers compares Members with encoding/json, at every level.
func checkMembers(t *testing.T, frame []byte, s Span) {
	switch KindAt(frame, s) {
	case ObjectValue:
		dec := json.NewDecoder(bytes.NewReader(s.Of(frame)))
		dec.Token()
		for m := range Members(frame, s) {
			key, err := dec.Token()
			if err != nil {
				t.Fatalf("Members yields %q too many: %v", m.Key.Of(frame), err)
			}
			if got, err := ReadString(frame, m.Key, 3*m.Key.Len()); err != nil || got != key && utf8.Valid(m.Key.Of(frame)) && !hasEscape(got) {
				t.Fatalf("name %q, encoding/json says %q (%v)", got, key, err)
			}
			if name, _ := key.(string); !strings.ContainsRune(name, utf8.RuneError) && !m.Named(frame, name) {
				t.Fatalf("%q is not Named %q", m.Key.Of(frame), name)
			}
			var v json.RawMessage
			if err := dec.Decode(&v); err != nil || !bytes.Equal(v, m.Value.Of(frame)) {
				t.Fatalf("value %q, encoding/json says %q (%v)", m.Value.Of(frame), v, err)
			}
			checkMembers(t, frame, m.Value)
		}
		if dec.More() {
			t.Fatal("Members stopped early")
		}
	case ArrayValue:
		var all []json.RawMessage
		if err := json.Unmarshal(s.Of(frame), &all); err != nil {
			t.Fatal(err)
		}
		n := 0
		for elem := range Elements(frame, s) {
			if n >= len(all) || !bytes.Equal(all[n], elem.Of(frame)) {
				t.Fatalf("element %d: %q", n, elem.Of(frame))
			}
			checkMembers(t, frame, elem)
			n++
		}
		if n != len(all) {
			t.Fatalf("%d elements, want %d", n, len(all))
		}
	}
}

// FuzzWalk lets the walkers loose on what is not valid JSON: no panic, no endless
// loop, and no span outside.
func FuzzWalk(f *testing.F) {
	for _, s := range fuzzFrames {
		f.Add([]byte(s), 0, len(s))
	}
	f.Fuzz(func(t *testing.T, frame []byte, start, end int) {
		s := Span{start, end}
		if !within(frame, s) {
			s = Span{0, len(frame)}
		}
		for m := range Members(frame, s) {
			if !within(frame, m.Key) || !within(frame, m.Value) {
				t.Fatalf("%+v", m)
			}
			m.Named(frame, "requestId")
		}
		for elem := range Elements(frame, s) {
			if !within(frame, elem) {
				t.Fatalf("%+v", elem)
			}
		}
		Path(frame, s, "params", "_meta")
		ReadString(frame, s, 10)
		ReadID(frame, s)
		KindAt(frame, Span{start, end})
	})
}

// FuzzID: an accepted id is echoed exactly, and two ids share a key exactly when
// they have one type and one value.
func FuzzID(f *testing.F) {
	seeds := []string{`1`, `"1"`, `1.0`, `null`, `"a"`, `"\u0061"`, `"\ud800"`, `"\ud83d\ude00"`, `"😀"`, `{}`, `"\"`, ` 7 `, "\"\xff\""}
	for i, a := range seeds {
		f.Add([]byte(a), []byte(seeds[(i+1)%len(seeds)]))
	}
	f.Fuzz(func(t *testing.T, textA, textB []byte) {
		a, errA := ParseID(textA)
		b, errB := ParseID(textB)
		if errA != nil {
			if !a.IsZero() || !errors.Is(errA, ErrID) && !errors.Is(errA, ErrSyntax) {
				t.Fatalf("%v %v", a, errA)
			}
			return
		}
		if a.Raw() != string(bytes.Trim(textA, " \t\r\n")) || !json.Valid([]byte(a.Raw())) || len(a.Raw()) > MaxIDLen {
			t.Fatalf("%q becomes %q", textA, a.Raw())
		}
		if again, err := ParseID([]byte(a.Raw())); err != nil || again != a {
			t.Fatalf("%v: %v %v", a, again, err)
		}
		if errB != nil {
			return
		}
		same := a.Kind() == b.Kind() && a.Raw() == b.Raw()
		if a.Kind() == IDString && b.Kind() == IDString {
			same = utf16Of(t, a.Raw()) == utf16Of(t, b.Raw())
		}
		if (a.Key() == b.Key()) != same || a.Same(b) != same || b.Same(a) != same {
			t.Fatalf("%v and %v: keys %q %q, want same=%v", a, b, a.Key(), b.Key(), same)
		}
	})
}

// utf16Of decodes a JSON string to UTF-16 units, the value that JSON gives it, by
// another way than the code under test: every unit becomes an escape first.
func utf16Of(t *testing.T, raw string) string {
	var out strings.Builder
	s := raw[1 : len(raw)-1]
	for len(s) > 0 {
		if s[0] == '\\' && s[1] == 'u' {
			out.WriteString(strings.ToLower(s[2:6]) + " ")
			s = s[6:]
			continue
		}
		n := 1
		if s[0] == '\\' {
			n = 2
		} else if _, size := utf8.DecodeRuneInString(s); size > 1 {
			n = size
		}
		var one string
		if err := json.Unmarshal([]byte(`"`+s[:n]+`"`), &one); err != nil {
			t.Fatal(err)
		}
		for _, r := range one {
			writeUnits(&out, r)
		}
		s = s[n:]
	}
	return out.String()
}

func writeUnits(out *strings.Builder, r rune) {
	const hex = "0123456789abcdef"
	units := []rune{r}
	if r >= 0x10000 {
		r -= 0x10000
		units = []rune{0xD800 + r>>10, 0xDC00 + r&0x3FF}
	}
	for _, u := range units {
		out.Write([]byte{hex[u>>12&15], hex[u>>8&15], hex[u>>4&15], hex[u&15], ' '})
	}
}

// FuzzSalvage: of a valid message, any two ends tell either nothing or the truth.
func FuzzSalvage(f *testing.F) {
	for i, s := range fuzzFrames {
		f.Add([]byte(s), uint(i*7), uint(i*11))
	}
	f.Fuzz(func(t *testing.T, frame []byte, cut, rest uint) {
		p, q := int(cut%uint(len(frame)+1)), int(rest%uint(len(frame)+1))
		id, kind, ok := Salvage(frame[:p], frame[q:])
		if ok == id.IsZero() {
			t.Fatalf("%v %v", id, ok)
		}
		var e Envelope
		if Parse(frame, &e) != nil {
			return
		}
		if ok && id != e.ID || kind != Unknown && kind != e.Kind {
			t.Fatalf("Salvage(%q, %q) = %v %v, truth is %v %v", frame[:p], frame[q:], id, kind, e.ID, e.Kind)
		}
	})
}

// FuzzBatch: batches are split as encoding/json would, and joined again.
func FuzzBatch(f *testing.F) {
	for _, s := range fuzzFrames {
		f.Add([]byte(s))
	}
	f.Add([]byte(` [ {"a":[1,2]} , "x,]" ] `))
	f.Fuzz(func(t *testing.T, frame []byte) {
		const limit = 10
		elems, err := SplitBatch(frame, limit)
		if errors.Is(err, ErrDepth) {
			return
		}
		var all []json.RawMessage
		ok := json.Unmarshal(frame, &all) == nil && IsBatch(frame) && len(all) > 0 && len(all) <= limit
		if ok != (err == nil) {
			// Over the limit we stop before the rest is validated.
			t.Fatalf("SplitBatch: %v, encoding/json: %d elements, ok=%v", err, len(all), ok)
		}
		if err != nil {
			return
		}
		for i := range all {
			if !bytes.Equal(all[i], elems[i]) {
				t.Fatalf("element %d: %q, want %q", i, elems[i], all[i])
			}
		}
		again, err := SplitBatch(AppendBatch(nil, elems...), limit)
		if err != nil || len(again) != len(elems) {
			t.Fatalf("joined: %v", err)
		}
	})
}

// pieces is a reader that returns pieces of random length, and now and then none.
type pieces struct {
	data []byte
	rng  *rand.Rand
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.data) == 0 {
		return 0, io.EOF
	}
	n := min(p.rng.IntN(1+p.rng.IntN(300)), len(b), len(p.data))
	copy(b, p.data[:n])
	p.data = p.data[n:]
	if len(p.data) == 0 && p.rng.IntN(2) == 0 {
		return n, io.EOF
	}
	return n, nil
}

// FuzzReader: whatever the pieces, the lines are those of strings.Split, and an
// overlong one is reported in its place.
func FuzzReader(f *testing.F) {
	f.Add([]byte("{\"a\":1}\n\r\n{}\r\nhalf"), uint64(1), 100)
	f.Add([]byte(strings.Repeat("x", 50)+"\n"+strings.Repeat("y", 20_000)+"\r\nz\n"), uint64(2), 49)
	f.Add([]byte(strings.Repeat("0123456789\n", 3000)), uint64(3), 10)
	f.Add([]byte("\r\r\n\r\n\n \n"), uint64(4), 1)
	f.Add([]byte(strings.Repeat("q", 200_000)+"\n"+strings.Repeat("r", 70_000)), uint64(5), 150_000)
	f.Fuzz(func(t *testing.T, input []byte, seed uint64, limit int) {
		limit = min(max(limit, 1), 1<<20)
		r := NewReader(&pieces{bytes.Clone(input), rand.New(rand.NewPCG(seed, 1))}, ReaderOptions{Max: limit})
		lines := strings.Split(string(input), "\n")
		last := lines[len(lines)-1]
		for _, line := range lines[:len(lines)-1] {
			line = strings.TrimSuffix(line, "\r")
			if blank := strings.Trim(line, " \t\r") == ""; blank && len(line) <= limit {
				continue
			}
			got, err := r.Next()
			if len(line) <= limit {
				if err != nil || string(got) != line {
					t.Fatalf("got %.60q, %v, want %.60q", got, err, line)
				}
				continue
			}
			var tooLong *TooLongError
			if !errors.As(err, &tooLong) || tooLong.Size != int64(len(line)) || !strings.HasPrefix(line, string(tooLong.Prefix)) ||
				!strings.HasSuffix(line, string(tooLong.Tail)) || len(tooLong.Prefix) == 0 || len(tooLong.Prefix) > PrefixLen || len(tooLong.Tail) > TailLen {
				t.Fatalf("line of %d bytes, limit %d: %v", len(line), limit, err)
			}
		}
		_, err := r.Next()
		if len(last) <= limit && strings.Trim(last, " \t\r") == "" {
			if err != io.EOF {
				t.Fatalf("at the end: %v", err)
			}
			return
		}
		var partial *PartialError
		if !errors.As(err, &partial) || partial.Size != int64(len(last)) || !errors.Is(err, io.ErrUnexpectedEOF) || !strings.HasPrefix(last, string(partial.Prefix)) {
			// A blank end is no line, even if it was long.
			if err == io.EOF && strings.Trim(last, " \t\r") == "" {
				return
			}
			t.Fatalf("after half a line of %d bytes: %v", len(last), err)
		}
	})
}
