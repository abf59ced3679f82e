package jsonrpc

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func mustParse(t testing.TB, frame string) *Envelope {
	t.Helper()
	var e Envelope
	if err := Parse([]byte(frame), &e); err != nil {
		t.Fatalf("%s: %v", frame, err)
	}
	return &e
}

const cancelFrame = `{"jsonrpc":"2.0","method":"notifications/cancelled","params": { "reason" : "a \"b\", {c}" , "requestId" :7,` +
	`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","progress\u0054oken":1.50},"list":[ 1,"]",[2],{} ],"n":null } }`

// MCP-G8 and the cancel parameters: values inside params are found and keep
// their text.
func TestMembersAreFound(t *testing.T) {
	frame := []byte(cancelFrame)
	e := mustParse(t, cancelFrame)
	for _, tc := range []struct {
		path string
		want string
		kind ValueKind
	}{
		{"requestId", `7`, NumberValue},
		{"reason", `"a \"b\", {c}"`, StringValue},
		{"_meta progressToken", `1.50`, NumberValue},
		{"_meta io.modelcontextprotocol/protocolVersion", `"2026-07-28"`, StringValue},
		{"list", `[ 1,"]",[2],{} ]`, ArrayValue},
		{"n", `null`, NullValue},
		{"missing", ``, NoValue},
		{"requestId missing", ``, NoValue},
		{"n missing", ``, NoValue},
		{"list missing", ``, NoValue},
		{"_meta progress", ``, NoValue},
	} {
		s, ok, err := Path(frame, e.Params, strings.Fields(tc.path)...)
		if err != nil || ok != (tc.want != "") || string(s.Of(frame)) != tc.want || KindAt(frame, s) != tc.kind {
			t.Errorf("%s: %q %v %v %v", tc.path, s.Of(frame), KindAt(frame, s), ok, err)
		}
	}
	var out [3]Span
	if err := Lookup(frame, e.Params, []string{"requestId", "nope", "reason"}, out[:]); err != nil || at(cancelFrame, out[0]) != "7" || out[1].Ok() || !out[2].Ok() {
		t.Errorf("Lookup: %v %v", out, err)
	}
	if s, err := ReadString(frame, out[2], 100); s != `a "b", {c}` || err != nil {
		t.Errorf("ReadString: %q %v", s, err)
	}
	if id, err := ReadID(frame, out[0]); id.Raw() != "7" || err != nil {
		t.Errorf("ReadID: %v %v", id, err)
	}
	if _, err := ReadID(frame, e.Params); !errors.Is(err, ErrID) {
		t.Errorf("ReadID of an object: %v", err)
	}
	if _, err := ReadID(frame, Span{}); !errors.Is(err, ErrID) {
		t.Errorf("ReadID of nothing: %v", err)
	}
	list, _, _ := Member(frame, e.Params, "list")
	var elems []string
	for s := range Elements(frame, list) {
		elems = append(elems, at(cancelFrame, s))
	}
	if !slices.Equal(elems, []string{`1`, `"]"`, `[2]`, `{}`}) {
		t.Errorf("Elements: %q", elems)
	}
	for range Elements(frame, e.Params) {
		t.Error("an object has no elements")
	}
	for range Members(frame, list) {
		t.Error("an array has no members")
	}
}

// A duplicate inside what we act on is refused, like one in the envelope.
func TestMemberRefusesDuplicates(t *testing.T) {
	frame := `{"jsonrpc":"2.0","method":"m","params":{"requestId":7,"x":1,"request\u0049d":8}}`
	e := mustParse(t, frame)
	if s, ok, err := Member([]byte(frame), e.Params, "requestId"); !errors.Is(err, ErrDuplicateKey) || !ok || at(frame, s) != "7" {
		t.Errorf("%v %v %v", s, ok, err)
	}
	var out [1]Span
	if err := Lookup([]byte(frame), e.Params, []string{"requestId"}, out[:]); !errors.Is(err, ErrDuplicateKey) {
		t.Error(err)
	}
	if _, _, err := Path([]byte(frame), e.Object, "params", "requestId"); !errors.Is(err, ErrDuplicateKey) {
		t.Error(err)
	}
}

func TestReadStringBounds(t *testing.T) {
	for _, tc := range []struct {
		text  string
		limit int
		want  string
		err   error
	}{
		{`"abc"`, 3, "abc", nil},
		{`"abcd"`, 3, "", ErrTooLong},
		{`"\u0061\u0062\u0063"`, 3, "abc", nil},
		{`"` + strings.Repeat("x", 1000) + `"`, 3, "", ErrTooLong},
		{`""`, 0, "", nil},
		{`7`, 3, "", ErrKind},
		{"\"\xff\"", 9, "�", nil},
		{`"\ud800x"`, 9, "�x", nil},
		{`"\ud83d\ude00"`, 9, "😀", nil},
		{`"\b\f\n\r\t\/\\\""`, 9, "\b\f\n\r\t/\\\"", nil},
	} {
		frame := "[" + tc.text + "]"
		got, err := ReadString([]byte(frame), Span{1, 1 + len(tc.text)}, tc.limit)
		if got != tc.want || !errors.Is(err, tc.err) {
			t.Errorf("%.40s: %q, %v", tc.text, got, err)
		}
	}
	if _, err := ReadString(nil, Span{3, 9}, 9); !errors.Is(err, ErrKind) {
		t.Errorf("span outside the frame: %v", err)
	}
}

func TestWalkingDoesNotAllocate(t *testing.T) {
	frame := []byte(strings.Replace(cancelFrame, `progress\u0054oken`, "progressToken", 1))
	e := mustParse(t, string(frame))
	n := testing.AllocsPerRun(100, func() {
		if _, ok, err := Path(frame, e.Params, "_meta", "progressToken"); !ok || err != nil {
			t.Fatal(ok, err)
		}
	})
	if n > 0 && !underRace {
		t.Errorf("%v allocations", n)
	}
}
