package jsonrpc

import (
	"errors"
	"strings"
	"testing"
)

func at(frame string, s Span) string { return string(s.Of([]byte(frame))) }

// MCP-G2: the envelope is read without touching the payload.
func TestParseReadsEnvelope(t *testing.T) {
	for _, tc := range []struct {
		frame  string
		kind   Kind
		id     string
		method string
		params string
		result string
		error  string
	}{
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"a":1.50}}`, Request, `1`, "tools/call", `{"a":1.50}`, "", ""},
		{` { "method" : "tools\/call" , "id" : "1" , "jsonrpc":"2.0" , "x": [ {} ] } `, Request, `"1"`, "tools/call", "", "", ""},
		{`{"jsonrpc":"2.0","id":null,"method":"ping"}`, Request, `null`, "ping", "", "", ""},
		{`{"jsonrpc":"2.0","method":"ping"}`, Notification, ``, "ping", "", "", ""},
		{`{"jsonrpc":"2.0","method":"m","params":null}`, Notification, ``, "m", "null", "", ""},
		{`{"result":{"id":7},"jsonrpc":"2.0","id":1152921504606846976}`, Response, `1152921504606846976`, "", "", `{"id":7}`, ""},
		{`{"jsonrpc":"2.0","id":1.0,"result":null}`, Response, `1.0`, "", "", `null`, ""},
		{`{"jsonrpc":"2.0","id":null,"error":{"code":-32700}}`, Response, `null`, "", "", "", `{"code":-32700}`},
		{`{"jsonrpc":"2.0","error":{"code":-32700}}`, Response, ``, "", "", "", `{"code":-32700}`},
		{`{"jsonrpc":"2.\u0030","\u0069d":-0,"\u006dethod":"\u0061","params":[]}`, Request, `-0`, "a", `[]`, "", ""},
	} {
		var e Envelope
		if err := Parse([]byte(tc.frame), &e); err != nil {
			t.Errorf("%s: %v", tc.frame, err)
			continue
		}
		if e.Kind != tc.kind || e.ID.Raw() != tc.id || e.Method != tc.method ||
			at(tc.frame, e.Params) != tc.params || at(tc.frame, e.Result) != tc.result || at(tc.frame, e.Error) != tc.error {
			t.Errorf("%s: got %+v", tc.frame, e)
		}
		if at(tc.frame, e.IDAt) != tc.id {
			t.Errorf("%s: id at %v", tc.frame, e.IDAt)
		}
		if got := at(tc.frame, e.Object); got != strings.TrimSpace(tc.frame) {
			t.Errorf("%s: object at %v", tc.frame, e.Object)
		}
		if e.IsError() != (tc.error != "") {
			t.Errorf("%s: IsError %v", tc.frame, e.IsError())
		}
	}
}

func nested(depth int) string {
	return `{"jsonrpc":"2.0","id":7,"method":"m","params":` + strings.Repeat(`[`, depth-1) + strings.Repeat(`]`, depth-1) + `}`
}

// MCP-G3 and the duplicate rule: what is refused, with which error, and whom an
// answer can be addressed to.
func TestParseRefuses(t *testing.T) {
	for _, tc := range []struct {
		frame string
		want  error
		code  int
		kind  Kind
		id    string
	}{
		{``, ErrSyntax, CodeParseError, Unknown, ``},
		{`  `, ErrSyntax, CodeParseError, Unknown, ``},
		{`{`, ErrSyntax, CodeParseError, Unknown, ``},
		{`{"jsonrpc":"2.0","id":1,"method":"m"`, ErrSyntax, CodeParseError, Unknown, ``},
		{`{"jsonrpc":"2.0","id":1,"method":"m"} x`, ErrSyntax, CodeParseError, Unknown, ``},
		{`{"jsonrpc":"2.0","id":1,"method":"m"}{}`, ErrSyntax, CodeParseError, Unknown, ``},
		{`{"jsonrpc":"2.0","id":01,"method":"m"}`, ErrSyntax, CodeParseError, Unknown, ``},
		{`{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":tru}}`, ErrSyntax, CodeParseError, Unknown, ``},
		{`{"jsonrpc":"2.0","id":1,}`, ErrSyntax, CodeParseError, Unknown, ``},
		{"\xef\xbb\xbf{}", ErrSyntax, CodeParseError, Unknown, ``},
		{`[{"jsonrpc":"2.0","id":1,"method":"m"}]`, ErrNotObject, CodeInvalidRequest, Unknown, ``},
		{`1`, ErrNotObject, CodeInvalidRequest, Unknown, ``},
		{`1 2`, ErrSyntax, CodeParseError, Unknown, ``},
		{`{}`, ErrVersion, CodeInvalidRequest, Unknown, ``},
		{`{"id":5,"method":"m"}`, ErrVersion, CodeInvalidRequest, Request, `5`},
		{`{"jsonrpc":"1.0","id":5,"method":"m"}`, ErrVersion, CodeInvalidRequest, Request, `5`},
		{`{"jsonrpc":2.0,"id":5,"method":"m"}`, ErrVersion, CodeInvalidRequest, Request, `5`},
		{`{"jsonrpc":"2.0","id":5,"method":"m","method":"n"}`, ErrDuplicateKey, CodeInvalidRequest, Request, `5`},
		{`{"jsonrpc":"2.0","id":5,"method":"m","Method":"n"}`, ErrDuplicateKey, CodeInvalidRequest, Request, `5`},
		{`{"jsonrpc":"2.0","id":5,"method":"m","params":{},"param` + "\u017f" + `":{}}`, ErrDuplicateKey, CodeInvalidRequest, Request, `5`},
		{`{"jsonrpc":"2.0","id":5,"\u0069d":6,"method":"m"}`, ErrDuplicateKey, CodeInvalidRequest, Request, ``},
		{`{"jsonrpc":"2.0","jsonrpc":"2.0","id":5,"method":"m"}`, ErrDuplicateKey, CodeInvalidRequest, Request, `5`},
		{`{"jsonrpc":"2.0","id":5,"result":1,"resul\u0074":1}`, ErrDuplicateKey, CodeInvalidRequest, Response, `5`},
		{`{"jsonrpc":"2.0","id":5,"error":1,"error":1}`, ErrDuplicateKey, CodeInvalidRequest, Response, `5`},
		{`{"jsonrpc":"2.0","id":5,"result":1,"error":1}`, ErrShape, CodeInvalidRequest, Response, `5`},
		{`{"jsonrpc":"2.0","id":5,"method":"m","result":1}`, ErrShape, CodeInvalidRequest, Request, `5`},
		{`{"jsonrpc":"2.0","id":5,"method":7}`, ErrShape, CodeInvalidRequest, Request, `5`},
		{`{"jsonrpc":"2.0","id":5,"method":"` + strings.Repeat("m", MaxMethodLen) + `"}`, ErrShape, CodeInvalidRequest, Request, `5`},
		{`{"jsonrpc":"2.0","id":5}`, ErrShape, CodeInvalidRequest, Unknown, `5`},
		{`{"jsonrpc":"2.0","result":5}`, ErrShape, CodeInvalidRequest, Response, ``},
		{`{"jsonrpc":"2.0","id":{},"method":"m"}`, ErrID, CodeInvalidRequest, Request, ``},
		{`{"jsonrpc":"2.0","id":true,"method":"m"}`, ErrID, CodeInvalidRequest, Request, ``},
		{`{"jsonrpc":"2.0","id":"` + strings.Repeat("x", MaxIDLen) + `","method":"m"}`, ErrID, CodeInvalidRequest, Request, ``},
		{"{\"jsonrpc\":\"2.0\",\"id\":\"\xff\",\"method\":\"m\"}", ErrID, CodeInvalidRequest, Request, ``},
		{nested(MaxDepth + 1), ErrDepth, CodeInvalidRequest, Request, `7`},
	} {
		var e Envelope
		err := Parse([]byte(tc.frame), &e)
		if !errors.Is(err, tc.want) || Code(err) != tc.code {
			t.Errorf("%.80s: got error %v, code %d", tc.frame, err, Code(err))
		}
		if e.Kind != tc.kind || e.ID.Raw() != tc.id {
			t.Errorf("%.80s: kind %v, id %v; want %v, %s", tc.frame, e.Kind, e.ID, tc.kind, tc.id)
		}
	}
}

// MCP-G2: what only the receiver may judge passes.
func TestParsePassesPayloads(t *testing.T) {
	for _, frame := range []string{
		nested(MaxDepth),
		`{"jsonrpc":"2.0","id":5,"method":"m","params":{"a":1,"a":2,"id":1,"id":2}}`,
		"{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"m\",\"params\":{\"a\":\"\xff\\ud800\"}}",
		`{"jsonrpc":"2.0","id":5,"method":"m","params":{"s":"` + strings.Repeat("[{", 5000) + `"}}`,
		`{"jsonrpc":"2.0","id":5,"method":"m","x":1,"x":2}`,
		`{"jsonrpc":"2.0","id":5,"result":{},"Method":"other members survive"}`,
		`{"jsonrpc":"2.0","id":5,"method":"m","params":7}`,
	} {
		var e Envelope
		if err := Parse([]byte(frame), &e); err != nil {
			t.Errorf("%.80s: %v", frame, err)
		}
	}
}

func TestParseAllocatesOnlyTheID(t *testing.T) {
	for _, tc := range []struct {
		frame string
		want  float64
	}{
		{`{"jsonrpc":"2.0","id":"b-12345","method":"tools/call","params":{"name":"x"}}`, 1},
		{`{"jsonrpc":"2.0","method":"notifications/progress","params":{"name":"x"}}`, 0},
	} {
		var e Envelope
		frame := []byte(tc.frame)
		got := testing.AllocsPerRun(200, func() {
			if err := Parse(frame, &e); err != nil {
				t.Fatal(err)
			}
		})
		if got > tc.want && !underRace {
			t.Errorf("%s: %v allocations, want %v", tc.frame, got, tc.want)
		}
	}
}

func TestCheckValue(t *testing.T) {
	for text, want := range map[string]error{
		`{"a":[1,"x"]}`: nil, " 1 ": nil, `null`: nil,
		``: ErrSyntax, `{`: ErrSyntax, `1 2`: ErrSyntax, `{"a":}`: ErrSyntax,
		strings.Repeat("[", 2000) + strings.Repeat("]", 2000): ErrDepth,
	} {
		if err := CheckValue([]byte(text)); !errors.Is(err, want) {
			t.Errorf("%.20s: %v, want %v", text, err, want)
		}
	}
}
