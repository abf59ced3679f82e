package httpserver

import (
	"strings"
	"testing"

	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
)

const annotated = `{"resultType":"complete","tools":[{"name":"plain","inputSchema":{"type":"object"}},{"name":"now","inputSchema":{"type":"object","properties":{
	"region":{"type":"string","x-mcp-header":"region"},"count":{"type":"integer","x-mcp-header":"Count"},
	"opts":{"type":"object","properties":{"dry":{"type":"boolean","x-mcp-header":"Dry-Run"}}}}}}]}`

// MCP-60, MCP-61, MCP-G37: headers that repeat arguments are compared with them
// once the tool was listed, since a server on stdio never sees them.
func TestParamHeadersAreChecked(t *testing.T) {
	f := &fake{}
	f.handle = func(s *fakeSession, a arrival) {
		if a.Method == mcp.MethodListTools {
			_ = a.to.Answer(0, jsonrpc.AppendResponse(nil, a.ID, []byte(annotated)))
			return
		}
		standard(s, a)
	}
	r := newRig(t, Config{Backend: f, Identify: who})
	send := func(args string, headers ...string) reply {
		body, standard := modernCall("7", "now")
		return r.post(strings.Replace(body, `"name":`, `"arguments":`+args+`,"name":`, 1), append(append([]string{"X-Who: ana"}, standard...), headers...)...)
	}
	region, count, dry := "Mcp-Param-Region: eu", "Mcp-Param-Count: 3", "MCP-PARAM-DRY-RUN: true"
	if got := send(`{"region":"us"}`, region); got.status != 200 {
		t.Errorf("before the tool was listed: %+v", got)
	}
	r.post(modernBody("1", "tools/list", ""), "X-Who: ana", "MCP-Protocol-Version: 2026-07-28", "Mcp-Method: tools/list")
	for name, c := range map[string]struct {
		args    string
		headers []string
		fine    bool
	}{
		"all":                {`{"region":"eu","count":3,"opts":{"dry":true}}`, []string{region, count, dry}, true},
		"none":               {`{"count":null}`, nil, true},
		"another tool's":     {`{}`, []string{"Mcp-Param-Other: x"}, true},
		"base64":             {`{"region":"eu"}`, []string{"Mcp-Param-Region: =?base64?ZXU=?="}, true},
		"number, other form": {`{"count":3.0}`, []string{"Mcp-Param-Count: 3e0"}, true},
		"half base64":        {`{"region":"=?base64?ZXU="}`, []string{"Mcp-Param-Region: =?base64?ZXU="}, true},
		"bad padding":        {`{"region":"eu"}`, []string{"Mcp-Param-Region: =?base64?ZXU?="}, false},
		"bad base64":         {`{"region":"eu"}`, []string{"Mcp-Param-Region: =?base64?Z!U=?="}, false},
		"missing":            {`{"region":"eu"}`, nil, false},
		"different":          {`{"region":"EU"}`, []string{region}, false},
		"without argument":   {`{}`, []string{region}, false},
		"without arguments":  {`null`, []string{region}, false},
		"twice":              {`{"region":"eu"}`, []string{region, "+Mcp-Param-Region: us"}, false},
		"other number":       {`{"count":4}`, []string{count}, false},
		"no integer":         {`{"count":3.5}`, []string{"Mcp-Param-Count: 3.5"}, false},
		"unsafe integer":     {`{"count":9007199254740993}`, []string{"Mcp-Param-Count: 9007199254740993"}, false},
		"other boolean":      {`{"opts":{"dry":false}}`, []string{dry}, false},
		"object":             {`{"region":{}}`, []string{region}, false},
	} {
		got := send(c.args, c.headers...)
		if want := map[bool]int{true: 200, false: 400}[c.fine]; got.status != want || !c.fine && errorOf(got.body) != -32020 {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := send(`{"region":"us"}`, region, "X-Who: bob"); got.status != 200 {
		t.Errorf("another principal, who listed nothing: %+v", got)
	}
}
