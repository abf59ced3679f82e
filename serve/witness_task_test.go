package serve

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/calm"
	"github.com/belayhq/belay/internal/config"
)

// tasker speaks of tasks in the way of one era, over HTTP.
type tasker struct {
	r       *rig
	inner   *rig // the gateway at the tool: r itself, or one behind it
	modern  bool
	session string
}

const taskMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}`

func (k *tasker) do(ctx context.Context, id int, method, name, params string) (answer, error) {
	if !k.modern {
		return k.r.postIn(ctx, Path("tools"), k.session, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":{%s}}`, id, method, params))
	}
	return k.r.postIn(ctx, Path("tools"), "", fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":{%s,%s}}`, id, method, params, taskMeta),
		"Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: "+method, "Mcp-Name: "+name)
}

// tick asks for a tick tool as a task.
func (k *tasker) tick(ctx context.Context, id int, key string) (answer, error) {
	if k.modern {
		return k.do(ctx, id, "tools/call", "tick", fmt.Sprintf(`"name":"tick","arguments":{"key":%q,"n":1000,"task":true}`, key))
	}
	return k.do(ctx, id, "tools/call", "tick", fmt.Sprintf(`"name":"tick","arguments":{"key":%q,"n":1000},"task":{"ttl":60000}`, key))
}

func (k *tasker) about(id int, method, task string) answer {
	k.r.t.Helper()
	return k.r.must(k.do(k.r.t.Context(), id, method, task, fmt.Sprintf(`"taskId":%q`, task)))
}

var taskID = regexp.MustCompile(`"taskId":"([^"]+)"`)

func (k *tasker) begin(id int, key string) string {
	k.r.t.Helper()
	a := k.r.must(k.tick(k.r.t.Context(), id, key))
	found := taskID.FindStringSubmatch(a.body)
	if found == nil {
		k.r.t.Fatalf("it did not become a task: %+v", a)
	}
	k.r.event(key, "tick")
	return found[1]
}

// eachTask runs a test for both kinds of tasks, of a server on stdio and of one
// that is reached by HTTP.
func eachTask(t *testing.T, flags []string, f func(t *testing.T, k *tasker)) {
	for _, modern := range []bool{false, true} {
		for _, remote := range []bool{false, true} {
			t.Run(fmt.Sprintf("modern %v, remote %v", modern, remote), func(t *testing.T) {
				t.Parallel()
				inner := newRig(t, nil)
				d := inner.fake("tools", append([]string{"-tasks"}, flags...)...)
				d.Enforce = config.Some("never")
				inner.apply(d)
				k := &tasker{r: inner, inner: inner, modern: modern}
				if remote {
					k.r = newRig(t, nil)
					k.r.wit = inner.wit
					k.r.apply(k.r.behind(inner))
				}
				if !modern {
					k.session = k.r.begin("tools")
				}
				f(t, k)
			})
		}
	}
}

// TestWitnessTaskCancel: tasks/cancel over HTTP ends the work, under an id of
// Belay's own, in both kinds of tasks; the answer is that of its era; a second
// one is answered by the server and changes nothing, an unknown task is -32602
// (MCP-44, MCP-48, MCP-81, MCP-83, MCP-84, MCP-G11, MCP-G20).
func TestWitnessTaskCancel(t *testing.T) {
	t.Parallel()
	eachTask(t, nil, func(t *testing.T, k *tasker) {
		r := k.r
		one, two := k.begin(1, "a"), k.begin(2, "b")
		at := time.Now()
		a := k.about(3, "tasks/cancel", one)
		r.stoppedSoon("a", at)
		want := `"status":"cancelled"`
		if k.modern {
			want = `"resultType":"complete"`
		}
		if a.status != 200 || !strings.Contains(a.body, want) || !strings.Contains(a.body, `"id":3`) {
			t.Errorf("tasks/cancel: %+v", a)
		}
		if got := k.about(4, "tasks/get", one); !strings.Contains(got.body, `"status":"cancelled"`) {
			t.Errorf("tasks/get: %+v", got)
		}
		second := k.about(5, "tasks/cancel", one)
		if !strings.Contains(second.body, "-32602") && !k.modern {
			t.Errorf("the second tasks/cancel: %+v", second)
		}
		if got := k.about(6, "tasks/cancel", "no-such-task"); !strings.Contains(got.body, "-32602") {
			t.Errorf("tasks/cancel of nobody's task: %+v", got)
		}
		r.goesOn("b")
		at = time.Now()
		k.about(7, "tasks/cancel", two)
		r.stoppedSoon("b", at)
		r.works(k.modern, k.session)
	})
}

// TestWitnessTaskOperator: an operator's Stop of a task's run ends its work by
// tasks/cancel, and never says more than the server did (MCP-44, MCP-80,
// MCP-G31, MCP-G38).
func TestWitnessTaskOperator(t *testing.T) {
	t.Parallel()
	eachTask(t, nil, func(t *testing.T, k *tasker) {
		r := k.r
		task := k.begin(1, "a")
		var run *belay.Run
		r.eventually("a run of the task", func() bool {
			list, err := r.tree.List(context.Background(), belay.Filter{Kinds: []belay.Kind{belay.KindTask}})
			if err != nil || len(list) != 1 || list[0].Address != task {
				return false
			}
			run, err = r.tree.Run(list[0].ID)
			return err == nil
		})
		at := time.Now()
		if _, err := r.tree.Cancel(context.Background(), belay.CancelRequest{
			Filter:       belay.Filter{IDs: []belay.RunID{run.ID()}},
			Cancellation: belay.Cancellation{Cause: belay.CauseOperator, By: "operator", Via: "test"},
		}); err != nil {
			t.Fatal(err)
		}
		r.stoppedSoon("a", at)
		r.receipt(run)
		r.eventually("the server's word is on the receipt", func() bool { return run.Receipt().Verdict == belay.Acknowledged })
		if got := k.about(4, "tasks/get", task); !strings.Contains(got.body, `"status":"cancelled"`) {
			t.Errorf("tasks/get: %+v", got)
		}
		r.works(k.modern, k.session)
	})
}

// TestWitnessTaskEarly: a Stop before the server said that the request became a
// task: the caller is settled at once, and the task is cancelled as soon as its
// id is known, also where the caller left (A5, A6, MCP-G20). The server says it
// after the caller is settled, and not before.
func TestWitnessTaskEarly(t *testing.T) {
	t.Parallel()
	const settled = 30 * time.Second // before the file is there, however long it takes
	for _, operator := range []bool{false, true} {
		t.Run(fmt.Sprint("operator ", operator), func(t *testing.T) {
			eachTask(t, []string{"-task-when"}, func(t *testing.T, k *tasker) {
				r := k.r
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				got := async(func() (answer, error) { return k.tick(ctx, 1, "a") })
				r.event("a", "tick")
				run := r.find("tick")
				if k.modern {
					// A task's id that crosses the leaving of a modern caller, here a
					// gateway, on the wire is seen by neither side. A caller of the other
					// era waits for the id and cancels the task.
					run = k.inner.find("tick")
				}
				switch {
				case operator:
					r.stop("tick")
					r.one(r.wait(got, settled), belay.CauseOperator)
				case k.modern:
					leave()
				default:
					r.must(r.post(Path("tools"), k.session, cancelOf("1")))
					if a := r.wait(got, settled); strings.Contains(a.body, `"id":1`) {
						t.Errorf("the caller got %+v", a)
					}
				}
				r.eventually("the Stop is known", func() bool { return run.Cancellation() != nil })
				w, at := calm.Start(t), time.Now()
				if err := os.WriteFile(r.wit.Path+".task", nil, 0o600); err != nil { // only now the server says what became of the call
					t.Fatal(err)
				}
				w.Within(t, r.event("a", "stopped").Time.Sub(at), time.Second, "the task's end")
				r.works(k.modern, k.session)
			})
		})
	}
}
