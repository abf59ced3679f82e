package gateway

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/calm"
	"github.com/belayhq/belay/internal/faketool"
	"github.com/belayhq/belay/internal/sdkfake"
)

// remote puts a session in front of a real HTTP server, with a caller on
// stdio.
func remote(t *testing.T, so sdkfake.Options, o linkOptions) *link {
	t.Helper()
	return remoteBy(t, sdkfake.Handler, so, o)
}

func remoteBy(t *testing.T, handler func(sdkfake.Options) http.Handler, so sdkfake.Options, o linkOptions) *link {
	t.Helper()
	r := &link{t: t, logs: &faketool.Text{}, wit: faketool.NewWitness(filepath.Join(t.TempDir(), "witness"))}
	so.Witness = r.wit.Path
	server := httptest.NewServer(handler(so))
	t.Cleanup(server.Close)
	change := o.cfg
	o.cfg = func(c *Config) {
		c.URL = server.URL
		if change != nil {
			change(c)
		}
	}
	r.start(nil, o)
	return r
}

// callTick starts a tick tool and waits for its first tick.
func (r *link) callTick(modern bool, id, key string, deaf bool) {
	r.t.Helper()
	args := fmt.Sprintf(`{"key":%q,"deaf":%v}`, key, deaf)
	call := r.Call
	if modern {
		call = r.CallModern
	}
	if err := call(id, "tick", args, id); err != nil {
		r.t.Fatal(err)
	}
	r.saw(key, "tick")
}

// TestWebStop: the caller's cancel reaches the handler of an HTTP server, by the
// way of its era and session, whoever the caller is; nothing more comes, and
// the next call works (MCP-32, MCP-53, MCP-G20).
func TestWebStop(t *testing.T) {
	t.Parallel()
	for name, so := range map[string]sdkfake.Options{
		"session":      {},
		"session json": {JSON: true},
		"modern":       {Stateless: true, Propagate: true},
		"modern json":  {Stateless: true, Propagate: true, JSON: true},
		"http+sse":     {}, // of 2024-11-05
	} {
		t.Run(name, func(t *testing.T) {
			modern := so.Stateless
			handler := sdkfake.Handler
			if name == "http+sse" {
				handler = sdkfake.SSEHandler
			}
			r := remoteBy(t, handler, so, linkOptions{})
			if !modern {
				r.initialize("2025-11-25")
			}
			r.callTick(modern, "7", "a", false)
			w, at := calm.Start(t), time.Now()
			run := r.runOf("7")
			r.cancel("7", "enough")
			w.Within(t, r.saw("a", "stopped").Time.Sub(at), stopsWithin*4, "the handler's end")
			r.remoteWorks(modern)
			r.silent("7", at)
			receipt := r.receipt(run)
			if receipt.Verdict == belay.Confirmed || receipt.Verdict == belay.Unreachable {
				t.Errorf("the verdict is %s: nobody here saw the work end", receipt.Verdict)
			}
		})
	}
}

// remoteWorks proves that the session still does.
func (r *link) remoteWorks(modern bool) {
	r.t.Helper()
	probes.Lock()
	probes.n++
	id := fmt.Sprintf(`"probe-%d"`, probes.n)
	probes.Unlock()
	call := r.Call
	if modern {
		call = r.CallModern
	}
	if err := call(id, "echo", `{"text":`+id+`}`, ""); err != nil {
		r.t.Fatal(err)
	}
	if m := r.expect(id); !strings.Contains(m.Text(), strings.Trim(id, `"`)) {
		r.t.Fatalf("the session does not work any more: %s", m.Raw)
	}
}

// TestWebIgnored: a remote server that ignores the cancel is never said to have
// stopped: the operator's caller is settled at once, the verdict is signalled,
// and the tool is seen to run on (MCP-G31, MCP-G32).
func TestWebIgnored(t *testing.T) {
	t.Parallel()
	t.Run("session", func(t *testing.T) { webIgnored(t, sdkfake.Options{}) })
	t.Run("without sessions", func(t *testing.T) { webIgnored(t, sdkfake.Options{Stateless: true}) })
}

func webIgnored(t *testing.T, so sdkfake.Options) {
	r := remote(t, so, linkOptions{})
	r.initialize("2025-11-25")
	r.callTick(false, "7", "a", true)
	w, at := calm.Start(t), time.Now()
	run := r.stop("7", "cost limit")
	m := r.expect("7")
	w.Within(t, m.Time.Sub(at), 450*time.Millisecond, "the caller's answer")
	if !strings.Contains(m.Raw, "-32800") || !strings.Contains(m.Raw, "may still be running") {
		t.Errorf("the caller got %s", m.Raw)
	}
	receipt := r.receipt(run)
	if receipt.Verdict != belay.Signalled {
		t.Errorf("the verdict is %s, want signalled: %+v", receipt.Verdict, receipt.Steps)
	}
	r.remoteWorks(false)
	ticks := len(r.wit.Of("a", "tick"))
	r.until("the deaf tool goes on", func() bool { return len(r.wit.Of("a", "tick")) > ticks })
}

// TestWebLost: a server that is not there, and one that goes away, fail the
// calls at once with what is known (MCP-G28).
func TestWebLost(t *testing.T) {
	t.Parallel()
	r := &link{t: t, logs: &faketool.Text{}}
	server := httptest.NewServer(sdkfake.Handler(sdkfake.Options{}))
	server.Close()
	r.start(nil, linkOptions{cfg: func(c *Config) { c.URL = server.URL }})
	if err := r.Sendf(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}`); err != nil {
		t.Fatal(err)
	}
	if m := r.expect("1"); m.Error == nil || !strings.Contains(m.Raw, "fake") {
		t.Errorf("got %s", m.Raw)
	}
}
