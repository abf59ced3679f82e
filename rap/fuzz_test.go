package rap

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"unicode/utf8"
)

// FuzzMessages: nothing makes the parsers panic, what they take is valid JSON in an
// object, and survives being written and read again.
func FuzzMessages(f *testing.F) {
	for _, seed := range []string{
		`{"type":"tool_result","group_id":"t","id":"c","text":"x","call_id":null}`,
		`{"type":"tool_result","group_id":"t","id":"c","content":[{"type":"image","data":"aGk=","mediaType":"image/png"}],"display_as":[{}]}`,
		`{"type":"subscription_event","group_id":"t","tool_call_id":"c","text":"x","final":true}`,
		`{"type":"oauth","group_id":"t","id":"c","auth_url":"https://id.test/"}`,
		`{"type":"user_choice","group_id":"t","id":"c","prompt":"?","choices":["a"],"default":0,"response_url":"http://x/"}`,
		`{"type":"view_update","group_id":"t","view_type":"v","content":{}}`,
		`{"type":"tool_result","group_id":"\ud800","id":"\u0000","text":"\ud83d"}`,
		`{"a":{"a":{"a":[[[[]]]]}}}`, "{\"type\":\"\xff\"}", ``, `{`, `[]`, `{"type":"tool_result"`, "\ufeff{}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		m, err := ParseMessage(body)
		if err != nil {
			if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrTooLarge) {
				t.Fatalf("an error of another kind: %v", err)
			}
			return
		}
		if !json.Valid(body) || !utf8.Valid(body) {
			t.Fatalf("taken: %q", body)
		}
		out, err := m.Append(nil)
		if err != nil {
			t.Fatalf("%+v was taken and cannot be sent: %v", m, err)
		}
		again, err := ParseMessage(out)
		if err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		if compact(m) != compact(again) {
			t.Fatalf("%+v became %+v", m, again)
		}
	})
}

// compact is a message by its own JSON, in which raw parts lose their white space.
func compact(m Message) string {
	out, _ := m.Append(nil)
	var b bytes.Buffer
	_ = json.Compact(&b, out)
	return b.String()
}

// FuzzInvocation: what is taken can be answered, and what is refused cannot.
func FuzzInvocation(f *testing.F) {
	f.Add([]byte(`{"operation":"scan","arguments":{"a":1.0},"id":"c","group_id":"t","callback_url":"https://rt.test/cb","thread_ancestors":["r"],"user_id":"u","call_id":"x"}`))
	f.Add([]byte(`{"operation":5,"arguments":[],"id":"c","group_id":"t","callback_url":"https://rt.test/cb"}`))
	f.Add([]byte(`{"id":"c","group_id":"t","callback_url":"https://rt.test:99999/cb"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		inv, err := ParseInvocation(body)
		if (inv == nil) != (err != nil && !errors.Is(err, ErrArguments)) {
			t.Fatalf("%v with %v", inv, err)
		}
		if inv == nil {
			return
		}
		if CheckID(inv.ID) != nil || CheckID(inv.GroupID) != nil {
			t.Fatalf("taken with bad ids: %q", body)
		}
		if _, err := CheckURL(inv.CallbackURL); err != nil {
			t.Fatalf("taken with a bad address: %q", body)
		}
		if err != nil {
			return
		}
		out, err := inv.Append(nil)
		if err != nil {
			t.Fatalf("%+v was taken and cannot be sent: %v", inv, err)
		}
		again, err := ParseInvocation(out)
		if err != nil || again.ID != inv.ID || again.GroupID != inv.GroupID || !slices.Equal(again.ThreadAncestors, inv.ThreadAncestors) {
			t.Fatalf("%+v became %+v, %v", inv, again, err)
		}
	})
}

// FuzzNotices: two notices have the same key exactly when their ids are the same
// text, and what is taken has usable ids (RAP-35).
func FuzzNotices(f *testing.F) {
	f.Add([]byte(`{"thread_id":"t","tool_call_id":"c"}`), "t", "c")
	f.Add([]byte(`{"thread_id":"\u0074","tool_call_id":"c\u0000"}`), "t|", "|c")
	f.Add([]byte(`{"thread_id":"t","thread_id":"u","tool_call_id":"c"}`), "\xff", "\ufffd")
	f.Fuzz(func(t *testing.T, body []byte, thread, call string) {
		if n, err := ParseCancel(body); err == nil && (CheckID(n.ThreadID) != nil || CheckID(n.ToolCallID) != nil) {
			t.Fatalf("taken: %q", body)
		}
		_, _ = ParseClose(body)
		_, _ = ParseMigration(body)
		_, _ = ParseSelection(body)
		_, _ = ParseManifest(body)
		n := CancelNotice{thread, call}
		out, err := n.Append(nil)
		if err != nil {
			if CheckID(thread) == nil && CheckID(call) == nil {
				t.Fatalf("%q, %q: %v", thread, call, err)
			}
			return
		}
		again, err := ParseCancel(out)
		if err != nil || (jobKey{"x", again.ThreadID, again.ToolCallID}) != (jobKey{"x", thread, call}) {
			t.Fatalf("%q, %q became %+v, %v", thread, call, again, err)
		}
	})
}

// FuzzManifest: one that is taken can be served again.
func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"name":"files","endpoint":"https://x/","tools":[{"name":"a","description":"d","inputSchema":{"type":"object","properties":{"a":{"items":[{}]}}},"annotations":{},"displayScript":1}]}`))
	f.Add([]byte(`{"name":"files","endpoint":"https://x/","tools":[{"name":"a","description":"d","inputSchema":{"allOf":[true]}}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		m, err := ParseManifest(body)
		if err != nil {
			return
		}
		out, err := m.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseManifest(out); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
	})
}
