package rap

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRAP62_MessagesSurviveTheirWayOverTheWire: what is appended is what is
// parsed, for every message of RAP-62 to RAP-65, RAP-73, RAP-80, RAP-82, RAP-86.
func TestRAP62_MessagesSurviveTheirWayOverTheWire(t *testing.T) {
	for _, m := range []Message{
		&ToolResult{GroupID: "thread_42", ID: "call_7f", Text: "hashed 812 files <&>"},
		&ToolResult{GroupID: "t", ID: "c", CallID: new("model-1"), Text: ""},
		&ToolResult{GroupID: "t", ID: "c", Content: []Item{{Type: ItemText, Text: "one picture"}, {Type: ItemImage, Data: "iVBORw0KGgo=", MediaType: "image/png"}}},
		&ToolResult{GroupID: "t", ID: "c", Content: []Item{{Type: ItemText}}, DisplayAs: json.RawMessage(`[{"type":"text","content":"812"}]`)},
		&ToolResult{GroupID: "t", ID: "c", Text: "watching", Subscription: true},
		&SubscriptionEvent{GroupID: "t", ToolCallID: "c", Text: "[cancelled]", Associative: true, Final: true},
		&OAuth{GroupID: "t", ID: "c", CallID: new(""), AuthURL: "https://id.acme.test/authorize?state=s1"},
		&UserChoice{GroupID: "t", ID: "c", Prompt: "Write to /etc?", Choices: []string{"Yes", "No"}, Default: 1, ResponseURL: "https://gw.acme.test/rap/files/choice"},
		&ViewUpdate{GroupID: "t", ViewType: "diff", Content: json.RawMessage(`{"patch":""}`)},
	} {
		body, err := m.Append(nil)
		if err != nil {
			t.Errorf("%+v: %v", m, err)
			continue
		}
		got, err := ParseMessage(body)
		if err != nil {
			t.Errorf("%s: %v", body, err)
			continue
		}
		if d := cmp.Diff(m, got); d != "" {
			t.Errorf("%s came back different (-sent +got):\n%s", body, d)
		}
	}
}

// TestRAP37_MalformedMessagesAreRefused is the bad-input table's row about
// callbacks, and the rules of the messages.
func TestRAP37_MalformedMessagesAreRefused(t *testing.T) {
	for _, bad := range []string{
		``, `[]`, `"x"`, `{`, `{"type":"tool_result"} {}`, "{\"type\":\"\xff\"}",
		`{"type":"shrug","group_id":"t","id":"c"}`,
		`{"Type":"tool_result","group_id":"t","id":"c","text":"x"}`,
		`{"type":"tool_result","group_id":"t","id":"c"}`,
		`{"type":"tool_result","group_id":"t","id":"c","text":null,"content":null}`,
		`{"type":"tool_result","group_id":"t","id":"c","content":[]}`,
		`{"type":"tool_result","group_id":"t","id":"c","text":5}`,
		`{"type":"tool_result","group_id":"t","id":"c","id":"d","text":"x"}`,
		`{"type":"tool_result","group_id":"t","id":7,"text":"x"}`,
		`{"type":"tool_result","group_id":"","id":"c","text":"x"}`,
		`{"type":"tool_result","group_id":"t","id":"c","content":[{"type":"video","data":"x"}]}`,
		`{"type":"tool_result","group_id":"t","id":"c","content":[{"type":"image","data":"x"}]}`,
		`{"type":"tool_result","group_id":"t","id":"c","text":"x","display_as":{}}`,
		`{"type":"tool_result","group_id":"t","id":"c","text":"x","subscription":"yes"}`,
		`{"type":"subscription_event","group_id":"t","id":"c","text":"x"}`,
		`{"type":"oauth","group_id":"t","id":"c","auth_url":"http://id.acme.test/"}`,
		`{"type":"oauth","group_id":"t","id":"c","auth_url":"javascript:alert(1)"}`,
		`{"type":"user_choice","group_id":"t","id":"c","prompt":"?","choices":[],"default":0,"response_url":"http://x/"}`,
		`{"type":"user_choice","group_id":"t","id":"c","prompt":"?","choices":["a"],"default":1,"response_url":"http://x/"}`,
		`{"type":"user_choice","group_id":"t","id":"c","prompt":"?","choices":["a"],"default":0.5,"response_url":"http://x/"}`,
		`{"type":"user_choice","group_id":"t","id":"c","prompt":"?","choices":["a"],"default":0,"response_url":"file:///etc/passwd"}`,
		`{"type":"view_update","group_id":"t","view_type":"diff","content":[]}`,
	} {
		if m, err := ParseMessage([]byte(bad)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: got %+v, %v; want it refused", bad, m, err)
		}
	}
}

// TestRAP35_Ids: the rules for untrusted ids, in a cancel (RAP-9, RAP-10).
func TestRAP35_Ids(t *testing.T) {
	good := map[string]string{
		`{"thread_id":"t","tool_call_id":"c"}`:                                "t|c",
		`{"thread_id":"../x","tool_call_id":"a/b c"}`:                         "../x|a/b c",
		`{"tool_call_id":"é","thread_id":"\u00e9","more":{"a":[1]}}`:          "é|é",
		` {"thread_id":"😀","tool_call_id":"\ud83d\ude00"} `:                   "😀|😀",
		`{"thread_id":"` + strings.Repeat("x", 256) + `","tool_call_id":"c"}`: strings.Repeat("x", 256) + "|c",
	}
	for body, want := range good {
		n, err := ParseCancel([]byte(body))
		if got := n.ThreadID + "|" + n.ToolCallID; err != nil || got != want {
			t.Errorf("%s: got %q, %v", body, got, err)
		}
	}
	for _, body := range []string{
		`x`, `[]`, `{}`, `null`, `{"thread_id":"t"}`, `{"thread_id":"t","tool_call_id":null}`,
		`{"thread_id":1,"tool_call_id":"c"}`, `{"thread_id":"","tool_call_id":"c"}`,
		`{"thread_id":"` + strings.Repeat("x", 257) + `","tool_call_id":"c"}`,
		`{"thread_id":"` + strings.Repeat("é", 129) + `","tool_call_id":"c"}`,
		"{\"thread_id\":\"a\xff\",\"tool_call_id\":\"c\"}",
		`{"thread_id":"a\u0000","tool_call_id":"c"}`, `{"thread_id":"a\u0085","tool_call_id":"c"}`,
		`{"thread_id":"\ud800","tool_call_id":"c"}`,
		`{"thread_id":"t","tool_call_id":"c","tool_call_id":"d"}`,
		`{"thread_id":"t","tool_call_id":"c"}{}`,
	} {
		if n, err := ParseCancel([]byte(body)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: got %+v, %v; want it refused", body, n, err)
		}
	}
	if _, err := ParseCancel([]byte(strings.Repeat(" ", MaxNotice+1))); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a body over the limit: %v", err)
	}
}

// TestRAP54_Invocations: what can be answered is told from what cannot (RAP-57), and
// members of older texts are ignored (RAP-53).
func TestRAP54_Invocations(t *testing.T) {
	const head = `"id":"call_7f","group_id":"thread_42","callback_url":"https://rt.acme.test/cb/Zk3"`
	inv, err := ParseInvocation([]byte(`{"operation":"scan","arguments":{"path":"/a"},` + head + `,"call_id":null,"thread_ancestors":["root"],"user_id":"u","toolset_version":3}`))
	if err != nil {
		t.Fatal(err)
	}
	want := &Invocation{
		Operation: "scan", Arguments: json.RawMessage(`{"path":"/a"}`), ID: "call_7f", GroupID: "thread_42",
		CallbackURL: "https://rt.acme.test/cb/Zk3", ThreadAncestors: []string{"root"}, UserID: "u",
	}
	if d := cmp.Diff(want, inv); d != "" {
		t.Error(d)
	}
	body, err := inv.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := ParseInvocation(body); err != nil || cmp.Diff(inv, again) != "" {
		t.Errorf("%s: %v", body, err)
	}
	for _, rest := range []string{
		``, `,"operation":"scan"`, `,"operation":"scan","arguments":[]`, `,"operation":"","arguments":{}`, `,"operation":5,"arguments":{}`,
		`,"operation":"scan","arguments":{},"user_id":"a\u0000"`, `,"operation":"scan","arguments":{},"thread_ancestors":"root"`,
		`,"operation":"scan","arguments":{},"thread_ancestors":[""]`, `,"operation":"scan","arguments":{},"call_id":7`,
	} {
		inv, err := ParseInvocation([]byte(`{` + head + rest + `}`))
		if inv == nil || !errors.Is(err, ErrArguments) {
			t.Errorf("%s: got %v, %v; want an invocation that can be answered", rest, inv, err)
		}
	}
	for _, bad := range []string{
		`x`, `{}`, `{"operation":"scan","arguments":{},"id":"c","group_id":"t"}`,
		`{"operation":"scan","arguments":{},"id":"c","callback_url":"http://x/"}`,
		`{"operation":"scan","arguments":{},"id":"c","group_id":"t","callback_url":"ftp://x/"}`,
		`{"operation":"scan","arguments":{},"id":"c","group_id":"t","callback_url":"/cb"}`,
		`{"operation":"scan","arguments":{},"id":"c","group_id":"t","callback_url":"http://u:p@x/"}`,
		`{"operation":"scan","arguments":{},"id":"","group_id":"t","callback_url":"http://x/"}`,
	} {
		if inv, err := ParseInvocation([]byte(bad)); inv != nil || !errors.Is(err, ErrMalformed) || errors.Is(err, ErrArguments) {
			t.Errorf("%s: got %v, %v; want it refused", bad, inv, err)
		}
	}
}

// TestRAP45_Manifests: one bad tool makes a manifest bad (RAP-46, RAP-48).
func TestRAP45_Manifests(t *testing.T) {
	const good = `{"name":"scan_tree","description":"d","inputSchema":{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]},"annotations":{"longRunning":true},"displayScript":"x"}`
	m, err := ParseManifest([]byte(`{"name":"files","endpoint":"https://gw.acme.test/rap/files/invoke","tools":[` + good + `],"version":9}`))
	if err != nil {
		t.Fatal(err)
	}
	body, err := m.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	again, err := ParseManifest(body)
	if err != nil || cmp.Diff(m, again) != "" {
		t.Errorf("%s: %v", body, err)
	}
	if m.Tool("scan_tree") == nil || m.Tool("Scan_tree") != nil {
		t.Error("names of tools are case-sensitive")
	}
	for _, bad := range []string{
		`{}`, `[]`, `x`,
		`{"name":"files","endpoint":"https://x/","tools":[]}`,
		`{"name":"files","endpoint":"https://x/"}`,
		`{"name":"files","endpoint":"/invoke","tools":[` + good + `]}`,
		`{"name":"","endpoint":"https://x/","tools":[` + good + `]}`,
		`{"name":"` + strings.Repeat("n", 129) + `","endpoint":"https://x/","tools":[` + good + `]}`,
		`{"name":"files","endpoint":"https://x/","needsMigration":1,"tools":[` + good + `]}`,
		`{"name":"files","endpoint":"https://x/","tools":[` + good + `,` + good + `]}`,
		`{"name":"files","endpoint":"https://x/","tools":[` + good + `,{"name":"b","description":"d"}]}`,
		`{"name":"files","endpoint":"https://x/","tools":[{"name":"b","inputSchema":{}}]}`,
		`{"name":"files","endpoint":"https://x/","tools":[{"name":"b c","description":"d","inputSchema":{}}]}`,
		`{"name":"files","endpoint":"https://x/","tools":[{"name":"b","description":"d","inputSchema":[]}]}`,
		`{"name":"files","endpoint":"https://x/","tools":[{"name":"b","description":"d","inputSchema":{"type":"thing"}}]}`,
		`{"name":"files","endpoint":"https://x/","tools":[{"name":"b","description":"d","inputSchema":{"properties":{"a":{"items":5}}}}]}`,
		`{"name":"files","endpoint":"https://x/","tools":[{"name":"b","description":"d","inputSchema":{"required":"a"}}]}`,
		`{"name":"files","endpoint":"https://x/","tools":[{"name":"b","description":"d","inputSchema":{},"annotations":[]}]}`,
	} {
		if m, err := ParseManifest([]byte(bad)); m != nil || !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: got %v, %v; want it refused", bad, m, err)
		}
	}
}

// TestRAP8_PathsHangOffTheBase also when the base has a path of its own.
func TestRAP8_PathsHangOffTheBase(t *testing.T) {
	for base, want := range map[string]string{
		"https://tool.example.com":        "https://tool.example.com/cancel_tool_call",
		"https://tool.example.com/":       "https://tool.example.com/cancel_tool_call",
		"http://gw.acme.test:8/rap/files": "http://gw.acme.test:8/rap/files/cancel_tool_call",
		"http://gw.acme.test/a%2Fb/":      "http://gw.acme.test/a%2Fb/cancel_tool_call",
	} {
		b, err := ParseBase(base)
		if got := b.At(PathCancel); err != nil || got != want {
			t.Errorf("%s: got %s, %v", base, got, err)
		}
	}
	for _, bad := range []string{"", "tool.example.com", "https://x/?a=1", "https://x/#f", "https://u@x/", "ftp://x/", "https:///x"} {
		if b, err := ParseBase(bad); err == nil {
			t.Errorf("%q is taken as %v", bad, b)
		}
	}
}

// TestRAP91_RewriteChangesNothingElse: only the named strings change.
func TestRAP91_RewriteChangesNothingElse(t *testing.T) {
	body := []byte(` {"x":1.50,"id":"a","d":{"id":"z"},"endpoint":null}`)
	got, err := Rewrite(nil, body, Replacement{"id", "b\"<"}, Replacement{"endpoint", "e"}, Replacement{"none", "n"})
	if want := ` {"x":1.50,"id":"b\"<","d":{"id":"z"},"endpoint":null}`; err != nil || string(got) != want {
		t.Errorf("got %s, %v; want %s", got, err, want)
	}
}
