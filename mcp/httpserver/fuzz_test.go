package httpserver

import (
	"bytes"
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
)

// MCP-59: whatever a header says, decoding gives UTF-8 text or a refusal for
// the base64 form, and the value itself for every other.
func FuzzDecodeHeader(f *testing.F) {
	for _, s := range []string{"", "now", "=?base64?bm93?=", "=?base64??=", "=?base64?=", "=?base64?!?=", "=?base64?/w==?=", "=?BASE64?bm93?="} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		got, ok := DecodeHeader(value)
		inner, framed := strings.CutPrefix(value, "=?base64?")
		inner, closed := strings.CutSuffix(inner, "?=")
		if !framed || !closed || len(value) < len("=?base64??=") {
			if !ok || got != value {
				t.Fatalf("%q became %q, %v", value, got, ok)
			}
			return
		}
		if !ok {
			return
		}
		if !utf8.ValidString(got) {
			t.Fatalf("%q became %q", value, got)
		}
		if back := base64.StdEncoding.EncodeToString([]byte(got)); back != strings.NewReplacer("\r", "", "\n", "").Replace(inner) {
			t.Fatalf("%q became %q, which is %q", value, got, back)
		}
	})
}

// MCP-60: a header's text and a body's string are the same exactly when the
// decoded texts are.
func FuzzSameText(f *testing.F) {
	f.Add(`"now"`, "now")
	f.Add(`"n\u006fw"`, "now")
	f.Add(`"a\\b"`, `a\b`)
	f.Add(`7`, "7")
	f.Fuzz(func(t *testing.T, value, text string) {
		frame := []byte(`{"v":` + value + `}`)
		var e jsonrpc.Envelope
		_ = jsonrpc.Parse(frame, &e) // no message; only whether it is valid JSON counts
		at, ok, err := jsonrpc.Member(frame, jsonrpc.Span{Start: 0, End: len(frame)}, "v")
		if !ok || err != nil || len(value) == 0 {
			return
		}
		decoded, err := jsonrpc.ReadString(frame, at, len(frame))
		want := err == nil && decoded == text
		if !utf8.ValidString(text) || !utf8.ValidString(value) {
			return
		}
		if got := sameText(frame, at, text); got != want {
			t.Fatalf("%s is %q: %v", value, text, got)
		}
	})
}

// MCP-33: an event has one name: what is read is what was written.
func FuzzEventID(f *testing.F) {
	for _, s := range []string{"1-1", "0-0", "18446744073709551615-1", "1-", "-1", "01-1", "+1-1", "1-1-1", "1_1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if id, ok := parseEventID(text); ok && string(id.append(nil)) != text {
			t.Fatalf("%q is %+v", text, id)
		}
	})
}

// An event is one data line whatever the frame looks like, and the same
// message.
func FuzzEvent(f *testing.F) {
	f.Add([]byte("{\"a\":\n1}"), true)
	f.Fuzz(func(t *testing.T, frame []byte, named bool) {
		if bytes.ContainsAny(frame, "\x00") {
			return
		}
		got := string(appendEvent(nil, eventID{3, 4}, named, frame, nil))
		data, ok := strings.CutSuffix(got, "\n\n")
		lines := strings.Split(data, "\n")
		want := 2
		if named {
			want = 3
		}
		if !ok || len(lines) != want || strings.Contains(data, "\r") {
			t.Fatalf("%q", got)
		}
		if text := strings.TrimPrefix(lines[want-1], "data: "); len(text) != len(frame) {
			t.Fatalf("%q became %q", frame, text)
		}
	})
}

// Whatever a server lists as its tools, learning from it and checking against
// it neither panics nor keeps more than the bounds.
func FuzzCatalog(f *testing.F) {
	f.Add(annotated, `{"region":"eu"}`)
	f.Add(`{"tools":[{"name":"now","inputSchema":{"properties":{"a":{"x-mcp-header":1}}}},3,{"name":[]}]}`, `[]`)
	f.Fuzz(func(t *testing.T, result, args string) {
		list := []byte(`{"jsonrpc":"2.0","id":1,"result":` + result + `}`)
		call := []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"now","arguments":` + args + `}}`)
		var m mcp.Message
		if m.Read(list) != nil || m.Read(call) != nil {
			return
		}
		var c catalog
		c.learn("ana", list)
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
		r.Header.Set("Mcp-Param-Region", "eu")
		_ = c.check(r, "ana", &m)
		for key, b := range c.tools {
			if len(b) > maxBindings {
				t.Fatalf("%d bindings of %v", len(b), key)
			}
		}
	})
}
