package httpclient

import (
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/belayhq/belay/internal/calm"
	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
)

// quiet counts what it is told.
type quiet struct {
	sync.Mutex
	messages, lost int
}

func (q *quiet) Message(*mcp.Message, jsonrpc.ID, int) { q.Lock(); q.messages++; q.Unlock() }
func (q *quiet) Lost(jsonrpc.ID, error)                { q.Lock(); q.lost++; q.Unlock() }
func (q *quiet) Over(error)                            {}

// 2,000 calls in flight at once, all cancelled at once: all told within a second
// on two cores, in each way; afterwards nothing is left (goleak).
func TestManyCancels(t *testing.T) {
	const n = 2000
	for name, tc := range map[string]struct{ call, session string }{
		"modern":    {modernCall, ""},
		"session":   {legacyCall, "s-1"},
		"stateless": {legacyCall, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			told := 0
			count := func() { mu.Lock(); told++; mu.Unlock() }
			s := newServer(t, nil)
			begun := make(chan struct{}, n)
			inner := legacy(tc.session, func(_ *server, x *exchange) {
				x.events()
				begun <- struct{}{}
				<-x.Context().Done()
				if tc.session == "" {
					count()
				}
			})
			s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				handler(&server{}, func(_ *server, x *exchange) {
					if x.m.Method == mcp.NoticeCancelled && tc.session != "" {
						count()
					}
					inner(s, x)
				}).ServeHTTP(w, r)
			})
			q := &quiet{}
			c, err := Open(Config{URL: s.URL, Client: client(t)}, q)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close(within(t)) }()
			if tc.call == legacyCall {
				send(t, c, initialize)
				for c.InFlight() > 0 {
					time.Sleep(time.Millisecond)
				}
				send(t, c, initialized)
			}
			for i := range n {
				send(t, c, tc.call, fmt.Sprintf("b-%d", i+1))
			}
			for range n {
				<-begun
			}
			var mem runtime.MemStats
			runtime.ReadMemStats(&mem)
			look, began := calm.Start(t), time.Now()
			ctx := within(t)
			var wg sync.WaitGroup
			for i := range n {
				wg.Go(func() {
					if told, err := c.Cancel(ctx, jsonrpc.StringID(fmt.Sprintf("b-%d", i+1)), ""); err != nil || told.NotStarted {
						t.Errorf("%d: %+v %v", i, told, err)
					}
				})
			}
			wg.Wait()
			took := time.Since(began)
			t.Logf("%d cancels told in %v; before that %d MiB in use, both sides", n, took, (mem.HeapInuse+mem.StackInuse)>>20)
			look.Within(t, took, stressLimit, "all cancels told")
			for end := time.Now().Add(soon); ; time.Sleep(time.Millisecond) {
				mu.Lock()
				k := told
				mu.Unlock()
				if k == n {
					break
				}
				if time.Now().After(end) {
					t.Fatalf("the server was told of %d", k)
				}
			}
			if q.lost != 0 {
				t.Errorf("%d lost", q.lost)
			}
		})
	}
}
