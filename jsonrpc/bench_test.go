package jsonrpc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
)

// benchFrame is a tool result of about n bytes: text like that of real servers,
// or a list of many small records.
func benchFrame(n int, records bool) []byte {
	var b bytes.Buffer
	b.WriteString(`{"jsonrpc":"2.0","id":"b-12345","result":{"content":[`)
	sep := ""
	for b.Len() < n-40 {
		if records {
			fmt.Fprintf(&b, `%s{"type":"row","n":%d,"ok":true,"tags":["a","b"],"name":"record %[2]d"}`, sep, b.Len())
		} else {
			const words = `The quick brown fox\njumps over \"it\". `
			fmt.Fprintf(&b, `%s{"type":"text","text":"%s"}`, sep, strings.Repeat(words, max(1, min(50, (n-b.Len())/len(words)-1))))
		}
		sep = ","
	}
	b.WriteString(`],"isError":false}}`)
	return b.Bytes()
}

var benchFrames = []struct {
	name  string
	frame []byte
}{
	{"100B", []byte(`{"jsonrpc":"2.0","id":12345,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hi"}}}`)},
	{"20KB", benchFrame(20<<10, false)},
	{"20KB-records", benchFrame(20<<10, true)},
	{"2MB", benchFrame(2<<20, false)},
	{"2MB-records", benchFrame(2<<20, true)},
}

func BenchmarkParse(b *testing.B) {
	for _, f := range benchFrames {
		b.Run(f.name, func(b *testing.B) {
			b.SetBytes(int64(len(f.frame)))
			b.ReportAllocs()
			var e Envelope
			for b.Loop() {
				if err := Parse(f.frame, &e); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkEncodingJSON is what Parse is compared with.
func BenchmarkEncodingJSON(b *testing.B) {
	for _, f := range benchFrames {
		b.Run(f.name, func(b *testing.B) {
			b.SetBytes(int64(len(f.frame)))
			b.ReportAllocs()
			for b.Loop() {
				var m map[string]json.RawMessage
				if err := json.Unmarshal(f.frame, &m); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkLookup(b *testing.B) {
	frame := []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"` +
		strings.Repeat("x", 500) + `","list":[1,2,{"a":[]}]},"_meta":{"progressToken":7,"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`)
	var e Envelope
	if err := Parse(frame, &e); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	keys := []string{"name", "_meta"}
	var out [2]Span
	for b.Loop() {
		if err := Lookup(frame, e.Params, keys, out[:]); err != nil || !out[1].Ok() {
			b.Fatal(err)
		}
		if s, ok, _ := Member(frame, out[1], "progressToken"); !ok || s.Len() != 1 {
			b.Fatal(s)
		}
	}
}

// BenchmarkPass is a relay between two pipes: Next, Parse, the id spliced,
// SendFrame. B/op is what it copies beyond the transport's own: near 0, because
// the one copy goes into memory that is used again.
func BenchmarkPass(b *testing.B) {
	for _, f := range benchFrames {
		if strings.HasSuffix(f.name, "records") {
			continue
		}
		b.Run(f.name, func(b *testing.B) { benchPass(b, f.frame) })
	}
}

func benchPass(b *testing.B, frame []byte) {
	line := append(bytes.Clone(frame), '\n')
	inR, inW, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	relayed := make(chan error, 1)
	go func() {
		r, w := NewReader(inR, ReaderOptions{}), NewWriter(outW, WriterOptions{})
		newID := []byte("7")
		var e Envelope
		for {
			line, err := r.Next()
			if err == io.EOF {
				relayed <- w.Close(b.Context())
				return
			}
			if err == nil {
				err = Parse(line, &e)
			}
			if err == nil {
				_, err = w.SendFrame(line, Edit{e.IDAt, newID})
			}
			if err != nil {
				relayed <- err
				return
			}
		}
	}()
	var e Envelope
	if err := Parse(frame, &e); err != nil {
		b.Fatal(err)
	}
	outLen := len(line) - e.IDAt.Len() + 1
	sink := make([]byte, 64<<10)
	wrote := make(chan struct{})
	b.SetBytes(int64(len(line)))
	b.ReportAllocs()
	// The writer to the relay runs beside, one message at a time.
	go func() {
		for range wrote {
			inW.Write(line)
		}
		inW.Close()
	}()
	for b.Loop() {
		wrote <- struct{}{}
		for got := 0; got < outLen; {
			n, err := outR.Read(sink)
			if err != nil {
				b.Fatal(err)
			}
			got += n
		}
	}
	close(wrote)
	if err := <-relayed; err != nil {
		b.Fatal(err)
	}
	inR.Close()
	outR.Close()
}

func BenchmarkSend(b *testing.B) {
	for _, f := range benchFrames {
		b.Run(f.name, func(b *testing.B) {
			w := NewWriter(io.Discard, WriterOptions{})
			b.SetBytes(int64(len(f.frame)))
			b.ReportAllocs()
			for b.Loop() {
				for {
					_, err := w.SendFrame(f.frame)
					if err == nil {
						break
					}
				}
			}
			if err := w.CloseNow(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

func BenchmarkTable(b *testing.B) {
	var t Table[int]
	var m Minter
	b.ReportAllocs()
	for b.Loop() {
		id := m.Next()
		if err := t.Add(id, 1); err != nil {
			b.Fatal(err)
		}
		if _, ok := t.Take(id); !ok {
			b.Fatal("lost")
		}
	}
}
