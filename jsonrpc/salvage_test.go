package jsonrpc

import (
	"strings"
	"testing"
)

// MCP-G3: an oversized message fails its call and not the connection, however
// its writer orders the members.
func TestSalvage(t *testing.T) {
	big := `{"text":"` + strings.Repeat(`\"id\":1,{`, 100)
	for _, tc := range []struct {
		name         string
		prefix, tail string
		id           ID
		kind         Kind
		ok           bool
	}{
		{"id first, request", `{"jsonrpc":"2.0","id":"7","method":"tools/call","params":` + big, ``, StringID("7"), Request, true},
		{"id before the method was cut", `{"jsonrpc":"2.0","id":"7","method":"tools`, ``, StringID("7"), Request, true},
		{"id first, response", `{"jsonrpc":"2.0","id":null,"result":` + big, ``, NullID(), Response, true},
		{"id first, error", ` { "id" : "7" , "error" : ` + big, ``, StringID("7"), Response, true},
		{"id last, response", `{"result":` + big, `x":"\\"},"jsonrpc":"2.0","id":"b-7"}`, StringID("b-7"), Response, true},
		{"id last, request", `{"method":"tools/call","params":` + big, `\\\" "}] } , "jsonrpc" : "2.0" , "id" : "7" } `, StringID("7"), Request, true},
		{"id last, members behind it", `{"result":` + big, `"},"id":"7","_meta":{"a":["}"]}}`, StringID("7"), Response, true},
		{"only the id is known", big, `"},"id":"7"}`, StringID("7"), Unknown, true},
		{"id cut off in the prefix", `{"method":"m","id":12`, ``, ID{}, Request, false},
		{"id cut off in the tail", `{"result":` + big, `12}`, ID{}, Response, false},
		{"name cut off in the tail", `{"result":` + big, `id":12}`, ID{}, Response, false},
		{"id inside the payload only", `{"method":"m","params":{"id":7,` + big, `,"id":8}]}}`, ID{}, Unknown, false},
		{"two ids", `{"id":1,"method":"m","params":` + big, `"},"id":2}`, ID{}, Request, false},
		{"two ids in one end", `{"id":1,"id":1.0,"method":"m"`, ``, ID{}, Request, false},
		{"the same end twice", `{"id":1,"method":"m"}`, `{"id":1,"method":"m"}`, ID{raw: "1"}, Request, true},
		{"id of a wrong kind", `{"id":{"a":1},"method":"m"`, ``, ID{}, Request, false},
		{"whole notification", `{"method":"m"}`, ``, ID{}, Notification, false},
		{"whole notification in the tail", ``, `{"method":"m","params":{}}`, ID{}, Notification, false},
		{"cut notification or request", `{"method":"m","params":{`, ``, ID{}, Unknown, false},
		{"method and result", `{"id":1,"method":"m","result":{`, ``, ID{raw: "1"}, Unknown, true},
		{"no object", `[{"id":1,"method":"m"}`, ``, ID{}, Unknown, false},
		{"nothing", ``, ``, ID{}, Unknown, false},
		{"escaped names", `{"\u0069d":1,"metho\u0064":"m"`, ``, ID{raw: "1"}, Request, true},
		{"broken after the id", `{"id":1 "method"`, `}}}]]]"`, ID{raw: "1"}, Unknown, true},
	} {
		id, kind, ok := Salvage([]byte(tc.prefix), []byte(tc.tail))
		if id != tc.id || kind != tc.kind || ok != tc.ok {
			t.Errorf("%s: got %v %v %v, want %v %v %v", tc.name, id, kind, ok, tc.id, tc.kind, tc.ok)
		}
		if tc.tail == "" {
			if id2, kind2, ok2 := SalvageID([]byte(tc.prefix)); id2 != id || kind2 != kind || ok2 != ok {
				t.Errorf("%s: SalvageID differs", tc.name)
			}
		}
	}
}
