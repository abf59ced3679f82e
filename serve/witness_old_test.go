package serve

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/calm"
)

// oldCaller is a caller of 2024-11-05: one stream for all that comes, and a URL
// for all that goes.
type oldCaller struct {
	r     *rig
	url   string
	lines chan string // the messages of the stream; closed at its end
	leave context.CancelFunc
}

func (r *rig) oldCaller() *oldCaller {
	r.t.Helper()
	ctx, leave := context.WithCancel(r.t.Context())
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, r.web.URL+Path("tools")+"/sse", nil)
	req.Header.Set("Accept", "text/event-stream")
	resp, err := r.client.Do(req) //nolint:bodyclose // the goroutine below closes it
	if err != nil {
		r.t.Fatal(err)
	}
	o := &oldCaller{r: r, lines: make(chan string, 1000), leave: leave}
	ended := make(chan struct{})
	r.t.Cleanup(func() {
		leave()
		<-ended
	})
	go func() {
		defer close(ended)
		defer close(o.lines)
		defer resp.Body.Close()
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				o.lines <- data
			}
		}
	}()
	o.url = r.web.URL + o.next("")
	o.send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2024-11-05","capabilities":{},"clientInfo":{"name":"old","version":"1"}}}`)
	if m := o.next(`"id":0`); !strings.Contains(m, `"result"`) {
		r.t.Fatalf("initialize: %s", m)
	}
	o.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return o
}

// send posts a message, which is never answered but with 202.
func (o *oldCaller) send(body string) {
	o.r.t.Helper()
	resp, err := o.r.client.Post(o.url, "application/json", strings.NewReader(body))
	if err != nil {
		o.r.t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusAccepted || len(text) > 0 {
		o.r.t.Fatalf("%s got %s %s", body, resp.Status, text)
	}
}

// next is the next message that has that text; what comes before it is lost.
func (o *oldCaller) next(text string) string {
	o.r.t.Helper()
	late := time.After(10 * time.Second)
	for {
		select {
		case m, ok := <-o.lines:
			if !ok {
				o.r.t.Fatalf("the stream ended before %s", text)
			}
			if strings.Contains(m, text) {
				return m
			}
		case <-late:
			o.r.t.Fatalf("no message has %s\n%s", text, o.r.logs)
		}
	}
}

// TestWitnessOldCaller: a caller over HTTP+SSE in front of every legacy server:
// its cancel stops its call, which is not answered, an operator's is answered
// once, and the loss of its stream stops all that it has; another caller's call
// of the same id goes on (MCP-26, MCP-G12, MCP-G15, MCP-G20, MCP-G24, MCP-G25).
func TestWitnessOldCaller(t *testing.T) {
	t.Parallel()
	each(t, false, func(t *testing.T, r *rig, _ behind) {
		one, two := r.oldCaller(), r.oldCaller()
		two.send(call(7, "tick", `{"key":"b","n":500}`))
		r.event("b", "tick")
		one.send(call(7, "tick", `{"key":"a","n":500}`))
		r.event("a", "tick")
		at := time.Now()
		one.send(cancelOf("7"))
		r.stoppedSoon("a", at)
		for _, id := range []string{"7", `"7"`, "null", "{}"} { // repeated, unknown, malformed (MCP-G10)
			one.send(cancelOf(id))
		}
		one.send(call(8, "echo", `{"text":"fine"}`))
		if m := one.next(`"id":`); !strings.Contains(m, "fine") {
			t.Errorf("behind the cancel came %s", m)
		}
		r.goesOn("b")

		one.send(call(9, "tick", `{"key":"c","n":500}`))
		r.event("c", "tick")
		w := calm.Start(t)
		at = time.Now()
		run := r.find("tick")
		if _, err := r.tree.Cancel(context.Background(), belay.CancelRequest{
			Filter:       belay.Filter{IDs: []belay.RunID{run.ID()}},
			Cancellation: belay.Cancellation{Cause: belay.CauseOperator, By: "operator", Via: "test"},
		}); err != nil {
			t.Fatal(err)
		}
		m := one.next(`"id":9`)
		w.Within(t, time.Since(at), 450*time.Millisecond, "the answer")
		r.one(answer{body: m}, belay.CauseOperator)
		r.stoppedSoon("c", at)
		one.send(call(10, "echo", `{"text":"fine"}`))
		if m := one.next(`"id":`); !strings.Contains(m, "fine") {
			t.Errorf("behind the answer came %s", m)
		}

		one.send(call(11, "tick", `{"key":"d","n":500}`))
		r.event("d", "tick")
		one.leave()
		r.ended("d")
		r.goesOn("b")
		two.leave()
		r.ended("b")
	})
}

// ended holds that a tool's work ends soon, of itself or with its process.
func (r *rig) ended(key string) {
	r.t.Helper()
	r.within(3*time.Second, key+" ends", func() bool {
		if _, ok := r.wit.Last(key, "stopped"); ok {
			return true
		}
		return !r.wit.StillTicking(key, 200*time.Millisecond)
	})
	if _, done := r.wit.Last(key, "done"); done {
		r.t.Errorf("%s ran to its end", key)
	}
}

// TestWitnessResume: a dropped call that is resumed in time is not stopped by
// the policy cancel-after, and brings its result; a stream that was ended by its
// caller's cancel has nothing to resume: 405, at once (MCP-33, MCP-G15, MCP-G24).
func TestWitnessResume(t *testing.T) {
	t.Parallel()
	each(t, false, func(t *testing.T, r *rig, k behind) {
		if strings.Contains(k.name, "json") {
			return // without progress there is no event to resume behind
		}
		d := k.define(r)
		d.Disconnect = cancelAfter(time.Second)
		r.apply(d)
		session := r.begin("tools")
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		const body = `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"tick","arguments":{"key":%q,"n":%d},"_meta":{"progressToken":1}}}`
		resp := r.open(ctx, session, fmt.Sprintf(body, 7, "a", 80))
		id := lastEventID(t, resp)
		leave()
		resp.Body.Close()
		r.goesOn("a")
		text := r.resume(session, id) // until its end, which is behind the policy's time
		if r.event("a", "done"); !strings.Contains(text, `"id":7`) || !strings.Contains(text, `"result"`) {
			t.Errorf("the resume brought %s", text)
		}

		resp = r.open(t.Context(), session, fmt.Sprintf(body, 8, "b", 500))
		id = lastEventID(t, resp)
		at := time.Now()
		r.must(r.post(Path("tools"), session, cancelOf("8")))
		r.stoppedSoon("b", at)
		rest, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || strings.Contains(string(rest), `"id":8`) {
			t.Errorf("the stream ended with %v: %s", err, rest)
		}
		for range 2 {
			if status := r.resumeStatus(session, id); status != http.StatusMethodNotAllowed {
				t.Errorf("the resume of an ended stream got %d", status)
			}
		}
		r.works(false, session)
	})
}
