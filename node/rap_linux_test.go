package node

import (
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
)

// TestRAP96_AnAgentReachesItsOwnCallsAlone: a process inside a run's tree that knows
// the ids of its user's calls, and holds the token, stops none that were not made
// from there (DESIGN 11, 10).
func TestRAP96_AnAgentReachesItsOwnCallsAlone(t *testing.T) {
	var tree atomic.Value // the run that the agent is inside of
	tree.Store("")
	r := start(t, t.TempDir(), func(o *Options) {
		o.RAP = &RAPOptions{}
		o.InTree = func(pid int) []string {
			at, _ := tree.Load().(string)
			if pid == os.Getpid() || at == "" {
				return nil
			}
			return []string{at}
		}
	})
	p := r.runtimeOf(nil)
	if a, err := p.Invoke("wait", "t", "c", map[string]any{"seconds": 60}); err != nil || a.Status != 200 {
		t.Fatal(a, err)
	}
	r.running(2)
	body := `{"thread_id":"t","tool_call_id":"c"}`
	tree.Store("run_of_the_agent")
	for _, path := range []string{"/rap/demo/cancel_tool_call", "/rap/demo/close_thread"} {
		if got := agent(t, r.url, http.MethodPost, path, r.token(), body); !strings.HasPrefix(got, "HTTP/1.1 200") {
			t.Errorf("%s: %s", path, got)
		}
	}
	r.running(2)
	tree.Store("")
	if got := agent(t, r.url, http.MethodPost, "/rap/demo/cancel_tool_call", r.token(), body); !strings.HasPrefix(got, "HTTP/1.1 200") {
		t.Errorf("outside of every tree: %s", got)
	}
	r.running(0)
}
