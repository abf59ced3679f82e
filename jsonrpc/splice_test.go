package jsonrpc

import (
	"bytes"
	"encoding/json"
	"testing"
)

// MCP-G2: only what an edit names changes; number literals, key order, white
// space and unknown members survive.
func TestSpliceChangesNothingElse(t *testing.T) {
	frame := ` {"z":1e400,"params" : {"x":0.10,"_meta":{"progressToken":"t"},"x":2} , "id":9007199254740993,"jsonrpc":"2.0","method":"tools\/call","é":"\u00e9"} `
	e := mustParse(t, frame)
	token, ok, err := Path([]byte(frame), e.Params, "_meta", "progressToken")
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	// The id comes first although it stands behind.
	got := AppendSplice([]byte("dst"), []byte(frame), Edit{e.IDAt, []byte(`"b-1"`)}, Edit{token, []byte(`17`)})
	want := `dst {"z":1e400,"params" : {"x":0.10,"_meta":{"progressToken":17},"x":2} , "id":"b-1","jsonrpc":"2.0","method":"tools\/call","é":"\u00e9"} `
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := AppendSplice(nil, []byte(frame)); string(got) != frame {
		t.Errorf("without edits: %s", got)
	}
	if cap(got) > 2*len(got) {
		t.Errorf("grown to %d for %d bytes", cap(got), len(got))
	}
}

func TestInsertMember(t *testing.T) {
	for frame, want := range map[string]string{
		`{"jsonrpc":"2.0","method":"m","params":{"a":1}}`:   `{"jsonrpc":"2.0","method":"m","params":{"_me\"ta":{"t":1},"a":1}}`,
		`{"jsonrpc":"2.0","method":"m","params":{}}`:        `{"jsonrpc":"2.0","method":"m","params":{"_me\"ta":{"t":1}}}`,
		`{"jsonrpc":"2.0","method":"m","params":{ }}`:       `{"jsonrpc":"2.0","method":"m","params":{"_me\"ta":{"t":1} }}`,
		`{"jsonrpc":"2.0","method":"m","params":{ "a":1 }}`: `{"jsonrpc":"2.0","method":"m","params":{"_me\"ta":{"t":1}, "a":1 }}`,
	} {
		e := mustParse(t, frame)
		if got := AppendInsertMember(nil, []byte(frame), e.Params, `_me"ta`, []byte(`{"t":1}`)); string(got) != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// A wrong edit is a mistake in our code and must not become a broken frame.
func TestSplicePanicsOnWrongEdits(t *testing.T) {
	for name, edits := range map[string][]Edit{
		"overlap": {{Span{1, 4}, nil}, {Span{3, 5}, nil}},
		"outside": {{Span{1, 99}, nil}},
		"inverse": {{Span{4, 1}, nil}},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			AppendSplice(nil, []byte("0123456789"), edits...)
		}()
	}
	defer func() {
		if recover() == nil {
			t.Error("InsertMember into a number: no panic")
		}
	}()
	InsertMember([]byte("[1]"), Span{1, 2}, "a", nil)
}

func TestInsertionsAtOnePlaceKeepTheirOrder(t *testing.T) {
	got := AppendSplice(nil, []byte("ab"), Edit{Span{1, 1}, []byte("1")}, Edit{Span{1, 1}, []byte("2")}, Edit{Span{1, 2}, []byte("3")}, Edit{Span{2, 2}, []byte("4")})
	if string(got) != "a1234" {
		t.Errorf("%s", got)
	}
}

// What we build ourselves is what Parse reads.
func TestBuiltFramesParse(t *testing.T) {
	id := StringID("b-1")
	for _, tc := range []struct {
		frame []byte
		kind  Kind
		id    ID
		want  string
	}{
		{AppendRequest(nil, id, "m", []byte(`{"a":1}`)), Request, id, `{"jsonrpc":"2.0","id":"b-1","method":"m","params":{"a":1}}`},
		{AppendRequest(nil, id, "m\"\n", nil), Request, id, `{"jsonrpc":"2.0","id":"b-1","method":"m\"\n"}`},
		{AppendNotification(nil, "m", nil), Notification, ID{}, `{"jsonrpc":"2.0","method":"m"}`},
		{AppendNotification(nil, "m", []byte(`[]`)), Notification, ID{}, `{"jsonrpc":"2.0","method":"m","params":[]}`},
		{AppendResponse(nil, id, nil), Response, id, `{"jsonrpc":"2.0","id":"b-1","result":{}}`},
		{AppendResponse(nil, NullID(), []byte(`1`)), Response, NullID(), `{"jsonrpc":"2.0","id":null,"result":1}`},
		{AppendError(nil, ID{}, -32700, "Parse \xff error", nil), Response, NullID(), `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse ` + "\uFFFD" + ` error"}}`},
		{AppendError(nil, id, -32800, "Cancelled", []byte(`{"a":1}`)), Response, id, `{"jsonrpc":"2.0","id":"b-1","error":{"code":-32800,"message":"Cancelled","data":{"a":1}}}`},
	} {
		var e Envelope
		if err := Parse(tc.frame, &e); err != nil || e.Kind != tc.kind || e.ID != tc.id || string(tc.frame) != tc.want || !json.Valid(tc.frame) {
			t.Errorf("%s: %v %v, want %s", tc.frame, e.Kind, err, tc.want)
		}
	}
	if got := AppendString([]byte("x"), "a\"\n"); string(got) != `x"a\"\n"` {
		t.Errorf("%s", got)
	}
	if got := AppendBatch([]byte("x"), []byte("1"), []byte("2")); !bytes.Equal(got, []byte("x[1,2]")) {
		t.Errorf("%s", got)
	}
	if got := AppendBatch([]byte("x")); string(got) != "x" {
		t.Errorf("%s", got)
	}
}
