//go:build unix

package acceptance

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/belayhq/belay"
)

// Numbers of the crash test.
const (
	crashRuns    = 1000
	crashSpared  = 50  // of which nobody asks for a cancel
	crashAfter   = 500 // receipts that were returned
	crashWorkers = 32
)

// A kill -9 in the middle of 1,000 receipts that clients wait for: none that was
// returned is missing or torn afterwards, and runs that were in flight are lost
// (DESIGN 12: acknowledged receipt).
func TestCrashInTheMiddleOfReceipts(t *testing.T) { // not parallel: it takes all the time there is
	s := start(t, func(c *settings) {
		c.servers["answers"] = c.tool(map[string]any{"grace": "20s"}, "-name", "answers", "-reply", "iserror")
	})
	begun := time.Now()
	callers := s.crowd(t)
	runs := s.runs(t, "op", "?kind=call&owner=ann&limit=1000")
	if len(runs) != crashRuns {
		t.Fatalf("%d runs in flight", len(runs))
	}
	t.Logf("%v: %d runs are in flight", time.Since(begun), crashRuns)
	h := &harvest{receipts: map[belay.RunID]belay.Receipt{}, enough: make(chan struct{})}
	h.gather(t, s, runs[crashSpared:])
	select {
	case <-h.enough:
	case <-time.After(90 * time.Second):
		t.Errorf("not even %d receipts were returned", crashAfter)
	}
	s.kill()
	t.Logf("%v: killed", time.Since(begun))
	h.all.Wait()
	for _, c := range callers { // they are not left waiting
		wait(t, c)
	}
	s = s.again(t)
	h.check(t, s)
	t.Logf("%v: %d receipts were returned and are there; %d runs are lost", time.Since(begun), len(h.receipts), s.lost(t, runs))
}

// crowd starts the calls and returns when each is at work.
func (s *server) crowd(t *testing.T) (callers []<-chan reply) {
	t.Helper()
	const each = 50
	for n := range crashRuns / each {
		c := s.begin(t, "ann", "answers")
		for i := range each {
			id := fmt.Sprintf(`"crash-%d"`, n*each+i)
			callers = append(callers, c.call(t, id, "tick", `{"key":"crash","n":1,"ms":100000}`))
		}
	}
	if _, err := s.wit.wait("crash", "start", crashRuns, 60*time.Second); err != nil {
		t.Fatalf("%.300v", err)
	}
	return callers
}

// harvest is the final receipts that clients were given.
type harvest struct {
	all    sync.WaitGroup
	enough chan struct{} // closed when crashAfter are there

	mu       sync.Mutex
	receipts map[belay.RunID]belay.Receipt
}

// gather lets clients cancel the runs and wait for their receipts, until the
// server is gone.
func (h *harvest) gather(t *testing.T, s *server, runs []belay.Info) {
	t.Helper()
	todo := make(chan belay.RunID, len(runs))
	for _, i := range runs {
		todo <- i.ID
	}
	close(todo)
	for range crashWorkers {
		h.all.Go(func() {
			for run := range todo {
				a, err := s.try("POST", "/v1/runs/"+run.String()+"/cancel", "op", `{"reason":"crash test","wait":30}`)
				if err != nil {
					return // killed
				}
				var got struct {
					Results []belay.CancelResult `json:"results"`
				}
				if err := json.Unmarshal([]byte(a.body), &got); err != nil || a.status != 200 && a.status != 202 {
					t.Errorf("%d %.300s", a.status, a.body)
					return
				}
				h.add(got.Results)
			}
		})
	}
}

func (h *harvest) add(results []belay.CancelResult) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := len(h.receipts)
	for _, r := range results {
		if r.Receipt != nil && r.Receipt.Final {
			h.receipts[r.Run.ID] = *r.Receipt
		}
	}
	if before < crashAfter && len(h.receipts) >= crashAfter {
		close(h.enough)
	}
}

// check looks for each of them in the next process.
func (h *harvest) check(t *testing.T, s *server) {
	t.Helper()
	there := map[belay.RunID]belay.Receipt{}
	for _, r := range into[struct{ Receipts []belay.Receipt }](t, s.do(t, "GET", "/v1/receipts?limit=1000", "op", ""), 200).Receipts {
		there[r.Run] = r
	}
	for run, r := range h.receipts {
		now, ok := there[run]
		if !ok || !now.Final || rank(now.Verdict) < rank(r.Verdict) || len(now.Steps) < len(r.Steps) || now.Outcome != belay.Cancelled ||
			now.Cancellation == nil || now.Cancellation.Stop != r.Cancellation.Stop || now.Cancellation.Reason != "crash test" {
			t.Fatalf("returned %+v\nnow %v %+v", r, ok, now)
		}
	}
}

// rank orders verdicts: evidence that comes later makes one better, never worse.
func rank(v belay.Verdict) int {
	return slices.Index([]belay.Verdict{belay.Unreachable, belay.Signalled, belay.Acknowledged, belay.Confirmed}, v)
}

// lost counts the runs that are; the others have been cancelled.
func (s *server) lost(t *testing.T, runs []belay.Info) (n int) {
	t.Helper()
	known := map[belay.RunID]belay.Info{}
	for _, i := range s.runs(t, "op", "?state=all&kind=call&limit=1000") {
		known[i.ID] = i
	}
	for place, i := range runs {
		switch now := known[i.ID]; {
		case now.Outcome == belay.Lost && now.Work == belay.Unconfirmed:
			n++
		case now.Outcome != belay.Cancelled, place < crashSpared:
			t.Errorf("run %s is %+v", i.ID, now)
		}
	}
	return n
}
