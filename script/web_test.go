package script

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// evaluate runs a body and returns the text it came to.
func evaluate(t *testing.T, n *Network, body string) string {
	t.Helper()
	call, err := project(t, false, execute("const show = async () => {"+body+"};\nreturn {success: true, message: String(await show())}")).Call([]byte(`{}`), Options{Network: n})
	if err != nil {
		t.Fatal(err)
	}
	e := call.Run(context.Background())
	return text(e.Result)
}

// TestWebGlobals holds the globals that need no network to what browsers do (AT-76,
// AT-77).
func TestWebGlobals(t *testing.T) {
	for name, test := range map[string]struct{ body, want string }{
		"url":           {`const u = new URL("../x?a=1#h", "https://me:pw@Example.com:8443/p/q"); return [u.href, u.origin, u.port, u.username, u.searchParams.get("a")].join()`, "https://me:pw@example.com:8443/x?a=1#h,https://example.com:8443,8443,me,1"},
		"url set":       {`const u = new URL("http://a/"); u.searchParams.append("q", "ä b"); u.pathname = "/z"; u.hash = "x"; return u`, "http://a/z?q=%C3%A4+b#x"},
		"url search":    {`const u = new URL("http://a/?x=1"); u.search = "y=2&y=3"; return u.searchParams.getAll("y").join() + u.searchParams.has("x")`, "2,3false"},
		"url bad":       {`try { new URL("nope") } catch (e) { return e instanceof TypeError }`, "true"},
		"url parse":     {`return URL.canParse("x:y") + " " + URL.parse("//") + " " + JSON.stringify({u: new URL("http://a")})`, `true null {"u":"http://a/"}`},
		"params":        {`const p = new URLSearchParams("a=1&a=2&b=%zz+x"); p.set("a", "9"); p.delete("q"); p.sort(); return p + " " + [...p.keys()].join() + " " + p.size`, "a=9&b=%25zz+x a,b 2"},
		"params object": {`return new URLSearchParams({x: "1", y: "é&="}) + " " + new URLSearchParams([["k", "v"]])`, "x=1&y=%C3%A9%26%3D k=v"},
		"encode":        {`return [...new TextEncoder().encode("é€😀")].join()`, "195,169,226,130,172,240,159,152,128"},
		"decode":        {`const d = new TextDecoder(), b = new TextEncoder().encode("é€😀"); return d.decode(b.subarray(0, 3), {stream: true}) + "|" + d.decode(b.subarray(3), {stream: true}) + d.decode()`, "é|€😀"},
		"decode bad":    {`const b = new Uint8Array([0xff]); try { return new TextDecoder().decode(b) + new TextDecoder("utf-8", {fatal: true}).decode(b) } catch (e) { return e.name }`, "TypeError"},
		"base64":        {`return btoa("hi\xff") + atob("aGk=") + Data.fromBase64String("aGk=")!.toHexString()`, "aGn/hi6869"},
		"base64 bad":    {`try { btoa("€") } catch (e) { return e.name + e.code }`, "InvalidCharacterError5"},
		"data":          {`const d = Data.fromRawString("ab"); d.append(Data.fromHexString("63")!); return d.size + d.toRawString() + d.slice(1).toBase64String() + new Uint8Array(d.toArrayBuffer()).length`, "3abcYmM=3"},
		"abort":         {`const c = new AbortController(); let heard = ""; c.signal.onabort = () => heard += "on"; c.signal.addEventListener("abort", () => heard += "+listener"); c.abort(); c.abort(); try { c.signal.throwIfAborted() } catch (e) { return heard + e.name + e.code + c.signal.aborted }`, "on+listenerAbortError20true"},
		"abort any":     {`const c = new AbortController(); const s = AbortSignal.any([AbortSignal.timeout(60000), c.signal]); c.abort("why"); return s.reason`, "why"},
		"timeout":       {`const s = AbortSignal.timeout(5); await new Promise(r => s.addEventListener("abort", r)); return s.reason.name + s.reason.code`, "TimeoutError23"},
		"no new signal": {`try { new (AbortSignal as any)() } catch (e) { return e.message }`, "Illegal constructor"},
		"headers":       {`const h = new Headers({B: "2"}); h.append("a", "1"); h.append("A", "3"); h.append("Set-Cookie", "x=1"); h.append("set-cookie", "y=2"); return JSON.stringify([...h]) + JSON.stringify(h.getSetCookie())`, `[["a","1, 3"],["b","2"],["set-cookie","x=1"],["set-cookie","y=2"]]["x=1","y=2"]`},
		"headers bad":   {`try { new Headers({"a b": "1"}) } catch (e) { return e.name }`, "TypeError"},
		"response":      {`const r = new Response('{"a":1}', {status: 201, headers: {"content-type": "application/json; x"}}); const c = r.clone(); return (await r.json()).a + r.mimeType + r.ok + (await c.text()) + r.bodyUsed`, `1application/jsontrue{"a":1}true`},
		"read twice":    {`const r = new Response("x"); await r.text(); try { await r.text() } catch (e) { return e.name }`, "TypeError"},
		"response json": {`return (await Response.json({a: [1]}).text())`, `{"a":[1]}`},
		"blob":          {`const b = new Blob(["ab", new Uint8Array([99])], {type: "Text/Plain"}); return b.size + b.type + (await b.slice(1).text())`, "3text/plainbc"},
		"form":          {`const f = new FormData(); f.append("a", "1"); f.append("f", new File(["x"], "n.txt")); f.append("a", 2 as any); return f.getAll("a").join() + (f.get("f") as File).name + [...f.keys()].join()`, "1,2n.txta,f,a"},
		"stream":        {`const s = new ReadableStream({start(c) { c.enqueue(new TextEncoder().encode("ab")); c.close() }}); let out = ""; for await (const p of s as any) out += new TextDecoder().decode(p); return out`, "ab"},
		"request":       {`const r = new Request("http://a/b", {method: "post", body: "x", headers: {X: "1"}}); return r.method + r.url + r.headers.get("x") + r.clone().method`, "POSThttp://a/b1POST"},
		"no connect":    {`return ["CONNECT", "trace", "Track"].map(method => { try { new Request("http://a", {method}); return "taken" } catch (e) { return e.name } }).join()`, "TypeError,TypeError,TypeError"},
		"get body":      {`try { new Request("http://a", {body: "x"}) } catch (e) { return e.message }`, "a GET request has no body"},
		"module":        {`const m = (globalThis as any).__scripting; return [m.URL === URL, typeof m.CancelToken, m.VStack].join()`, "true,function,"},
		"off":           {`try { await fetch("http://127.0.0.1:1/") } catch (e) { return e.name + ": " + e.message }`, "TypeError: fetch failed: 127.0.0.1:1 is not among the hosts that scripts may connect to"},
		"no way out":    {`return [AbortSignal, URL, URLSearchParams, ReadableStream, Response].map((c: any) => Object.getOwnPropertyNames(c).filter(n => /fire|follow|read|write|bind|reset|used|fill|split/.test(n)).join()).join("")`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := evaluate(t, nil, test.body); got != test.want && !strings.HasSuffix(strings.Replace(got, `Get "http://127.0.0.1:1/": `, "", 1), test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// site is a server for scripts.
func site(t *testing.T) (*Network, string, chan struct{}) {
	t.Helper()
	gone := make(chan struct{}, 100)
	mux := http.NewServeMux()
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		b := make([]byte, 1<<10)
		n, _ := r.Body.Read(b)
		w.Header().Add("Set-Cookie", "a=1; Path=/")
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(http.StatusTeapot)
		_, _ = fmt.Fprintf(w, "%s %s %s", r.Method, r.Header.Get("Content-Type"), b[:n])
	})
	mux.HandleFunc("/away", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://elsewhere.example/", http.StatusFound)
	})
	mux.HandleFunc("/hang", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("head") {
			_, _ = fmt.Fprint(w, "begin")
			w.(http.Flusher).Flush()
		}
		<-r.Context().Done()
		select {
		case gone <- struct{}{}:
		default: // of a crowd nobody counts them all; to wait here would hold the server's end
		}
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &Network{Hosts: []string{strings.TrimPrefix(s.URL, "http://")}, Transport: transport}, s.URL, gone
}

// TestFetch is the network as scripts see it (AT-75, AT-78).
func TestFetch(t *testing.T) {
	n, at, _ := site(t)
	for name, test := range map[string]struct{ body, want string }{
		"post":       {`const r = await fetch("AT/echo", {method: "POST", body: "hi"}); return r.status + " " + r.ok + " " + r.cookies[0].value + " " + r.mimeType + " " + (await r.text())`, "418 false 1 text/plain POST text/plain;charset=UTF-8 hi"},
		"form":       {`return (await (await fetch("AT/echo", {method: "POST", body: new URLSearchParams({a: "b"})})).text())`, "POST application/x-www-form-urlencoded;charset=UTF-8 a=b"},
		"request":    {`return (await (await fetch(new Request("AT/echo", {method: "PUT", body: new Blob(["x"], {type: "a/b"})}))).text())`, "PUT a/b x"},
		"redirect":   {`try { await fetch("AT/away") } catch (e) { return e.name }`, "TypeError"},
		"manual":     {`return (await fetch("AT/away", {redirect: "manual"})).status`, "302"},
		"file":       {`try { await fetch("file:///etc/passwd") } catch (e) { return e.name }`, "TypeError"},
		"timeout -":  {`try { await fetch("AT/echo", {timeout: -1}) } catch (e) { return e.name }`, "TypeError"},
		"timeout":    {`try { await fetch("AT/hang", {timeout: 0.05}) } catch (e) { return e.name + e.code }`, "TimeoutError23"},
		"abort":      {`const c = new AbortController(); setTimeout(() => c.abort(), 20); try { await fetch("AT/hang", {signal: c.signal}) } catch (e) { return e.name }`, "AbortError"},
		"abort body": {`const c = new AbortController(); const r = await fetch("AT/hang?head", {signal: c.signal}); const b = r.body!.getReader(); const first = new TextDecoder().decode((await b.read()).value); setTimeout(() => c.abort(), 20); try { await b.read() } catch (e) { return first + e.name }`, "beginAbortError"},
		"many":       {`return (await Promise.allSettled(Array.from({length: 40}, (_, i) => fetch("AT/hang", {timeout: 0.2})))).filter(r => r.status === "rejected" && (r as any).reason.name === "TypeError").length`, "8"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := evaluate(t, n, strings.ReplaceAll(test.body, "AT", at)); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// TestStopEndsFetches closes the connection when the grace is over; the script's
// catch gets an AbortError (AT-33, acceptance 11).
func TestStopEndsFetches(t *testing.T) {
	n, at, gone := site(t)
	tool := project(t, false, execute(`AssistantTool.report("now"); try { await fetch("`+at+`/hang") } catch (e) { console.log("caught " + e.name) }`))
	e, w := stopAt(t, tool, Options{Network: n, Grace: 100 * time.Millisecond, KillAfter: 5 * time.Second}, nil)
	select {
	case <-gone:
	case <-time.After(5 * time.Second):
		t.Error("the server still has the connection")
	}
	if logs, _ := w.said(); !e.Cancelled || e.Ending != Returned || logs != "info: caught AbortError" {
		t.Errorf("ended %+v, log %q", e, logs)
	}
}
