package lease

import (
	"sync"
	"testing"
	"time"

	"github.com/belayhq/belay"
)

// Everything at once, from many sides: under the race detector nothing is torn,
// no place is lost, and every run is over in the end.
func TestStress(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{PerOwner: 100})
	var all sync.WaitGroup
	for n := range 8 {
		owner := []string{"ann", "bob"}[n%2]
		all.Go(func() {
			for i := range 40 {
				st, err := r.reg.Register(owner, Spec{Kind: belay.KindTurn, Name: "t"}, MinTTL)
				if err != nil {
					t.Error(err)
					return
				}
				id := st.Run.ID
				var both sync.WaitGroup
				both.Go(func() { r.stop(id) })
				both.Go(func() { _, _ = r.reg.Heartbeat(owner, id, 0); r.reg.Delivered(owner, id, belay.StepTold) })
				if i%2 == 0 {
					both.Go(func() { r.reg.sweep(time.Now().Add(MinTTL / 2)) })
				}
				both.Go(func() {
					if _, err := r.reg.Report(owner, id, Report{Outcome: belay.Cancelled}); err != nil {
						t.Error(err)
					}
				})
				both.Wait()
				run, err := r.tree.Run(id)
				if err != nil {
					t.Error(err)
					return
				}
				if c, err := run.Wait(t.Context()); err != nil || c != nil && rankOf(c.Verdict) == 0 {
					t.Errorf("%+v, %v", c, err)
				}
			}
		})
	}
	all.Wait()
	r.reg.mu.Lock()
	defer r.reg.mu.Unlock()
	if r.reg.total != 0 || len(r.reg.alive) != 0 {
		t.Errorf("%d places of %v are taken", r.reg.total, r.reg.alive)
	}
}

func rankOf(v belay.Verdict) int {
	if v == belay.Unreachable {
		return 0
	}
	return 1
}
