package hook

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/belayhq/belay"
)

const args = `{"s":"a b","n":1e400,"big":12345678901234567890,"t":true,"null":null,"list":[1],"o":{"k-1":"deep","dots":".."},
"empty":"","dash":"-x","nul":"a\u0000b","twice":1,"twice":2,"long":"` // closed in the tests

func testValues() values {
	return values{call: &Call{Run: belay.NewRunID(), Server: "srv", Tool: "t", RequestID: "7", Args: checkArgs([]byte(args + strings.Repeat("x", 5000) + `"}`))}, reason: "why\r\nnot", cause: belay.CauseUser}
}

// A value that is missing or of a kind that does not fit is an error that says
// so, and the hook is not run (DESIGN 11, 6).
func TestFillCommand(t *testing.T) {
	for _, c := range []struct{ text, want, err string }{
		{"{args.s}", "a b", ""},
		{"x{args.n}{args.t}y", "x1e400truey", ""},
		{"{args.big}", "12345678901234567890", ""},
		{"{args.o.k-1}", "deep", ""},
		{"{server}/{tool}/{request_id}/{cause}", "srv/t/7/user", ""},
		{"{reason}", "why  not", ""},
		{"--x={args.dash}", "--x=-x", ""},
		{"{ x } {} {1} {{args.s}} ${x", "{ x } {} {1} {{args.s}} ${x", ""},
		{"{args.dash}", "", "option"},
		{"{args.none}", "", "no such argument"},
		{"{args.o.k-1.more}", "", "no such argument"},
		{"{args.null}", "", "must be a string"},
		{"{args.list}", "", "must be a string"},
		{"{args.o}", "", "must be a string"},
		{"{args.empty}", "", "empty"},
		{"{args.nul}", "", "NUL"},
		{"{args.twice}", "", "twice"},
		{"{args.long}", "", "too long"},
		{"{request}", "", "unknown placeholder {request}"},
		{"{args}", "", "unknown placeholder"},
	} {
		got, err := argv([]string{"prog", c.text}, testValues())
		if c.err != "" {
			if !errors.Is(err, ErrFill) || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v", c.text, err)
			}
			continue
		}
		if err != nil || len(got) != 2 || got[1] != c.want {
			t.Errorf("%s: %q, %v", c.text, got, err)
		}
	}
	for _, raw := range []string{"", "null", "[]", "7", "{", `"x"`} {
		v := values{call: &Call{Args: checkArgs([]byte(raw))}}
		if _, err := argv([]string{"prog", "{args.s}"}, v); !errors.Is(err, ErrFill) {
			t.Errorf("arguments %q: %v", raw, err)
		}
	}
}

// Nothing leads out of its place in a URL or a body.
func TestFillRequest(t *testing.T) {
	for _, c := range []struct{ url, want, err string }{
		{"http://h:1/a/{args.s}?b={args.s}&c", "http://h:1/a/a%20b?b=a+b&c", ""},
		{"http://h?{args.s}", "http://h?a+b", ""},
		{"http://h/{args.o.dots}/x", "", "segment"},
		{"http://h/x/.{args.o.dots}", "http://h/x/...", ""},
		{"http://h/{args.none}", "", "no such argument"},
	} {
		got, err := (&HTTP{URL: c.url}).target(testValues())
		if c.err != "" {
			if !errors.Is(err, ErrFill) || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %q, %v", c.url, got, err)
			}
		} else if err != nil || got != c.want {
			t.Errorf("%s: %q, %v", c.url, got, err)
		}
	}
	for _, c := range []struct{ kind, body, want string }{
		{"", `{"a":"<{args.s}>","b":{args.s},"c":{args.big},"d":"{args.t}"}`, `{"a":"<a b>","b":"a b","c":12345678901234567890,"d":"true"}`},
		{"", `[{args.s}`, ""},
		{"", `why: {reason}`, "why: why  not"},
		{typeForm, `a={args.s}&b={server}`, "a=a+b&b=srv"},
		{"", ``, ""},
	} {
		h := &HTTP{Body: c.body}
		if c.kind != "" {
			h.Header = []Header{{"content-type", c.kind}}
		}
		got, err := h.body(testValues())
		if bad := c.want == "" && c.body != ""; bad != (err != nil) || !bad && got != c.want {
			t.Errorf("%s: %q, %v", c.body, got, err)
		}
	}
}

// Bad hooks are refused with what is wrong.
func TestValidate(t *testing.T) {
	get := func(url string) *Action { return &Action{HTTP: &HTTP{URL: url}} }
	for _, c := range []struct {
		a    *Action
		want string
	}{
		{&Action{}, "exactly one"},
		{&Action{Command: []string{"x"}, HTTP: &HTTP{URL: "http://h"}}, "exactly one"},
		{&Action{Command: []string{"{tool}"}}, "must be fixed"},
		{&Action{Command: []string{""}}, "must be fixed"},
		{&Action{Command: []string{"x", "a\x00"}}, "NUL"},
		{&Action{Command: []string{"x", "{args.}"}}, "unknown placeholder"},
		{&Action{Command: []string{"x"}, Timeout: -1}, "negative"},
		{&Action{Command: []string{"x"}, No: []int{1}}, "only alive"},
		{get("ftp://h/"), "must begin"},
		{get("h/x"), "must begin"},
		{get("http:///x"), "no host"},
		{get("http://{server}/x"), "host"},
		{get("http://h/#x"), "fragment"},
		{get("http://h:x/"), "invalid port"},
		{get("http://h/{x}"), "unknown placeholder"},
		{&Action{HTTP: &HTTP{Method: "get", URL: "http://h"}}, "capital"},
		{&Action{HTTP: &HTTP{URL: "http://h", Header: []Header{{"a b", ""}}}}, "not possible"},
		{&Action{HTTP: &HTTP{URL: "http://h", Header: []Header{{"host", ""}}}}, "itself"},
		{&Action{HTTP: &HTTP{URL: "http://h", Header: []Header{{"X", "{x}"}}}}, "unknown"},
		{&Action{HTTP: &HTTP{URL: "http://h", Body: "{x}"}}, "unknown"},
	} {
		err := (&Hooks{Kill: c.a}).Validate()
		if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "kill") {
			t.Errorf("%+v: %v", c.a, err)
		}
		if _, err := (&Hooks{Kill: c.a}).For(Call{}).Kill(t.Context(), nil); err == nil {
			t.Errorf("%+v was run", c.a)
		}
	}
	both := &Hooks{Alive: &Action{Command: []string{"x"}, Yes: []int{1}, No: []int{1}}}
	if err := both.Validate(); !errors.Is(err, ErrConfig) {
		t.Errorf("yes and no: %v", err)
	}
	good := &Hooks{
		Tell:  &Action{Command: []string{"docker", "stop", "--", "{args.name}"}},
		Kill:  &Action{HTTP: &HTTP{URL: "http://docker/containers/{args.name}/kill", Socket: "/run/docker.sock"}},
		Alive: &Action{HTTP: &HTTP{URL: "https://h:1"}, No: []int{404}},
	}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
}

// FuzzFill: whatever a model puts into arguments, it stays one argument that is
// no option, one segment of a path, one value of a query and one JSON string.
func FuzzFill(f *testing.F) {
	for _, s := range []string{"a", "--rm", "../..", "a/b?c#d&e=f%2e", "\r\nX: y", `"},{"`, "\x00", "$(x)`y`;|", "é\u2028", "{args.s}{{run}}", "."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		raw, _ := json.Marshal(map[string]string{"s": s})
		v := values{call: &Call{Args: checkArgs(raw)}}
		got, err := argv([]string{"p", "{args.s}", "x{args.s}y"}, v)
		if err == nil && (len(got) != 3 || strings.HasPrefix(got[1], "-") || got[2] != "x"+got[1]+"y" || !utf8.ValidString(got[1])) {
			t.Fatalf("%q", got)
		}
		if err != nil && !errors.Is(err, ErrFill) {
			t.Fatal(err)
		}
		h := &HTTP{URL: "http://h/a/{args.s}/b?c={args.s}&d=1", Body: `{"s":"{args.s}","t":{args.s}}`}
		if target, err := h.target(v); err == nil {
			u, err := url.Parse(target)
			if err != nil || u.Host != "h" || strings.Count(u.EscapedPath(), "/") != 3 || len(u.Query()) != 2 || u.Query().Get("d") != "1" || u.Fragment != "" {
				t.Fatalf("%q: %+v, %v", target, u, err)
			}
		}
		if body, err := h.body(v); err == nil {
			var m map[string]string
			if json.Unmarshal([]byte(body), &m) != nil || len(m) != 2 || m["s"] != m["t"] {
				t.Fatalf("%q", body)
			}
		}
		if text, err := headerValue("a {args.s}", v); err == nil {
			r, _ := http.NewRequest(http.MethodGet, "http://h", nil)
			r.Header.Set("X", text)
			if strings.ContainsAny(text, "\r\n\x00") || len(r.Header) != 1 {
				t.Fatalf("%q", text)
			}
		}
	})
}
