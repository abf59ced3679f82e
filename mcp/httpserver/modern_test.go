package httpserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
)

// MCP-60, MCP-G7: a modern call is answered in one JSON body under its own id.
func TestModernCallIsAnsweredInOneBody(t *testing.T) {
	r := newRig(t, Config{})
	for _, id := range []string{"0", `"0"`, "1.5", "1152921504606846976", `"q\u00e4"`} {
		body, headers := modernCall(id, "now")
		got := r.post(body, headers...)
		if got.status != 200 || got.header.Get("Content-Type") != "application/json" || !strings.Contains(got.body, `"id":`+id) {
			t.Errorf("id %s: %+v", id, got)
		}
	}
	if s := r.modern("local"); s.who.Principal != "local" {
		t.Errorf("caller %+v", s.who)
	}
}

// MCP-57…63, MCP-67, MCP-G37: what is wrong is refused with the sheet's code
// before the server sees it.
func TestModernHeadersAreChecked(t *testing.T) {
	r := newRig(t, Config{})
	good, headers := modernCall("7", "now")
	v, m, n := headers[0], headers[1], headers[2]
	read := modernBody("7", "resources/read", `"uri":"file:///ä",`)
	for name, c := range map[string]struct {
		body    string
		headers []string
		status  int
		code    int
	}{
		"fine":                    {good, headers, 200, 0},
		"fine, base64":            {good, []string{v, m, "Mcp-Name: =?base64?bm93?="}, 200, 0},
		"no version header":       {good, []string{m, n}, 400, -32020},
		"version twice":           {good, []string{v, "+MCP-Protocol-Version: 2025-11-25", m, n}, 400, -32020},
		"other version in header": {good, []string{"MCP-Protocol-Version: 2025-11-25", m, n}, 400, -32020},
		"unserved version":        {strings.ReplaceAll(good, "2026-07-28", "2099-01-01"), []string{"MCP-Protocol-Version: 2099-01-01", m, n}, 400, -32022},
		"no _meta":                {call("7", "now"), headers, 400, -32602},
		"no version in _meta":     {strings.Replace(good, `"io.modelcontextprotocol/protocolVersion":"2026-07-28",`, "", 1), headers, 400, -32602},
		"version no string":       {strings.Replace(good, `:"2026-07-28"`, ":7", 1), headers, 400, -32602},
		"no capabilities":         {strings.Replace(good, `,"io.modelcontextprotocol/clientCapabilities":{}`, "", 1), headers, 400, -32602},
		"capabilities no object":  {strings.Replace(good, `clientCapabilities":{}`, `clientCapabilities":1`, 1), headers, 400, -32602},
		"no method header":        {good, []string{v, n}, 400, -32020},
		"other method":            {good, []string{v, "Mcp-Method: tools/list", n}, 400, -32020},
		"method in other case":    {good, []string{v, "Mcp-Method: Tools/Call", n}, 400, -32020},
		"no name":                 {good, []string{v, m}, 400, -32020},
		"other name":              {good, []string{v, m, "Mcp-Name: later"}, 400, -32020},
		"name twice":              {good, []string{v, m, n, "+Mcp-Name: later"}, 400, -32020},
		"bad base64":              {good, []string{v, m, "Mcp-Name: =?base64?!?="}, 400, -32020},
		"name missing in body":    {strings.Replace(good, `"name":"now",`, "", 1), headers, 400, -32020},
		"uri":                     {read, []string{v, "Mcp-Method: resources/read", "Mcp-Name: =?base64?ZmlsZTovLy/DpA==?="}, 0, 0},
		"task without name":       {modernBody("7", "tasks/cancel", `"taskId":"t-1",`), []string{v, "Mcp-Method: tasks/cancel"}, 400, -32020},
		"null id":                 {strings.Replace(good, `"id":7`, `"id":null`, 1), headers, 400, -32600},
		"response":                {`{"jsonrpc":"2.0","id":7,"result":{}}`, headers, 400, -32600},
		"batch":                   {"[" + good + "]", headers, 400, -32600},
		"no JSON":                 {good[:40], headers, 400, -32700},
		"initialize":              {modernBody("7", "initialize", ""), []string{v, "Mcp-Method: initialize"}, 404, -32601},
		"unserved, no date":       {strings.ReplaceAll(good, "2026-07-28", "v999.0.0"), []string{"MCP-Protocol-Version: v999.0.0", m, n}, 400, -32022},
		"unknown method":          {modernBody("7", "unknown", ""), []string{v, "Mcp-Method: unknown"}, 404, -32601},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			if c.status == 0 { // no answer comes: it is enough that it arrived
				go func() {
					if resp, err := r.begin(ctx, http.MethodPost, "", c.body, c.headers...); err == nil {
						resp.Body.Close()
					}
				}()
				r.modern("local").call(t, "7")
				return
			}
			got := r.post(c.body, c.headers...)
			if got.status != c.status || errorOf(got.body) != c.code {
				t.Errorf("got %d, %s; want %d, %d", got.status, got.body, c.status, c.code)
			}
			if c.code == -32022 && !strings.Contains(got.body, `"supported":["2026-07-28"`) {
				t.Errorf("no versions in %s", got.body)
			}
		})
	}
}

// MCP-64: sessions, GET and DELETE are gone.
func TestModernKnowsNoSessions(t *testing.T) {
	r := newRig(t, Config{})
	for _, method := range []string{http.MethodGet, http.MethodDelete, http.MethodPut} {
		got := r.do(method, "", "", "MCP-Protocol-Version: 2026-07-28", "Mcp-Session-Id: x", "Last-Event-ID: 1-1")
		if got.status != http.StatusMethodNotAllowed || got.header.Get("Allow") == "" {
			t.Errorf("%s: %+v", method, got)
		}
	}
	body, headers := modernCall("1", "now")
	if got := r.post(body, append(headers, "Mcp-Session-Id: made-up", "Last-Event-ID: 1-1")...); got.status != 200 || got.header.Get("Mcp-Session-Id") != "" {
		t.Errorf("with old headers: %+v", got)
	}
}

// MCP-54, A3, MCP-G15: any abort before the response is complete is a Stop:
// before the headers, and in the middle of a stream.
func TestModernAbortIsAStop(t *testing.T) {
	for _, streaming := range []bool{false, true} {
		r := newRig(t, Config{HeaderWait: time.Hour})
		ctx, cancel := context.WithCancelCause(t.Context())
		body, headers := modernCall("0", "later")
		done := make(chan error, 1)
		go func() {
			resp, err := r.begin(ctx, http.MethodPost, "", body, headers...)
			if err == nil {
				_, err = resp.Body.Read(make([]byte, 1))
				cancel(nil)
				resp.Body.Close()
			}
			done <- err
		}()
		a := r.modern("local").call(t, "0")
		if !a.ByExchange || a.Exchange == 0 {
			t.Errorf("arrival %+v", a.Arrival)
		}
		if streaming {
			if err := a.to.Send([]byte(`{"jsonrpc":"2.0","method":"notifications/progress"}`)); err != nil {
				t.Fatal(err)
			}
		} else {
			cancel(nil)
		}
		eventually(t, "Abandon", func() bool { return len(r.modern("local").abandoned()) == 1 })
		if c := r.modern("local").abandoned()[0]; c.Cause != belay.CauseDisconnect || c.Via != "mcp" || c.By != "local" {
			t.Errorf("cancellation %+v", c)
		}
		<-done
		eventually(t, "outlet gone", func() bool { return a.to.Answer(0, a.ok()) != nil })
	}
}

// MCP-G10, MCP-G13: a posted cancel is 202 in any shape and goes to the session.
func TestModernCancelIsAlwaysAccepted(t *testing.T) {
	r := newRig(t, Config{})
	v := "MCP-Protocol-Version: 2026-07-28"
	for _, c := range []struct {
		body      string
		headers   []string
		delivered bool
	}{
		{`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, []string{v}, true},
		{`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{}}`, []string{v, "Mcp-Method: wrong"}, true},
		{`{"jsonrpc":"2.0","method":"notifications/cancelled"}`, []string{v, "Content-Type: text/plain", "Accept: text/html"}, true},
		{`{"jsonrpc":"2.0","id":3,"method":"notifications/cancelled"}`, []string{v}, false},
		{`{"jsonrpc":"1.0","method":"notifications/cancelled"}`, []string{v}, false},
		{`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{` + meta + `}}`, nil, true},
		{`{"jsonrpc":"2.0","method":"notifications/cancelled"}`, nil, false}, // no session, no version
	} {
		before := len(r.modern("local").got())
		got := r.post(c.body, c.headers...)
		if got.status != http.StatusAccepted || got.body != "" {
			t.Errorf("%s: %+v", c.body, got)
		}
		if n := len(r.modern("local").got()) - before; (n == 1) != c.delivered {
			t.Errorf("%s: %d delivered", c.body, n)
		}
	}
}

// MCP-61: Mcp-Param-* headers go on with the message.
func TestParamHeadersAreForwarded(t *testing.T) {
	r := newRig(t, Config{})
	body, headers := modernCall("5", "now")
	r.post(body, append(headers, "Mcp-Param-Region: eu")...)
	a := r.modern("local").call(t, "5")
	if len(a.Params) != 1 || a.Params[0].Name != "Mcp-Param-Region" || a.Params[0].Value != "eu" {
		t.Errorf("params %v", a.Params)
	}
}

// MCP-62: the status of the server wins; without one the code decides; a
// response that is not the first thing travels on the stream.
func TestModernStatus(t *testing.T) {
	for _, c := range []struct {
		status, want int
		answer       string
	}{
		{0, 200, `{"jsonrpc":"2.0","id":1,"result":{"error":{"code":-32601}}}`},
		{0, 200, `{"jsonrpc":"2.0","id":1,"error":{"code":-32800,"message":"Cancelled"}}`},
		{0, 404, `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"x"}}`},
		{0, 400, `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"x"}}`},
		{0, 400, `{"jsonrpc":"2.0","id":1,"error":{"message":"x","code":-32021}}`},
		{422, 422, `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"x"}}`},
		{200, 200, `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"x"}}`},
	} {
		f := &fake{handle: func(_ *fakeSession, a arrival) { _ = a.to.Answer(c.status, []byte(c.answer)) }}
		r := newRig(t, Config{Backend: f})
		body, headers := modernCall("1", "x")
		if got := r.post(body, headers...); got.status != c.want || got.body != c.answer {
			t.Errorf("%+v: got %+v", c, got)
		}
	}
	r := newRig(t, Config{})
	body, headers := modernCall("1", "progress")
	got := r.post(body, headers...)
	list, _ := events(got.body)
	if got.status != 200 || len(list) != 2 || list[0].id != "" || !strings.Contains(list[1].data, `"result"`) {
		t.Errorf("stream: %+v", got)
	}
	if got.header.Get("X-Accel-Buffering") != "no" {
		t.Errorf("headers %v", got.header)
	}
}

// Whoever names the stream first gets one, unless the answer has an HTTP status
// of its own (MCP-62).
func TestModernStreamFirst(t *testing.T) {
	r := newRig(t, Config{})
	first := "Accept: text/event-stream, application/json"
	body, headers := modernCall("1", "now")
	got := r.post(body, append(headers, first)...)
	if list, _ := events(got.body); got.header.Get("Content-Type") != "text/event-stream" || len(list) != 1 {
		t.Errorf("%+v", got)
	}
	got = r.post(modernBody("7", "unknown", ""), "MCP-Protocol-Version: 2026-07-28", "Mcp-Method: unknown", first)
	if got.status != 404 || errorOf(got.body) != -32601 {
		t.Errorf("%+v", got)
	}
}

// MCP-G4, MCP-58: an upstream of the other era is reported with its versions.
func TestBackendErrors(t *testing.T) {
	for _, c := range []struct {
		err            error
		modern, legacy int
		code           int
	}{
		{&EraError{Supported: []string{"2025-06-18"}}, 400, 200, -32022},
		{ErrBusy, 503, 503, -32603},
		{fmt.Errorf("upstream: %w", ErrEra), 400, 400, -32600},
		{fmt.Errorf("upstream: %w", &EraError{}), 400, 200, -32022},
		{context.DeadlineExceeded, 502, 502, -32603},
	} {
		r := newRig(t, Config{Backend: &fake{refuse: c.err}})
		body, headers := modernCall("1", "x")
		got := r.post(body, headers...)
		if got.status != c.modern || errorOf(got.body) != c.code {
			t.Errorf("%v, modern: %+v", c.err, got)
		}
		got = r.post(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`)
		if got.status != c.legacy || errorOf(got.body) == 0 || got.header.Get("Mcp-Session-Id") != "" {
			t.Errorf("%v, legacy: %+v", c.err, got)
		}
		if _, ok := c.err.(*EraError); ok && (!errors.Is(c.err, ErrEra) || !strings.Contains(got.body, "2025-06-18")) {
			t.Errorf("no versions in %s", got.body)
		}
	}
}
