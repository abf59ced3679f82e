package belay

import (
	"context"
	"testing"
	"time"
)

// A step's patience lasts as long as its context, and ends with a person's press,
// whether that came before the step or while it takes its time (DESIGN 11, 7).
func TestPatienceEndsWithAPress(t *testing.T) {
	for name, pressAt := range map[string]time.Duration{
		"nobody presses": 0,
		"before":         2 * time.Second, // while the tool is asked, which leads to the kill
		"meanwhile":      5 * time.Second, // while the kill waits
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Options{}, func(t *testing.T, tree *Tree) {
				begun := time.Now()
				var killed, out time.Duration
				tool := &script{on: map[Means]method{StepKill: func(ctx context.Context, _ *Cancellation) (*Evidence, error) {
					killed = time.Since(begun)
					patience := Patience(ctx)
					select {
					case <-patience.Done():
					case <-time.After(6 * time.Second):
					}
					out = time.Since(begun)
					if pressAt > 0 && (ctx.Err() != nil || patience.Err() == nil) {
						t.Errorf("step %v, patience %v", ctx.Err(), patience.Err())
					}
					return &gone, nil
				}}}
				r := register(t, tree, Spec{Stopper: killer{teller{tool}}, Ladder: Ladder{Grace: time.Second, KillAfter: 3 * time.Second}})
				press(t, tree, r)
				if pressAt > 0 {
					time.Sleep(pressAt)
					press(t, tree, r)
				}
				for !r.Receipt().Final {
					time.Sleep(time.Second)
				}
				want := map[string][2]time.Duration{
					"nobody presses": {4 * time.Second, 10 * time.Second}, "before": {2 * time.Second, 2 * time.Second}, "meanwhile": {4 * time.Second, 5 * time.Second},
				}[name]
				if killed != want[0] || out != want[1] {
					t.Errorf("killed after %v, impatient after %v; want %v", killed, out, want)
				}
			})
		})
	}
	if ctx := context.Background(); Patience(ctx) != ctx {
		t.Error("a context of another kind is not its own patience")
	}
}
