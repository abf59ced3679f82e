package front_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/belayhq/belay"
)

// Sessions beside each other, each with turn after turn at one server, and Stops at
// random moments: every call of a stopped turn is stopped or was over, and every
// other one comes to its end, whatever was stopped around it.
func TestACP_B11_ManyTurns(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	type side struct {
		session *belay.Run
		f       fake
		call    func(id, key string, n int) error
		expect  func(id string) string
	}
	var sides []side
	for range 2 {
		session, f := r.session(), newFake(t)
		c := r.fronted(session, "files", f)
		sides = append(sides, side{
			session, f,
			func(id, key string, n int) error {
				return c.Call(id, "tick", fmt.Sprintf(`{"key":%q,"n":%d}`, key, n), "")
			},
			func(id string) string {
				m, err := c.Expect(id)
				if err != nil {
					return err.Error()
				}
				return m.Raw
			},
		})
	}
	var stopped, over int
	var mu sync.Mutex
	var wg sync.WaitGroup
	for n, s := range sides {
		wg.Go(func() {
			for i := range 25 {
				turn, err := r.tree.Register(belay.Spec{Kind: belay.KindTurn, Name: "turn", Parent: s.session})
				if err != nil {
					t.Error(err)
					return
				}
				r.f.Place(s.session, turn)
				cut := rand.IntN(2) == 0
				at, ticks := rand.IntN(4), 4
				if cut {
					ticks = 3000
				}
				for j := range 3 {
					if cut && at == j {
						stop(turn)
					}
					if err := s.call(fmt.Sprint(100*i+j), fmt.Sprintf("%d-%d-%d", n, i, j), ticks); err != nil {
						t.Error(err)
					}
				}
				if cut {
					stop(turn)
				}
				for j := range 3 {
					got := s.expect(fmt.Sprint(100*i + j))
					cancelled, result := strings.Contains(got, "Cancelled"), strings.Contains(got, `"result"`)
					mu.Lock()
					switch {
					case cancelled && cut:
						stopped++
					case result && !cancelled && !cut:
						over++
					default:
						t.Errorf("turn %d, stopped %v: %s", i, cut, got)
					}
					mu.Unlock()
				}
				if !cut {
					turn.Finish(belay.Completed)
					for j := range 3 {
						if key := fmt.Sprintf("%d-%d-%d", n, i, j); s.f.Count(key, "done") != 1 {
							t.Errorf("%s has not come to its end: %v", key, s.f.Of(key, ""))
						}
					}
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d calls were stopped, %d came to their end", stopped, over)
	for _, s := range sides {
		if n := len(s.f.Of("server", "start")); n != 1 {
			t.Errorf("a server was started %d times", n)
		}
		for _, v := range s.f.Violations() {
			t.Errorf("a server saw %s", v.Detail)
		}
	}
}
