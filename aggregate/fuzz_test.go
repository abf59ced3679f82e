package aggregate

import (
	"bytes"
	"strings"
	"testing"

	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
)

// FuzzCursor: no text makes the reader panic; what it takes is bounded, can stand
// in a message, and comes out of the writer as it was.
func FuzzCursor(f *testing.F) {
	f.Add(string(appendCursor(nil, []place{{"a", []byte(`"1"`)}, {"b__", []byte(`"\u0000"`)}})))
	f.Add(string(appendCursor(nil, []place{{"a", []byte(`"1","x":{}`)}})))
	f.Add("belay1:")
	f.Add("belay1:AQ")
	f.Add("belay1:____")
	f.Fuzz(func(t *testing.T, text string) {
		places, err := readCursor(text)
		if err != nil {
			return
		}
		if len(places) == 0 || len(places) > maxMembers {
			t.Fatalf("%d places", len(places))
		}
		for _, p := range places {
			frame := append(append([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":`), p.cursor...), `}}`...)
			m := &mcp.Message{}
			if err := m.Read(frame); err != nil {
				t.Fatalf("%q makes a bad message: %v", p.cursor, err)
			}
			n := 0
			for range jsonrpc.Members(frame, m.Params) {
				n++
			}
			if n != 1 {
				t.Fatalf("%q is %d members", p.cursor, n)
			}
		}
		again, err := readCursor(string(appendCursor(nil, places)))
		if err != nil || len(again) != len(places) {
			t.Fatalf("%d places became %d: %v", len(places), len(again), err)
		}
		for i := range again {
			if again[i].server != places[i].server || !bytes.Equal(again[i].cursor, places[i].cursor) {
				t.Fatalf("%v became %v", places[i], again[i])
			}
		}
	})
}

// FuzzName: whatever a tool is called, and however that is spelled, its name comes
// back to its server as it was.
func FuzzName(f *testing.F) {
	f.Add("server", `"tool"`)
	f.Add("s", `"\u0061\ud83d\ude00"`)
	f.Add("a_", `"__"`)
	f.Add(`"`, `"\""`)
	f.Fuzz(func(t *testing.T, server, raw string) {
		frame := []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":` + raw + `}}`)
		m := &mcp.Message{}
		if m.Read(frame) != nil || jsonrpc.KindAt(frame, m.Name) != jsonrpc.StringValue || server == "" || len(server) > 100 {
			return
		}
		server = strings.ToValidUTF8(server, "?")
		name := textAt(frame, m.Name, maxName)
		out := &mcp.Message{}
		if err := out.Read(jsonrpc.AppendSplice(nil, frame, prefixed(m.Name, server))); err != nil {
			t.Fatalf("%v: %s", err, out.Frame)
		}
		full := textAt(out.Frame, out.Name, 2*maxName)
		if full != server+separator+name {
			t.Fatalf("%q and %q became %q", server, name, full)
		}
		if got := owner(full, []string{server}); got != server {
			t.Fatalf("%q is of %q", full, got)
		}
		back := jsonrpc.AppendSplice(nil, out.Frame, unprefixed(out.Frame, out.Name, full, server))
		if !bytes.Equal(back, frame) {
			t.Fatalf("%s became %s", frame, back)
		}
	})
}

// FuzzDeliver: no message of a caller makes a session panic, or leaves a request
// unsettled.
func FuzzDeliver(f *testing.F) {
	for _, frame := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a__x"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"a__x"}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"resourceSubscriptions":["x:1"]}}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`,
		`{"jsonrpc":"2.0","id":"b-1","result":{}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"belay1:AWEDIjEi"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":[]}`,
		`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":"x"}`,
	} {
		f.Add(frame, true)
		f.Add(frame, false)
	}
	f.Fuzz(func(t *testing.T, frame string, modern bool) {
		m := &mcp.Message{}
		if m.Read([]byte(frame)) != nil {
			return
		}
		answers := func(_ *fakeSession, c *fakeCall) bool {
			if mcp.Handshaking(c.Method) {
				return false
			}
			c.answer(`{}`)
			return true
		}
		r := start(t, modern, &fake{name: "a", caps: allCaps, handle: answers}, &fake{name: "b", caps: allCaps, handle: answers})
		if box, _ := r.send(frame); box != nil {
			r.wait(box)
		}
	})
}
