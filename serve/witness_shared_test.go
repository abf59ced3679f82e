package serve

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/config"
)

// TestWitnessShared: callers who share one process, those of 2026-07-28 in one
// session and several calls of one legacy session: force for a deaf call waits
// until the others are done, who get their results; new calls go to a fresh
// process at once (MCP-G33, MCP-G36).
func TestWitnessShared(t *testing.T) {
	t.Parallel()
	for _, modern := range []bool{false, true} {
		each(t, modern, func(t *testing.T, r *rig, k behind) {
			d := k.define(r)
			d.Enforce = config.Some("strict")
			r.apply(d)
			session := r.enter(modern)
			_, leave := r.tick(modern, session, "deaf", true)
			defer leave()
			run := r.find("tick")
			const args = `{"key":"good","n":60}`
			beside := async(func() (answer, error) {
				if modern {
					return r.modern("tools", "tick", args)
				}
				return r.post(Path("tools"), session, call(8, "tick", args))
			})
			r.event("good", "tick")
			if modern {
				leave()
			} else {
				r.must(r.post(Path("tools"), session, cancelOf("7")))
			}
			r.works(modern, session)
			if a := r.wait(beside, 10*time.Second); a.status != 200 || !strings.Contains(a.body, `"result"`) || r.wit.Count("good", "tick") != 60 {
				t.Errorf("the call beside got %+v", a)
			}
			if v := r.receipt(run).Verdict; !k.remote && v != belay.Confirmed || k.remote && v != belay.Signalled {
				t.Errorf("the verdict is %s", v)
			}
			if !k.remote && r.wit.StillTicking("deaf", 200*time.Millisecond) {
				t.Error("the deaf tool goes on")
			}
			r.works(modern, session)
		})
	}
}

// TestWitnessTaskUndeclared: callers who share a session keep what each of their
// requests declares: who does not take tasks gets a plain result, beside one who
// does (MCP-72, MCP-78).
func TestWitnessTaskUndeclared(t *testing.T) {
	t.Parallel()
	eachTask(t, nil, func(t *testing.T, k *tasker) {
		if !k.modern {
			return
		}
		r := k.r
		task := k.begin(1, "a")
		a := r.must(r.modernCall(t.Context(), "1", "tick", `{"key":"b","n":3,"task":true}`))
		if strings.Contains(a.body, "taskId") || !strings.Contains(a.body, "3 ticks") {
			t.Errorf("the caller got %+v", a)
		}
		k.about(2, "tasks/cancel", task)
		r.event("a", "stopped")
	})
}

// TestWitnessClose: Belay's own end answers every caller, in either era and over
// HTTP+SSE, ends every POST and all work (MCP-G25, MCP-G28).
func TestWitnessClose(t *testing.T) {
	t.Parallel()
	for _, modern := range []bool{false, true} {
		each(t, modern, func(t *testing.T, r *rig, _ behind) {
			session := r.enter(modern)
			got, leave := r.tick(modern, session, "a", false)
			defer leave()
			var old *oldCaller
			if !modern {
				old = r.oldCaller()
				old.send(call(9, "tick", `{"key":"o","n":500}`))
				r.event("o", "tick")
			}
			closed := make(chan error, 1)
			go func() {
				ctx, end := context.WithTimeout(context.Background(), 15*time.Second)
				defer end()
				closed <- r.hub.Close(ctx, belay.Cancellation{Cause: belay.CauseShutdown, Reason: "the end"})
			}()
			if a := r.wait(got, 3*time.Second); !strings.Contains(a.body, "-32800") || strings.Count(a.body, `"id":`) != 1 {
				t.Errorf("the caller got %+v", a)
			}
			if old != nil {
				if m := old.next(`"id":9`); !strings.Contains(m, "-32800") {
					t.Errorf("the old caller got %s", m)
				}
			}
			if err := <-closed; err != nil {
				t.Error(fmt.Errorf("Close: %w", err))
			}
			r.ended("a")
		})
	}
}
