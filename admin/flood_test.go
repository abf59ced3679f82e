package admin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belayhq/belay/internal/calm"
)

// Bad cancels as fast as 64 connections of one principal can send them leave
// another's alone: every one of them works, and none waits long. The bound is
// wide because the machine may be busy with other things; the figure is logged.
func TestFlood(t *testing.T) {
	r := newRig(t, Options{Limiter: NewRates(20, 40), Permissions: ownerDoors})
	stop := make(chan struct{})
	var floods sync.WaitGroup
	defer floods.Wait()
	defer close(stop)
	for range 64 {
		floods.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					r.cancel("op", `{"requestId":`)
				}
			}
		})
	}
	var took []time.Duration
	for i := range 30 {
		run := r.call("bob", fmt.Sprint(i), with(&stopper{}))
		w, start := calm.Start(t), time.Now()
		got := r.cancel("bob", `{"requestId":"`+run.ID().String()+`"}`)
		took = append(took, time.Since(start))
		w.Within(t, took[i], time.Second, "a cancel beside the flood")
		w.Stop()
		if got.status != 200 || !strings.Contains(got.body, `"affected":true`) {
			t.Fatalf("%d %s", got.status, got.body)
		}
	}
	slices.Sort(took)
	t.Logf("median %v, worst %v", took[len(took)/2], took[len(took)-1])
}

// Who asks too often waits for the answer, so that a flood is slowed down by its
// own connections; only so many are held, and a client that goes away is let go.
func TestCalm(t *testing.T) {
	r := newRig(t, Options{Limiter: NewRates(0.001, 1)})
	r.api.calm = 100 * time.Millisecond
	took := func() time.Duration {
		start := time.Now()
		r.want(r.status("op", "x"), 429, `{"detail":"Too many requests"}`)
		return time.Since(start)
	}
	r.status("op", "x") // what there is
	if d := took(); d < r.api.calm {
		t.Errorf("answered after %v", d)
	}
	for range calmMax {
		r.api.held <- struct{}{}
	}
	r.api.calm = time.Hour
	took() // at once, or the test never ends
	for range calmMax {
		<-r.api.held
	}
	gone, end := context.WithCancel(t.Context())
	end()
	r.api.hold(gone)
}
