package front_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/acp/bridge"
	"github.com/belayhq/belay/acp/front"
	"github.com/belayhq/belay/local"
)

// Every entry is replaced under its name, in the form of its version; all other
// bytes stay (ACP-75, ACP-B11, B12).
func TestACP_B11_Rewrite(t *testing.T) {
	r := newRig(t, func(o *front.Options) { o.Wrap = []string{"--enforce=lenient"} })
	session := r.session()
	in := ` [ {"name":"fi\u006ces","command":"/bin/se\u0072ver","args":["--root","/a b", "" ],"env":[{"name":"KEY","value":"v"} , {"name":"BELAY_PARENT","value":"theirs"}],"_meta":{"x":[1.50]}},
	{"type":"stdio","command":"s","name":"v2"}, {"type":"http","name":"web","url":"https://api.example/mcp?key=hush","headers":[{"name":"Authorization","value":"Bearer hush"},{"name":"X-Team","value":"hush"}],"_meta":1e3},
	{"type":"sse","name":"old","url":"http://localhost:1/sse","headers":[]} ] `
	list, text, passed := r.rewrite(session, in)
	if len(passed) != 0 || len(list) != 4 {
		t.Fatalf("%+v, passed %+v", list, passed)
	}
	if e := list[0]; e.Name != "files" || e.Command != os.Args[0] || e.Type != "" ||
		!slices.Equal(e.Args, []string{"wrap", "--enforce=lenient", "--name=files", "--", "/bin/server", "--root", "/a b", ""}) {
		t.Errorf("v1: %+v", e)
	}
	env := list[0].Env
	if len(env) != 5 || env[0].Name != "KEY" || env[0].Value != "v" || env[1].Name != local.EnvParent || env[1].Value != r.server.Ticket(session.ID()) {
		t.Errorf("env: %+v", env)
	}
	if e := list[1]; e.Type != "stdio" || e.Name != "v2" || !slices.Equal(e.Args, []string{"wrap", "--enforce=lenient", "--name=v2", "--", "s"}) || len(e.Env) != 4 {
		t.Errorf("v2: %+v", e)
	}
	for i, suffix := range map[int]string{2: "", 3: "/sse"} {
		e := list[i]
		if !strings.HasPrefix(e.URL, "http://127.0.0.1:") || !strings.HasSuffix(e.URL, suffix) || len(e.URL) < 45 || e.Headers == nil || len(e.Headers) != 0 {
			t.Errorf("%s: %+v", e.Name, e)
		}
	}
	if list[2].Type != "http" || list[3].Type != "sse" || list[2].URL == list[3].URL || strings.Contains(text, "hush") || strings.Contains(text, "example") {
		t.Errorf("by HTTP: %s", text)
	}
	keepsBytes(t, text)
	// The same again, as session/load does with a session that lives.
	again, _, _ := r.rewrite(session, in)
	if again[2].URL != list[2].URL || again[3].URL != list[3].URL || again[0].Command != list[0].Command {
		t.Errorf("again: %+v", again)
	}
}

// keepsBytes checks what nobody had to change.
func keepsBytes(t *testing.T, text string) {
	t.Helper()
	for _, kept := range []string{` [ {"name":"fi\u006ces","command":`, `"--root","/a b",""`, `"_meta":{"x":[1.50]}},` + "\n\t{", `"type":"stdio","command":`, `"_meta":1e3}`, " ] "} {
		if !strings.Contains(text, kept) {
			t.Errorf("%s is not in %s", kept, text)
		}
	}
}

// What cannot be fronted passes as it is, with its reason; what is no array of
// entries is the agent's to answer.
func TestACP_B12_Passed(t *testing.T) {
	r := newRig(t)
	session := r.session()
	for entry, want := range map[string]bridge.Passed{
		`{"type":"http","name":"remote","url":"https://mcp.example/","headers":[]}`:                            {Name: "remote", Why: "oauth"},
		`{"type":"sse","name":"remote","url":"https://mcp.example/","headers":[{"name":"X-Key","value":"k"}]}`: {Name: "remote", Why: "oauth"},
		`{"type":"acp","name":"inner","id":"1"}`:                                                               {Name: "inner", Why: "type acp"},
		`{"type":"websocket","name":"x","command":"c"}`:                                                        {Name: "x", Why: "type websocket"},
		`{"type":7,"name":"x","command":"c"}`:                                                                  {Name: "x", Why: "malformed"},
		`{"name":"x"}`:                                                                                         {Name: "x", Why: "malformed"},
		`{"name":"x","command":""}`:                                                                            {Name: "x", Why: "malformed"},
		`{"command":"c"}`:                                                                                      {Why: "malformed"},
		`{"name":"x","command":"a","command":"b"}`:                                                             {Name: "x", Why: "malformed"},
		`{"name":"x","command":"a","comm\u0061nd":"b"}`:                                                        {Name: "x", Why: "malformed"},
		`{"name":"x","command":"a\u0000"}`:                                                                     {Name: "x", Why: "malformed"},
		`{"name":"x","command":"a","args":"b"}`:                                                                {Name: "x", Why: "malformed"},
		`{"name":"x","command":"a","args":[1]}`:                                                                {Name: "x", Why: "malformed"},
		`{"name":"x","command":"a","args":null}`:                                                               {Name: "x", Why: "malformed"},
		`{"name":"x","command":"a","env":{"A":"b"}}`:                                                           {Name: "x", Why: "malformed"},
		`{"name":"x","command":"a","env":[{"name":"A"}]}`:                                                      {Name: "x", Why: "malformed"},
		`{"name":"x","command":"a","env":[{"value":"A"}]}`:                                                     {Name: "x", Why: "malformed"},
		`{"type":"http","name":"x","url":"http://127.0.0.1/","headers":[{"name":"a b","value":""}]}`:           {Name: "x", Why: "malformed"},
		`{"type":"http","name":"x","url":"http://127.0.0.1/","headers":[{"name":"a","value":"b\nc"}]}`:         {Name: "x", Why: "malformed"},
		`{"type":"http","name":"x","url":"http://u:p@127.0.0.1/"}`:                                             {Name: "x", Why: "its URL cannot be used"},
		`{"type":"http","name":"x","url":"ftp://127.0.0.1/"}`:                                                  {Name: "x", Why: "its URL cannot be used"},
		`{"type":"http","name":"x","url":"http://"}`:                                                           {Name: "x", Why: "its URL cannot be used"},
		`"text"`: {Why: "malformed"}, `null`: {Why: "malformed"}, `[]`: {Why: "malformed"}, `1.50`: {Why: "malformed"},
		`{"name":"x","command":"` + strings.Repeat("a", 200<<10) + `"}`: {Name: "x", Why: "malformed"},
	} {
		text := "[" + entry + "]"
		out, passed, err := r.f.Rewrite(t.Context(), session, []byte(text))
		if err != nil || string(out) != text || !slices.Equal(passed, []bridge.Passed{want}) {
			t.Errorf("%.100s: %.100s, %+v, %v", text, out, passed, err)
		}
	}
	for _, text := range []string{``, ` `, `null`, `{}`, `"x"`, `7`, `[`, `[{]`, `[1,]`, "\xff", `[] []`, `[{"name":"x","command":"a"}`, strings.Repeat("[", 20_000)} {
		out, passed, err := r.f.Rewrite(t.Context(), session, []byte(text))
		if err != nil || string(out) != text || passed != nil {
			t.Errorf("%.40s: %.40s, %+v, %v", text, out, passed, err)
		}
	}
}

// Without a socket nothing would reach the wrap process; and what comes in masses
// is fronted up to a bound.
func TestACP_B11_Bounds(t *testing.T) {
	r := newRig(t)
	session := r.session()
	many := strings.Repeat(`{"name":"x","command":"a"},`, 300)
	list, _, passed := r.rewrite(session, "["+strings.TrimSuffix(many, ",")+"]")
	if len(list) != 300 || len(passed) != 44 || list[255].Command == "a" || list[256].Command != "a" {
		t.Errorf("%d, passed %d", len(list), len(passed))
	}
	for n := range 3 {
		var entries []string
		for i := range 100 {
			entries = append(entries, webEntry("http", "w", fmt.Sprintf("http://127.0.0.1:1/%d/%d", n, i), ""))
		}
		_, _, passed = r.rewrite(session, array(entries...))
	}
	if len(passed) != 44 || !strings.Contains(passed[0].Why, "too many") {
		t.Errorf("passed %+v", passed)
	}
	none := front.New(front.Options{Tree: r.tree, Belay: "belay"})
	out, passed, err := none.Rewrite(t.Context(), session, []byte(`[{"name":"x","command":"a"}]`))
	if err != nil || string(out) != `[{"name":"x","command":"a"}]` || len(passed) != 1 || passed[0].Why != "no local socket" {
		t.Errorf("%s, %+v, %v", out, passed, err)
	}
	r.ok(none.End(t.Context()))
	r.ok(none.End(t.Context()))
	if out, _, err := none.Rewrite(t.Context(), session, []byte("[]")); err == nil || string(out) != "[]" {
		t.Errorf("after the end: %s, %v", out, err)
	}
	none.Place(session, nil)
	none.Close(session)
	if none.Calls(session) != nil || none.Where(session.ID(), local.Asked{}) != nil {
		t.Error("an ended front has calls")
	}
}

// FuzzRewrite: whatever comes, the result is as valid as what came, has as many
// entries under the same names, and what passes is not changed.
func FuzzRewrite(f *testing.F) {
	for _, seed := range []string{
		`[{"name":"x","command":"a","args":["b"],"env":[{"name":"A","value":"b"}]}]`, `[{"type":"http","name":"x","url":"http://127.0.0.1:1/","headers":[]}]`,
		`[{"name":"x","command":"belay","args":["wrap","--","x"]},{"type":"sse","url":"https://h/","name":""}]`, `[[],{},1]`, `{}`, ` [ { } ] `,
	} {
		f.Add([]byte(seed))
	}
	tree := belay.NewTree(belay.Options{})
	dir, err := os.MkdirTemp("", "belay")
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = os.RemoveAll(dir) })
	server, err := local.Listen(f.Context(), local.Options{Dir: dir, Control: tree})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = server.Close() })
	f.Fuzz(func(t *testing.T, in []byte) {
		fr := front.New(front.Options{Tree: tree, Server: server, Belay: "/opt/belay"})
		defer func() {
			if err := fr.End(t.Context()); err != nil {
				t.Error(err)
			}
		}()
		session, err := tree.Register(belay.Spec{Kind: belay.KindSession, Name: "s"})
		if err != nil {
			t.Fatal(err)
		}
		defer session.Finish(belay.Completed)
		before := bytes.Clone(in)
		out, passed, err := fr.Rewrite(t.Context(), session, in)
		if err != nil || !bytes.Equal(in, before) || json.Valid(out) != json.Valid(in) {
			t.Fatalf("%q became %q, %v", before, out, err)
		}
		var was, is []json.RawMessage
		if json.Unmarshal(in, &was) != nil || was == nil {
			if !bytes.Equal(in, out) || passed != nil {
				t.Fatalf("%q became %q", in, out)
			}
			return
		}
		if err := json.Unmarshal(out, &is); err != nil || len(is) != len(was) {
			t.Fatalf("%q became %q", in, out)
		}
		same := 0
		for i := range was {
			if bytes.Equal(was[i], is[i]) {
				same++
				continue
			}
			var a, b struct{ Name any }
			_, _ = json.Unmarshal(was[i], &a), json.Unmarshal(is[i], &b)
			if fmt.Sprint(a) != fmt.Sprint(b) {
				t.Fatalf("%s became %s", was[i], is[i])
			}
		}
		if same != len(passed) {
			t.Fatalf("%d entries of %q are unchanged, %d are named", same, in, len(passed))
		}
	})
}
