package node

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/belayhq/belay"
)

// agent is a process of this user that holds the user's token, and asks over
// loopback as any program could.
func agent(t *testing.T, url, method, path, token, body string) string {
	t.Helper()
	host, port, _ := strings.Cut(strings.TrimPrefix(url, "http://"), ":")
	// A server that refuses without reading the body resets the connection.
	script := `exec 3<>"/dev/tcp/$0/$1"; printf '%s' "$2" >&3; cat <&3 || true`
	request := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s:%s\r\nConnection: close\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		method, path, host, port, token, len(body), body)
	out, err := exec.CommandContext(t.Context(), "bash", "-c", script, host, port, request).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// TestInside: an agent inside a run's process tree that holds its user's token
// stops what it has started, and neither another run nor the latch (DESIGN 11,
// 10). The same program outside of every tree is its user.
func TestInside(t *testing.T) {
	var own belay.RunID
	var tree atomic.Value // the run that the agent is inside of
	tree.Store("")
	r := start(t, t.TempDir(), func(o *Options) {
		o.InTree = func(pid int) []string {
			at, _ := tree.Load().(string)
			if pid == os.Getpid() || at == "" {
				return nil
			}
			return []string{at}
		}
	})
	answers := make(chan string, 2)
	for _, id := range []string{"1", "2"} {
		go func() { _, text := r.call(id, ""); answers <- text }()
	}
	runs := r.running(2)
	own, other := runs[0].ID, runs[1].ID
	tree.Store(own.String())
	for _, c := range []struct{ method, path, body, what string }{
		{http.MethodPost, "/v1/runs/" + other.String() + "/cancel", `{}`, "another run"},
		{http.MethodPost, "/v1/latch", `{}`, "the latch"},
		{http.MethodPost, "/orchestrate/cancel", `{"requestId":"` + other.String() + `"}`, "another run by the family"},
	} {
		if got := agent(t, r.url, c.method, c.path, r.token(), c.body); !strings.HasPrefix(got, "HTTP/1.1 403") && !strings.HasPrefix(got, "HTTP/1.1 404") {
			t.Errorf("an agent stopped %s: %s", c.what, got)
		}
	}
	if left := r.running(2); len(left) != 2 {
		t.Fatalf("%d calls are left", len(left))
	}
	if got := agent(t, r.url, http.MethodPost, "/v1/runs/"+own.String()+"/cancel", r.token(), `{"reason":"my own"}`); !strings.HasPrefix(got, "HTTP/1.1 20") {
		t.Errorf("an agent could not stop what it runs in: %s", got)
	}
	<-answers
	d, err := r.tree.Get(t.Context(), own)
	if err != nil || d.Cancellation == nil || !strings.Contains(d.Cancellation.By, "inside") {
		t.Errorf("the receipt does not say that an agent pressed: %+v, %v", d.Cancellation, err)
	}
	tree.Store("")
	if got := agent(t, r.url, http.MethodPost, "/v1/runs/"+other.String()+"/cancel", r.token(), `{}`); !strings.HasPrefix(got, "HTTP/1.1 20") {
		t.Errorf("outside of every tree: %s", got)
	}
	<-answers
}
