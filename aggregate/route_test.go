package aggregate

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/mcp"
	"github.com/belayhq/belay/mcp/httpserver"
)

const allCaps = `"tools":{},"prompts":{},"resources":{"subscribe":true},"logging":{},"completions":{}`

// both runs a test for callers of either era.
func both(t *testing.T, f func(t *testing.T, modern bool)) {
	for name, modern := range map[string]bool{"legacy": false, "modern": true} {
		t.Run(name, func(t *testing.T) { f(t, modern) })
	}
}

// start is a caller that may ask.
func start(t *testing.T, modern bool, fakes ...*fake) *rig {
	t.Helper()
	r := newRig(t, modern, Config{}, fakes...)
	if !modern {
		r.hello()
	}
	return r
}

// TestCallByName: a tool's server gets the call with the server's name taken
// off, and every other byte as it came; the answer passes as it is (MCP-G2,
// MCP-G7).
func TestCallByName(t *testing.T) {
	both(t, func(t *testing.T, modern bool) {
		a, b := &fake{name: "a", caps: allCaps}, &fake{name: "b", caps: allCaps}
		r := start(t, modern, a, b)
		for _, test := range []struct{ method, name, want string }{
			{mcp.MethodCallTool, `"b__tick"`, `"tick"`},
			{mcp.MethodCallTool, `"b__\u0074ick"`, `"\u0074ick"`},
			{mcp.MethodCallTool, `"\u0062__ti\"ck"`, `"ti\"ck"`},
			{mcp.MethodCallTool, `"b____x"`, `"__x"`},
			{methodGetPrompt, `"b__a__c"`, `"a__c"`},
		} {
			box := r.ask("1.5", test.method, `{ "arguments":{"n":1e0, "name":"b__x"},"name" : `+test.name+`,"unknown":9007199254740993}`)
			var call *fakeCall
			until(t, "b gets the call", func() bool {
				return b.last() != nil && len(b.last().got(test.want+`,"unknown":9007199254740993}`)) > 0
			})
			call = b.find(t, test.method)
			if call.ID.Raw() != "1.5" || !strings.Contains(string(call.Frame), `"arguments":{"n":1e0, "name":"b__x"},"name" : `+test.want) {
				t.Errorf("b got %s", call.Frame)
			}
			call.answer(`{"content":[ ],"x":1.0}`)
			if got := r.answer(box); got != `{"jsonrpc":"2.0","id":1.5,"result":{"content":[ ],"x":1.0}}` {
				t.Errorf("the caller got %s", got)
			}
			b.last().lock.Lock()
			b.last().frames, b.last().calls = nil, nil
			b.last().lock.Unlock()
		}
		if got := a.last().got("tools/call"); len(got) > 0 {
			t.Errorf("a got %v", got)
		}
	})
}

// TestCallWrongName: a name that no server has is refused, and nobody is asked.
func TestCallWrongName(t *testing.T) {
	both(t, func(t *testing.T, modern bool) {
		a := &fake{name: "a", caps: allCaps}
		r := start(t, modern, a)
		for _, params := range []string{
			`{"name":"tick"}`, `{"name":"c__tick"}`, `{"name":"a_tick"}`, `{"name":"__a"}`, `{"name":""}`, `{"name":7}`, `{}`,
			`{"name":"a__x","name":"a__y"}`,
		} {
			if code := r.failure(r.ask("1", mcp.MethodCallTool, params)); code != mcp.CodeInvalidParams {
				t.Errorf("%s: got %d", params, code)
			}
		}
		if got := a.last().got("tools/call"); len(got) > 0 {
			t.Errorf("a got %v", got)
		}
	})
}

// TestOwner: names are divided by the longest server name.
func TestOwner(t *testing.T) {
	servers := []string{"a", "a__b", "a_", "ab"}
	for name, want := range map[string]string{
		"a__x": "a", "a__b__x": "a__b", "a___x": "a_", "ab__x": "ab", "abc__x": "", "a": "", "a_x": "", "": "", "a__": "a",
	} {
		if got := owner(name, servers); got != want {
			t.Errorf("%q is of %q, want %q", name, got, want)
		}
	}
}

// lister answers lists: elements by list method, in pages.
func lister(pages map[string][]string) func(*fakeSession, *fakeCall) bool {
	return func(_ *fakeSession, c *fakeCall) bool {
		list, ok := pages[c.Method]
		if !ok {
			return false
		}
		i := 0
		if cursor := c.param("cursor"); cursor != "" {
			i = strings.Index("0123456789", cursor)
		}
		if i < 0 || i >= len(list) {
			c.fail(mcp.CodeInvalidParams, "what cursor is that")
			return true
		}
		next := ""
		if i+1 < len(list) {
			next = `,"nextCursor":"` + string("0123456789"[i+1]) + `"`
		}
		c.answer(`{%q:[%s]%s,"ttlMs":5,"cacheScope":"public"}`, lists[c.Method].member, list[i], next)
		return true
	}
}

// TestListMerged: lists of several pages are joined page by page, with names
// that say whose they are and everything else as it came; the end is the end of
// all (MCP-G2).
func TestListMerged(t *testing.T) {
	both(t, func(t *testing.T, modern bool) {
		a := &fake{name: "a", caps: allCaps, handle: lister(map[string][]string{
			"tools/list": {`{"title":"One","name":"one","x":1.0}`, `{"name":"two"}`, `{"name":"three"}`},
		})}
		b := &fake{name: "b", caps: allCaps, handle: lister(map[string][]string{"tools/list": {`{"name":"one"},{"name":"\u00e4"}`}})}
		c := &fake{name: "c", caps: allCaps, handle: lister(map[string][]string{"tools/list": {``, `{"name":"late"}`}})}
		r := start(t, modern, a, b, c)
		var all []string
		params, pages := "", 0
		for {
			result := r.result(r.ask("1", "tools/list", params))
			all = append(all, names(t, result, "tools", "name")...)
			if pages++; pages == 1 && !strings.Contains(result, `{"title":"One","name":"a__one","x":1.0}`) {
				t.Errorf("the first page is %s", result)
			}
			if modern && !strings.Contains(result, `"resultType":"complete","ttlMs":5,"cacheScope":"public"`) {
				t.Errorf("not a modern result: %s", result)
			}
			cursor := member(t, result, "nextCursor")
			if cursor == "" {
				break
			}
			params = `{"cursor":"` + cursor + `"}`
		}
		want := []string{"a__one", "b__one", "b__ä", "a__two", "c__late", "a__three"}
		if !slices.Equal(all, want) || pages != 3 {
			t.Errorf("got %v in %d pages, want %v", all, pages, want)
		}
	})
}

// TestListBadCursor: a cursor from elsewhere is refused; one of a server that has
// gone gives an end.
func TestListBadCursor(t *testing.T) {
	both(t, func(t *testing.T, modern bool) {
		a := &fake{name: "a", caps: allCaps, handle: lister(map[string][]string{"tools/list": {`{"name":"one"}`, `{"name":"two"}`}})}
		r := start(t, modern, a)
		twice := string(appendCursor(nil, []place{{"a", []byte(`"1"`)}, {"a", []byte(`"1"`)}}))
		inject := string(appendCursor(nil, []place{{"a", []byte(`"1","x":{}`)}}))
		for _, cursor := range []string{`"0"`, `"belay1:"`, `"belay1:!"`, `"belay1:AAAA"`, `7`, `{}`, `"` + twice + `"`, `"` + inject + `"`} {
			if code := r.failure(r.ask("1", "tools/list", `{"cursor":`+cursor+`}`)); code != mcp.CodeInvalidParams {
				t.Errorf("%s: got %d", cursor, code)
			}
		}
		gone := string(appendCursor(nil, []place{{"gone", []byte(`"1"`)}}))
		if got := names(t, r.result(r.ask("1", "tools/list", `{"cursor":"`+gone+`"}`)), "tools", "name"); len(got) != 0 {
			t.Errorf("got %v", got)
		}
	})
}

// TestListWithout: a member that fails, hangs, drops the request or talks
// nonsense is left out and named in the log; where nobody answered at all the
// list is an error, not an empty list.
func TestListWithout(t *testing.T) {
	both(t, func(t *testing.T, modern bool) {
		good := &fake{name: "good", caps: allCaps, handle: lister(map[string][]string{"tools/list": {`{"name":"one"},{"noname":1}`}})}
		bad := map[string]func(*fakeSession, *fakeCall) bool{
			"fails": func(_ *fakeSession, c *fakeCall) bool {
				if c.Method == "tools/list" {
					c.fail(-32603, "out of order")
				}
				return c.Method == "tools/list"
			},
			"hangs": nil,
			"drops": func(_ *fakeSession, c *fakeCall) bool {
				if c.Method == "tools/list" {
					c.to.Drop()
				}
				return c.Method == "tools/list"
			},
			"nonsense": func(_ *fakeSession, c *fakeCall) bool {
				if c.Method == "tools/list" {
					c.answer(`{"tools":{}}`)
				}
				return c.Method == "tools/list"
			},
		}
		fakes := []*fake{good}
		for name, handle := range bad {
			fakes = append(fakes, &fake{name: name, caps: allCaps, handle: handle})
		}
		r := newRig(t, modern, Config{ListWait: 100e6}, fakes...)
		if !modern {
			r.hello()
		}
		if got := names(t, r.result(r.ask("1", "tools/list", "")), "tools", "name"); !slices.Equal(got, []string{"good__one"}) {
			t.Errorf("got %v", got)
		}
		for name := range bad {
			if !r.logs.has("server=" + name) {
				t.Errorf("%s is not named in the log", name)
			}
		}
		if hung := fakes[slices.IndexFunc(fakes, func(f *fake) bool { return f.name == "hangs" })].find(t, "tools/list"); !hung.abandoned() {
			t.Error("the slow member was not told")
		}
		r.set(fakes[1:]...)
		if !modern {
			good.last().die()
			until(t, "it is out", func() bool { return len(r.s.(*session).joined()) == len(bad) })
		}
		if code := r.failure(r.ask("2", "tools/list", "")); code != mcp.CodeInternal {
			t.Errorf("got %d", code)
		}
	})
}

// TestListRefused: where all members refuse a list alike the caller reads what
// they say: an old cursor is bad parameters, as it is with one server.
func TestListRefused(t *testing.T) {
	both(t, func(t *testing.T, modern bool) {
		a := &fake{name: "a", caps: allCaps, handle: lister(map[string][]string{"tools/list": {`{"name":"one"}`}})}
		r := start(t, modern, a)
		old := string(appendCursor(nil, []place{{"a", []byte(`"7"`)}}))
		box := r.ask("1", "tools/list", `{"cursor":"`+old+`"}`)
		if got := r.failure(box); got != mcp.CodeInvalidParams || !strings.Contains(r.answer(box), "what cursor is that") {
			t.Errorf("got %s", r.answer(box))
		}
	})
}

// TestOneStream: a caller that has one stream for everything gets its answers
// there, those of lists and errors too (MCP-26).
func TestOneStream(t *testing.T) {
	a := &fake{name: "a", caps: allCaps, handle: lister(map[string][]string{"tools/list": {`{"name":"one"}`}})}
	r := newRig(t, false, Config{}, a)
	for i, frame := range []string{
		`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2024-11-05"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"x"}}`,
		`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"a__x"}}`,
	} {
		m := &mcp.Message{}
		if err := m.Read([]byte(frame)); err != nil {
			t.Fatal(err)
		}
		r.s.Deliver(mcp.Arrival{Message: m})
		if i == 3 {
			a.find(t, mcp.MethodCallTool).answer(`{}`)
		}
		until(t, "an answer", func() bool {
			r.home.mu.Lock()
			defer r.home.mu.Unlock()
			return len(r.home.answers) == i+1 && strings.Contains(r.home.answers[i], `"id":`+string("0123"[i]))
		})
	}
}

// TestResources: a resource is asked of the server that listed it; one that was
// not listed yet is looked for in all pages once, then by what templates begin
// with; nobody's is refused with the code of the era.
func TestResources(t *testing.T) {
	both(t, func(t *testing.T, modern bool) {
		a := &fake{name: "a", caps: allCaps, handle: lister(map[string][]string{
			"resources/list": {`{"uri":"file:///1"}`, `{"uri":"file:///2"},{"uri":"x:both"}`}, "resources/templates/list": {`{"uriTemplate":"db://{table}"}`},
		})}
		b := &fake{name: "b", caps: allCaps, handle: lister(map[string][]string{
			"resources/list": {`{"uri":"mem:1"},{"uri":"x:both"}`}, "resources/templates/list": {`{"uriTemplate":"db://b/{row}"},{"uriTemplate":"u:{x}"}`},
		})}
		r := start(t, modern, a, b)
		for uri, want := range map[string]*fake{"file:///2": a, "mem:1": b, "db://t": a, "db://b/7": b, "x:both": a, "u:": b} {
			for _, method := range []string{methodReadResource, mcp.MethodSubscribe, mcp.MethodUnsubscribe} {
				box := r.ask("1", method, `{"uri":"`+uri+`"}`)
				c := want.find(t, method)
				if c.param("uri") != uri {
					t.Errorf("%s of %s went elsewhere", method, uri)
				}
				c.answer(`{}`)
				r.result(box)
				want.last().lock.Lock()
				want.last().calls = nil
				want.last().lock.Unlock()
			}
		}
		code := codeNoResource
		if modern {
			code = mcp.CodeInvalidParams
		}
		scans := len(a.last().got(`"resources/list"`))
		for _, uri := range []string{`"nobody:1"`, `"nobody:2"`} {
			if got := r.failure(r.ask("1", methodReadResource, `{"uri":`+uri+`}`)); got != code {
				t.Errorf("got %d, want %d", got, code)
			}
		}
		if again := len(a.last().got(`"resources/list"`)); again != scans {
			t.Errorf("the lists were read again for every unknown URI: %d, then %d", scans, again)
		}
		for _, params := range []string{`{}`, `{"uri":7}`, `{"uri":"a","uri":"b"}`} {
			if got := r.failure(r.ask("1", methodReadResource, params)); got != mcp.CodeInvalidParams {
				t.Errorf("%s: got %d", params, got)
			}
		}
	})
}

// TestResourceBesideHanging: a member that never answers its lists does not hide
// the resources of others.
func TestResourceBesideHanging(t *testing.T) {
	both(t, func(t *testing.T, modern bool) {
		a := &fake{name: "a", caps: allCaps}
		b := &fake{name: "b", caps: allCaps, handle: lister(map[string][]string{"resources/list": {``, `{"uri":"mem:1"}`}, "resources/templates/list": {``}})}
		r := start(t, modern, a, b)
		box := r.ask("1", methodReadResource, `{"uri":"mem:1"}`)
		b.find(t, methodReadResource).answer(`{}`)
		r.result(box)
	})
}

// TestComplete: a completion goes to the server of what it is about.
func TestComplete(t *testing.T) {
	both(t, func(t *testing.T, modern bool) {
		a := &fake{name: "a", caps: allCaps, handle: lister(map[string][]string{"resources/list": {``}, "resources/templates/list": {`{"uriTemplate":"db://{table}"}`}})}
		b := &fake{name: "b", caps: allCaps, handle: lister(map[string][]string{"resources/list": {``}, "resources/templates/list": {``}})}
		r := start(t, modern, a, b)
		box := r.ask("1", methodComplete, `{"ref":{"type":"ref/prompt","name":"b__p"},"argument":{"name":"b__n","value":"v"}}`)
		c := b.find(t, methodComplete)
		if c.param("ref", "name") != "p" || c.param("argument", "name") != "b__n" {
			t.Errorf("b got %s", c.Frame)
		}
		c.answer(`{}`)
		r.result(box)
		box = r.ask("2", methodComplete, `{"ref":{"type":"ref/resource","uri":"db://{table}"},"argument":{"name":"table","value":"v"}}`)
		a.find(t, methodComplete).answer(`{}`)
		r.result(box)
		for _, params := range []string{`{}`, `{"ref":7}`, `{"ref":{"type":"ref/tool","name":"b__x"}}`, `{"ref":{"type":"ref/prompt","name":"x"}}`} {
			if got := r.failure(r.ask("3", methodComplete, params)); got != mcp.CodeInvalidParams {
				t.Errorf("%s: got %d", params, got)
			}
		}
	})
}

// TestTasks: requests about a task go to the server that made it; other ids are
// unknown (MCP-83, MCP-G38).
func TestTasks(t *testing.T) {
	both(t, func(t *testing.T, modern bool) {
		caps := allCaps + `,"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}`
		a, b := &fake{name: "a", caps: caps}, &fake{name: "b", caps: caps}
		r := start(t, modern, a, b)
		box := r.ask("1", mcp.MethodCallTool, `{"name":"b__x","task":{}}`)
		if modern {
			b.find(t, mcp.MethodCallTool).answer(`{"resultType":"task","taskId":"t-1"}`)
		} else {
			b.find(t, mcp.MethodCallTool).answer(`{"task":{"taskId":"t-1","status":"working"}}`)
		}
		r.result(box)
		for _, method := range []string{mcp.MethodGetTask, methodTaskResult, methodUpdateTask, mcp.MethodCancelTask} {
			box := r.ask("2", method, `{"taskId":"t-1"}`)
			b.find(t, method).answer(`{}`)
			r.result(box)
			if got := r.failure(r.ask("3", method, `{"taskId":"t-2"}`)); got != mcp.CodeInvalidParams {
				t.Errorf("got %d", got)
			}
		}
	})
}

// TestLevel: the log level is set everywhere, also in a server that joins later.
func TestLevel(t *testing.T) {
	level := func(_ *fakeSession, c *fakeCall) bool {
		if c.Method == mcp.MethodSetLevel {
			c.answer(`{}`)
		}
		return c.Method == mcp.MethodSetLevel
	}
	a, b, c := &fake{name: "a", caps: allCaps, handle: level}, &fake{name: "b", caps: `"tools":{}`}, &fake{name: "c", caps: allCaps, handle: level}
	r := begin(t, a, b)
	r.result(r.ask("1", mcp.MethodSetLevel, `{"level":"debug"}`))
	if len(a.last().got("setLevel")) != 1 || len(b.last().got("setLevel")) != 0 {
		t.Error("the level went to the wrong servers")
	}
	r.set(a, b, c)
	box := r.ask("2", mcp.MethodCallTool, `{"name":"c__x"}`)
	c.find(t, mcp.MethodCallTool).answer(`{}`)
	r.result(box)
	if got := c.last().got(`"level":"debug"`); len(got) != 1 || len(c.last().got("notifications/initialized")) != 1 {
		t.Errorf("the late server got %v", c.last().frames)
	}
	r.home.heard(t, mcp.NoticeTools)
}

// TestChanged: what joins, leaves or is defined anew is taken up at once where the
// configuration says that it has changed, and the caller is told; what is in
// flight in an old definition goes on.
func TestChanged(t *testing.T) {
	a, b, c := &fake{name: "a", caps: allCaps}, &fake{name: "b", caps: allCaps}, &fake{name: "c", caps: allCaps}
	r := begin(t, a, b)
	box := r.ask("1", mcp.MethodCallTool, `{"name":"b__x"}`)
	old := b.find(t, mcp.MethodCallTool)
	anew := &fake{name: "b", caps: allCaps}
	r.set(a, anew, c)
	r.b.Changed()
	until(t, "c has joined", func() bool { return len(c.last().got(mcp.NoticeInitialized)) == 1 })
	r.home.heard(t, mcp.NoticeTools)
	if anew.last() != nil {
		t.Error("the new definition was opened while the old one is at work")
	}
	old.answer(`{}`)
	r.result(box)
	b.last().die() // as it does when it has no more to do
	until(t, "the new definition is in", func() bool { return len(anew.last().got(mcp.NoticeInitialized)) == 1 })
	box = r.ask("2", mcp.MethodCallTool, `{"name":"b__x"}`)
	anew.find(t, mcp.MethodCallTool).answer(`{}`)
	r.result(box)

	r.set(a)
	anew.last().die()
	c.last().die()
	s := r.s.(*session)
	until(t, "both are forgotten", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.peers) == 1
	})
	if got := r.failure(r.ask("3", mcp.MethodCallTool, `{"name":"c__x"}`)); got != mcp.CodeInvalidParams {
		t.Errorf("got %d", got)
	}
}

// TestUnknown: what is not known goes to the only server, or to none.
func TestUnknown(t *testing.T) {
	both(t, func(t *testing.T, modern bool) {
		a, b := &fake{name: "a", caps: allCaps}, &fake{name: "b", caps: allCaps}
		r := start(t, modern, a, b)
		if got := r.failure(r.ask("1", "vendor/thing", "")); got != mcp.CodeMethodNotFound {
			t.Errorf("got %d", got)
		}
		one := start(t, modern, &fake{name: "only", caps: allCaps, handle: func(_ *fakeSession, c *fakeCall) bool {
			if c.Method == "vendor/thing" {
				c.answer(`{"ok":1}`)
			}
			return c.Method == "vendor/thing"
		}})
		one.result(one.ask("1", "vendor/thing", ""))
	})
}

// TestUnreachable: a call of a server that cannot be had fails, and others do
// not notice.
func TestUnreachable(t *testing.T) {
	both(t, func(t *testing.T, modern bool) {
		a, b := &fake{name: "a", caps: allCaps}, &fake{name: "b", refuse: errors.New("the secret path /x is not there")}
		c := &fake{name: "c", refuse: &httpserver.EraError{Supported: []string{"2099-01-01"}}}
		r := start(t, modern, a, b, c)
		if got := r.failure(r.ask("1", mcp.MethodCallTool, `{"name":"b__x"}`)); got != mcp.CodeInternal {
			t.Errorf("got %d", got)
		}
		box := r.ask("2", mcp.MethodCallTool, `{"name":"c__x"}`)
		if got := r.failure(box); got != mcp.CodeInvalidParams || strings.Contains(r.answer(box), "secret") {
			t.Errorf("got %s", r.answer(box))
		}
		if !r.logs.has("secret") {
			t.Error("the log does not say why")
		}
		box = r.ask("3", mcp.MethodCallTool, `{"name":"a__x"}`)
		a.find(t, mcp.MethodCallTool).answer(`{}`)
		r.result(box)
	})
}

// TestDuplicateID: an id that is in flight cannot be used again in a session;
// exchanges of modern callers can have any (MCP-67, MCP-G7).
func TestDuplicateID(t *testing.T) {
	both(t, func(t *testing.T, modern bool) {
		a := &fake{name: "a", caps: allCaps}
		r := start(t, modern, a)
		first := r.ask("1", mcp.MethodCallTool, `{"name":"a__x"}`)
		a.find(t, mcp.MethodCallTool)
		second := r.ask("1", mcp.MethodCallTool, `{"name":"a__y"}`)
		if !modern {
			if got := r.failure(second); got != mcp.CodeInvalidRequest {
				t.Errorf("got %d", got)
			}
		}
		until(t, "both calls", func() bool { return !modern || len(a.last().got("tools/call")) == 2 })
		for _, c := range a.last().calls {
			if c.Method == mcp.MethodCallTool {
				c.answer(`{"name":%q}`, c.ToolName())
			}
		}
		if got := member(t, r.result(first), "name"); got != "x" {
			t.Errorf("the first call got the answer of %s", got)
		}
		if modern {
			if got := member(t, r.result(second), "name"); got != "y" {
				t.Errorf("the second call got the answer of %s", got)
			}
		}
	})
}

// TestClose: a session that ends answers everything, with the reason, and ends
// the legacy sessions of its members; shared ones go on.
func TestClose(t *testing.T) {
	both(t, func(t *testing.T, modern bool) {
		a, b := &fake{name: "a", caps: allCaps}, &fake{name: "b", caps: allCaps}
		r := start(t, modern, a, b)
		call := r.ask("1", mcp.MethodCallTool, `{"name":"a__x"}`)
		list := r.ask("2", "tools/list", "")
		c := a.find(t, mcp.MethodCallTool)
		b.find(t, "tools/list")
		if err := r.s.Close(context.Background(), belay.Cancellation{Cause: belay.CauseShutdown, Reason: "good night"}); err != nil {
			t.Fatal(err)
		}
		for _, box := range []*box{call, list} {
			if !strings.Contains(r.answer(box), "good night") {
				t.Errorf("got %s", r.answer(box))
			}
		}
		select {
		case <-r.s.Ended():
		default:
			t.Error("the session has not ended")
		}
		if closed := len(a.last().closed); modern != (closed == 0) {
			t.Errorf("the member's session was closed %d times", closed)
		}
		if modern && !c.abandoned() {
			t.Error("the call was not stopped")
		}
		late := r.ask("3", mcp.MethodCallTool, `{"name":"a__x"}`)
		if got := r.failure(late); got != mcp.CodeInvalidRequest {
			t.Errorf("got %d", got)
		}
	})
}
