package httpclient

import (
	"net/http"
	"testing"
	"time"

	"github.com/belayhq/belay/internal/calm"
)

// MCP-36: what a server asks on the session's own stream before anybody reads
// it is lost with most servers, so that requests wait for that stream; not for
// ever, and not where there is none.
func TestCallsWaitForStream(t *testing.T) {
	for name, tc := range map[string]struct {
		answer   func(x *exchange, release chan struct{}) // to the GET
		released bool                                     // the call must not leave before
	}{
		"answered late": {func(x *exchange, release chan struct{}) { <-release; x.events(); <-x.Request.Context().Done() }, true},
		"refused late":  {func(x *exchange, release chan struct{}) { <-release; x.WriteHeader(http.StatusMethodNotAllowed) }, true},
		"never":         {func(x *exchange, _ chan struct{}) { <-x.Request.Context().Done() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			release := make(chan struct{})
			inner := legacy("s-1", func(_ *server, x *exchange) { x.ok() })
			s := newServer(t, func(s *server, x *exchange) {
				if x.Method == http.MethodGet {
					tc.answer(x, release)
					return
				}
				inner(s, x)
			})
			c, r := open(t, Config{URL: s.URL})
			w, began := calm.Start(t), time.Now()
			handshake(t, c, s, r)
			send(t, c, legacyCall, "b-1")
			if tc.released {
				time.Sleep(50 * time.Millisecond) // there is no signal for what must not happen
				if n := s.count(`"b-1"`); n != 0 {
					t.Error("the call overtook the session's own stream")
				}
				close(release)
			}
			r.wait(t, 1, `message "b-1" 200`)
			took := time.Since(began)
			if tc.released {
				w.Within(t, took, openWait, "the answer")
			} else if took < openWait/2 {
				t.Errorf("the call was answered after %v", took)
			}
		})
	}
}
