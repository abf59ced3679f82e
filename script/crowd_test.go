package script

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"github.com/dop251/goja"
)

// TestCrowd runs 500 calls at once and stops each at a time of its own, many of them
// more than once and from several sides: each is settled once, each partial result is
// its own, and no goroutine (TestMain), no interpreter and no request is left
// (AT-6, AT-15, AT-27, AT-29, AT-85, AT-87, acceptance 6 and 16).
func TestCrowd(t *testing.T) {
	n, at, _ := site(t)
	source := func(work string) string {
		return execute(`
			const mine = params.n
			let step = 0
			AssistantTool.onCancel = () => "partial of " + mine
			AssistantTool.setState("n", mine)
			for (; step < 4 && !AssistantTool.isCancelled; step++) { AssistantTool.report("step " + step, "one"); ` + work + ` }
			return {success: true, message: "all of " + AssistantTool.getState("n")}`)
	}
	tools := []*Tool{
		project(t, false, source(`await new Promise(r => setTimeout(r, 5 + mine % 30))`)),
		project(t, false, source(`await Promise.race([fetch("`+at+`/hang"), new Promise(r => setTimeout(r, 40))]).catch(() => {})`)),
		project(t, false, source(`for (let i = 0; i < 2e4; i++); await null`)),
		project(t, false, source(`for (;;) { if (mine >= 0) continue }`)), // ends by force only
		project(t, true, `AssistantTool.registerApprovalRequest<any>(async () => { await new Promise(r => setTimeout(r, 5)); return {message: "?", primaryButtonLabel: "Yes"} })
AssistantTool.registerExecuteToolWithApproval<any>(async (params: any) => { AssistantTool.onCancel = () => "partial of " + params.n; await new Promise(r => setTimeout(r, 10)); return {success: true, message: "all of " + params.n} })`),
	}
	var all sync.WaitGroup
	machines := make([]weak.Pointer[goja.Runtime], 500)
	var stopped, partial atomic.Int32
	for i := range machines {
		all.Go(func() {
			var told atomic.Int32
			var message string
			var once sync.Once
			began := make(chan struct{})
			o := Options{Network: n, Grace: 60 * time.Millisecond, KillAfter: 5 * time.Second, Hooks: Hooks{
				Report:    func(string, string) { once.Do(func() { close(began) }) },
				Cancelled: func(m string, _ bool) { told.Add(1); message = m },
				Ask: func(ctx context.Context, _ Dialog) (Answer, error) {
					select {
					case <-ctx.Done():
						return Dismissed, context.Cause(ctx)
					case <-time.After(time.Duration(rand.N(40)) * time.Millisecond):
						return Primary, nil
					}
				},
			}}
			call, err := tools[i%len(tools)].Call(fmt.Appendf(nil, `{"n":%d}`, i), o)
			if err != nil {
				t.Error(err)
				return
			}
			ctx, cancel := context.WithCancelCause(context.Background())
			defer cancel(theStop)
			var pressing sync.WaitGroup
			inside := i%2 == 0 && !tools[i%len(tools)].Manifest.RequireApproval // stopped when it surely works, however busy the machine is
			for range 1 + i%3 {
				pressing.Go(func() {
					if inside {
						<-began
					}
					time.Sleep(rand.N(400 * time.Millisecond))
					cancel(theStop)
					if i%2 == 0 {
						call.Interrupt()
					}
				})
			}
			e := call.Run(ctx)
			pressing.Wait()
			call.Interrupt() // of an ended call it changes nothing
			switch mine := fmt.Sprint(i); {
			case e.Cancelled && (told.Load() != 1 || e.Message != message || e.Partial != (message != "") || e.Partial && message != "partial of "+mine):
				t.Errorf("call %d was told %d times %q: %+v", i, told.Load(), message, e)
			case !e.Cancelled && (told.Load() != 0 || text(e.Result) != "all of "+mine || e.Ending != Returned):
				t.Errorf("call %d, not stopped: %+v", i, e)
			case e.Ending == "":
				t.Errorf("call %d has no ending: %+v", i, e)
			}
			if e.Cancelled {
				stopped.Add(1)
			}
			if e.Partial {
				partial.Add(1)
			}
			if call.vm != nil {
				machines[i] = weak.Make(call.vm)
			}
		})
	}
	all.Wait()
	if stopped.Load() < 100 || partial.Load() < 50 {
		t.Errorf("%d were stopped, %d with a partial result: that shows little", stopped.Load(), partial.Load())
	}
	left := 0
	for range 50 { // what ended a moment ago may still be on a stack
		runtime.GC()
		left = 0
		for _, m := range machines {
			if m.Value() != nil {
				left++
			}
		}
		if left == 0 {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("%d interpreters are left", left)
}
