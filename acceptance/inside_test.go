//go:build unix

package acceptance

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// An agent that has its user's token does not stop, latch or lift for itself: what
// comes from inside a run's process tree may not what a person may (DESIGN 11,
// 10). Here a tool's own process sends the requests, with an operator's token.
func TestToolCannotStopOthers(t *testing.T) {
	t.Parallel()
	s := start(t)
	victim := s.begin(t, "bob", "tools").tick(t, `"victim"`, "victim")
	run := s.status(t, "op", "victim").Run.String()
	c := s.begin(t, "ann", "tools")
	// how is the command around the one that sends the request.
	ask := func(n int, how, method, path, body string) string {
		t.Helper()
		out := filepath.Join(s.dir, fmt.Sprintf("answer-%d", n))
		request := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", method, path, token("op"), len(body), body)
		in := filepath.Join(s.dir, fmt.Sprintf("request-%d", n))
		if err := os.WriteFile(in, []byte(request), 0o600); err != nil {
			t.Fatal(err)
		}
		addr := strings.Replace(strings.TrimPrefix(s.url, "http://"), ":", "/", 1)
		script := filepath.Join(s.dir, fmt.Sprintf("script-%d", n))
		if err := os.WriteFile(script, []byte(fmt.Sprintf("exec 3<>/dev/tcp/%s; cat %s >&3; cat <&3 >%[3]s-part; mv %[3]s-part %[3]s", addr, in, out)), 0o600); err != nil {
			t.Fatal(err)
		}
		text, _ := json.Marshal(fmt.Sprintf(how, script))
		if r := wait(t, c.call(t, fmt.Sprint(n), "shell", fmt.Sprintf(`{"key":"inside-%d","text":%s}`, n, text))); r.Result == nil {
			t.Fatalf("the tool: %s", r.raw)
		}
		var got []byte
		eventually(t, "the answer to the tool", func() (ok bool) {
			text, err := os.ReadFile(out)
			got = text
			return err == nil
		})
		return string(got)
	}
	n := 0
	for _, how := range []string{"bash %s", "setsid env -i PATH=\"$PATH\" bash %s </dev/null >/dev/null 2>&1 &"} { // also one that hides and outlives its parent
		for _, r := range [][3]string{
			{"POST", "/orchestrate/cancel", cancelBody("victim")},
			{"POST", "/v1/cancellation/cancel", cancelBody(run)},
			{"POST", "/notifications", notified(`"victim"`)},
			{"POST", "/v1/runs/" + run + "/cancel", `{}`},
			{"POST", "/v1/cancel", `{"all":true}`},
			{"POST", "/v1/latch", `{"reason":"me"}`},
			{"DELETE", "/v1/latch", ``},
		} {
			n++
			got := ask(n, how, r[0], r[1], r[2])
			if !strings.HasPrefix(got, "HTTP/1.1 403 ") && !strings.HasPrefix(got, "HTTP/1.1 404 ") {
				t.Errorf("%s: %s %s from inside a run: %.400s", how, r[0], r[1], got)
			}
		}
	}
	// One that is gone before anybody can see who it was.
	body := cancelBody(run)
	request := filepath.Join(s.dir, "request-gone")
	if err := os.WriteFile(request, []byte(fmt.Sprintf("POST /orchestrate/cancel HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", token("op"), len(body), body)), 0o600); err != nil {
		t.Fatal(err)
	}
	text, _ := json.Marshal(fmt.Sprintf(`for i in $(seq 40); do bash -c 'exec 3<>/dev/tcp/%s; cat %s >&3'; done`, strings.Replace(strings.TrimPrefix(s.url, "http://"), ":", "/", 1), request))
	if r := wait(t, c.call(t, `"gone"`, "shell", fmt.Sprintf(`{"key":"gone","text":%s}`, text))); r.Result == nil {
		t.Fatalf("the tool: %s", r.raw)
	}
	s.still(t, "victim")
	pending(t, victim)
	if a := s.do(t, "GET", "/v1/latch", "op", ""); a.status != 200 || strings.Contains(a.body, `"engaged":true`) {
		t.Errorf("latch: %d %s", a.status, a.body)
	}
	if a := s.cancel(t, "op", "victim"); !a.Affected { // the same token, from outside
		t.Errorf("%+v", a)
	}
}
