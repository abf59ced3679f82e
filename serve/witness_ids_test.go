package serve

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
)

// tickAs begins a tick tool of a legacy session under an id of any form.
func (r *rig) tickAs(session, id, key string) <-chan answer {
	r.t.Helper()
	got := async(func() (answer, error) {
		return r.post(Path("tools"), session, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"tick","arguments":{"key":%q,"n":500},"_meta":{"progressToken":%s}}}`, id, key, id))
	})
	r.event(key, "tick")
	return got
}

// goesOn holds that a tool is at work.
func (r *rig) goesOn(key string) {
	r.t.Helper()
	ticks := r.wit.Count(key, "tick")
	r.eventually(key+" goes on", func() bool { return r.wit.Count(key, "tick") > ticks+2 })
}

// TestWitnessIDs: the calls 0, 1 and "1" run together; each cancel stops its own
// and no other, also where the server is one that heeds no cancel of 0 or takes
// "1" for 1, since it never sees these ids (MCP-G6, MCP-G7).
func TestWitnessIDs(t *testing.T) {
	t.Parallel()
	each(t, false, func(t *testing.T, r *rig, _ behind) {
		session := r.begin("tools")
		ids := []string{"0", "1", `"1"`}
		var got []<-chan answer
		for i, id := range ids {
			got = append(got, r.tickAs(session, id, fmt.Sprint("k", i)))
		}
		for i, id := range ids {
			at := time.Now()
			r.must(r.post(Path("tools"), session, cancelOf(id)))
			r.stoppedSoon(fmt.Sprint("k", i), at)
			a := r.wait(got[i], 2*time.Second)
			if strings.Contains(a.body, `"result"`) || strings.Contains(a.body, `"error"`) {
				t.Errorf("the call %s got %s", id, a.body)
			}
			if strings.Contains(a.body, "progressToken") && !strings.Contains(a.body, `"progressToken":`+id+`,`) {
				t.Errorf("the progress of %s has another token: %.300s", id, a.body)
			}
			for j := i + 1; j < len(ids); j++ {
				r.goesOn(fmt.Sprint("k", j))
			}
		}
		r.works(false, session)
	})
}

// TestWitnessTwins: two callers of 2026-07-28 who use the same id and the same
// progress token each get their own progress and their own answer, and the
// disconnect of one is nothing to the other (MCP-G7, MCP-G8, MCP-74).
func TestWitnessTwins(t *testing.T) {
	t.Parallel()
	each(t, true, func(t *testing.T, r *rig, _ behind) {
		call := func(ctx context.Context, key string, n int) <-chan answer {
			body := fmt.Sprintf(`{"jsonrpc":"2.0","id":0,"method":"tools/call","params":{"name":"tick","arguments":{"key":%q,"n":%d},"_meta":{"progressToken":0,"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`, key, n)
			got := async(func() (answer, error) {
				return r.postIn(ctx, Path("tools"), "", body, "Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", "Mcp-Name: tick")
			})
			r.event(key, "tick")
			return got
		}
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		one, two := call(ctx, "a", 500), call(t.Context(), "b", 30)
		at := time.Now()
		leave()
		r.stoppedSoon("a", at)
		r.wait(one, 2*time.Second)
		a := r.wait(two, 5*time.Second)
		if r.event("b", "done"); a.status != 200 || strings.Count(a.body, `"result"`) != 1 || strings.Count(a.body, `"id":0`) != 1 {
			t.Errorf("the other caller got %+v", a)
		}
		if n := strings.Count(a.body, `"progressToken":0,`); n > 30 || n != strings.Count(a.body, `"progressToken"`) {
			t.Errorf("the other caller got the progress of both: %d of 30", n)
		}
		if v := r.receipt(r.findOutcome("tick", belay.Cancelled)).Outcome; v != belay.Cancelled {
			t.Errorf("the outcome is %s", v)
		}
	})
}

// findOutcome returns a run with that name and outcome.
func (r *rig) findOutcome(name string, outcome belay.Outcome) (run *belay.Run) {
	r.t.Helper()
	r.eventually(fmt.Sprintf("a run of %s that is %s", name, outcome), func() bool {
		list, err := r.tree.List(context.Background(), belay.Filter{Kinds: []belay.Kind{belay.KindCall}, Ended: true})
		if err != nil {
			r.t.Fatal(err)
		}
		for _, info := range list {
			if info.Name == name && info.Outcome == outcome {
				run, err = r.tree.Run(info.ID)
				return err == nil
			}
		}
		return false
	})
	return run
}
