package httpserver

import (
	"bufio"
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
)

// MCP-37, MCP-38, A10: the session's id is given at initialize; an unknown one
// is 404, also after a DELETE, which closes the session with cause disconnect.
func TestSessionLife(t *testing.T) {
	r := newRig(t, Config{})
	id := r.start("2025-11-25")
	if n := len(strings.TrimPrefix(id, "Mcp-Session-Id: ")); n < 22 {
		t.Errorf("id of %d characters", n)
	}
	if got := r.session(0).who; got.Revision != "2025-11-25" || got.Principal != "local" || got.Remote == "" {
		t.Errorf("caller %+v", got)
	}
	if got := r.post(call(`"1"`, "now"), id); got.status != 200 || !strings.Contains(got.body, `"id":"1"`) {
		t.Errorf("call: %+v", got)
	}
	if got := r.post(call("1", "now")); got.status != 400 || errorOf(got.body) == 0 {
		t.Errorf("no session: %+v", got)
	}
	if got := r.post(call("1", "now"), "Mcp-Session-Id: other"); got.status != 404 || !strings.Contains(got.body, `"id":1`) {
		t.Errorf("unknown session: %+v", got)
	}
	if got := r.do(http.MethodDelete, "", "", id); got.status != 204 {
		t.Errorf("delete: %+v", got)
	}
	if c := r.session(0).closes(); len(c) != 1 || c[0].Cause != belay.CauseDisconnect {
		t.Errorf("closed %+v", c)
	}
	for _, method := range []string{http.MethodDelete, http.MethodGet} {
		if got := r.do(method, "", "", id); got.status != 404 {
			t.Errorf("%s: %+v", method, got)
		}
	}
	for _, body := range []string{call("1", "now"), `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`} {
		if got := r.post(body, id); got.status != 404 {
			t.Errorf("after delete: %+v", got)
		}
	}
}

// MCP-39: a missing version is fine, an unsupported one is 400.
func TestLegacyVersionHeader(t *testing.T) {
	r := newRig(t, Config{})
	id := r.start("2025-06-18")
	for version, want := range map[string]int{"": 200, "2024-11-05": 200, "2025-03-26": 200, "2025-06-18": 200, "2025-11-25": 200, "2025-01-01": 400, "1": 400, "zzz": 400} {
		got := r.post(call("1", "now"), id, "MCP-Protocol-Version: "+version)
		if got.status != want || (want == 400 && errorOf(got.body) != -32600) {
			t.Errorf("version %q: %+v", version, got)
		}
	}
}

// who takes everybody's word for it; the empty word is nobody's.
func who(r *http.Request) (Identity, error) {
	if values := r.Header.Values("X-Who"); len(values) > 0 {
		return Identity{Principal: values[0]}, nil
	}
	return Identity{}, http.ErrNoCookie
}

// MCP-G12: a session belongs to its principal.
func TestSessionsBelongToPrincipals(t *testing.T) {
	r := newRig(t, Config{Identify: who})
	if got := r.post(call("1", "now"), "X-Who: "); got.status != 401 || got.header.Get("WWW-Authenticate") == "" {
		t.Errorf("nobody: %+v", got)
	}
	id := r.start("2025-06-18", "X-Who: ana")
	if got := r.post(call("1", "now"), id, "X-Who: bob"); got.status != 404 {
		t.Errorf("bob: %+v", got)
	}
	if got := r.post(call("1", "now"), id, "X-Who: ana"); got.status != 200 {
		t.Errorf("ana: %+v", got)
	}
	body, headers := modernCall("1", "now")
	r.post(body, append(headers, "X-Who: bob")...)
	if got := r.modern("bob").got(); len(got) != 1 {
		t.Errorf("bob's shared session got %v", got)
	}
}

// MCP-35, MCP-G10: notifications and responses get 202 without a body, cancels
// in any shape.
func TestLegacyNotifications(t *testing.T) {
	r := newRig(t, Config{})
	id := r.start("2025-06-18")
	for _, body := range []string{
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","id":"s-1","result":{}}`,
		`{"jsonrpc":"2.0","id":"s-1","error":{"code":1,"message":"no"}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":[]}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled"`,
	} {
		want := 202
		if !strings.HasSuffix(body, "}") {
			want = 400 // no JSON at all is no cancel
		}
		if got := r.post(body, id); got.status != want || (want == 202 && got.body != "") {
			t.Errorf("%s: %+v", body, got)
		}
	}
	if got := r.post(`{"jsonrpc":"2.0","method":"notifications/cancelled"}`, id, "MCP-Protocol-Version: nonsense", "Content-Type: text/plain"); got.status != 202 {
		t.Errorf("ill-fitting headers: %+v", got)
	}
	if got := len(r.session(0).got()); got != 1+5+1 {
		t.Errorf("%d messages: %v", got, r.session(0).got())
	}
}

// MCP-34, MCP-33: an answer that is the first thing goes as JSON, everything
// else as events with ids; the priming event only where it is understood; a
// caller that names only one form gets that.
func TestFormsOfAnswers(t *testing.T) {
	r := newRig(t, Config{})
	id := r.start("2025-11-25")
	old, current := "MCP-Protocol-Version: 2025-06-18", "MCP-Protocol-Version: 2025-11-25"
	got := r.post(call("1", "progress"), id, old)
	list, _ := events(got.body)
	if len(list) != 2 || list[0].id == "" || list[0].name != "message" || list[1].id == list[0].id || !strings.Contains(list[1].data, `"result"`) {
		t.Errorf("2025-06-18: %q", got.body)
	}
	got = r.post(call("1", "progress"), id, current)
	list, _ = events(got.body)
	if len(list) != 3 || list[0].data != "" || !strings.HasSuffix(list[0].id, "-0") {
		t.Errorf("2025-11-25: %q", got.body)
	}
	got = r.post(call("1", "progress"), id, "Accept: application/json")
	if got.header.Get("Content-Type") != "application/json" || !strings.Contains(got.body, `"result"`) {
		t.Errorf("JSON only: %+v", got)
	}
	got = r.post(call("1", "now"), id, "Accept: text/event-stream;q=0.9")
	if list, _ = events(got.body); got.header.Get("Content-Type") != "text/event-stream" || len(list) != 1 {
		t.Errorf("stream only: %+v", got)
	}
	got = r.post(call("1", "now"), id, current, "Accept: text/event-stream, application/json")
	if list, _ = events(got.body); len(list) != 2 || list[0].data != "" || !strings.Contains(got.body, "retry: ") {
		t.Errorf("stream first: %+v", got)
	}
	for accept, want := range map[string]int{"text/html": 406, "application/json;q=0": 406, "*/*": 200, "": 200, "APPLICATION/*": 200} {
		if got := r.post(call("1", "now"), id, "Accept: "+accept); got.status != want {
			t.Errorf("Accept %q: %+v", accept, got)
		}
	}
	for content, want := range map[string]int{"text/plain": 415, "application/json; charset=utf-8": 200, "application/json; charset=latin1": 415, "": 415} {
		if got := r.post(call("1", "now"), id, "Content-Type: "+content); got.status != want {
			t.Errorf("Content-Type %q: %+v", content, got)
		}
	}
}

// MCP-G24: after the caller's own cancel its response ends without a message:
// an empty stream with 200 where nothing was sent, and no resume of it.
func TestDroppedCallEndsEmpty(t *testing.T) {
	for _, streaming := range []bool{false, true} {
		r := newRig(t, Config{HeaderWait: time.Hour})
		id := r.start("2025-11-25")
		done := make(chan reply, 1)
		go func() { done <- r.post(call("7", "later"), id) }()
		a := r.session(0).call(t, "7")
		if streaming {
			_ = a.to.Send([]byte(`{"jsonrpc":"2.0","method":"notifications/progress"}`))
		}
		a.to.Drop()
		got := <-done
		list, _ := events(got.body)
		if got.status != 200 || got.header.Get("Content-Type") != "text/event-stream" || strings.Contains(got.body, "result") {
			t.Errorf("%+v", got)
		}
		if err := a.to.Answer(0, a.ok()); err == nil {
			t.Error("an answer was taken after the drop")
		}
		if streaming {
			if got := r.do(http.MethodGet, "", "", id, "Last-Event-ID: "+list[len(list)-1].id); got.status != 405 {
				t.Errorf("resume: %+v", got)
			}
		}
	}
}

// MCP-40, MCP-G38: a batch is split into single deliveries in its order, whose
// answers share one response; initialize is refused; removed in 2025-06-18.
func TestBatch(t *testing.T) {
	r := newRig(t, Config{})
	id := r.start("2025-03-26")
	cancelled := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`
	got := r.post("["+call("1", "now")+","+cancelled+",7,"+call(`"1"`, "progress")+"]", id)
	list, _ := events(got.body)
	if got.status != 200 || len(list) != 4 {
		t.Fatalf("%+v", got)
	}
	if m := r.session(0).got(); strings.Join(m[1:], " ") != "tools/call notifications/cancelled tools/call" {
		t.Errorf("delivered %v", m)
	}
	got = r.post("["+call("2", "now")+","+call("3", "now")+"]", id, "Accept: application/json")
	if frames, err := jsonrpc.SplitBatch([]byte(got.body), 0); err != nil || len(frames) != 2 {
		t.Errorf("JSON: %+v, %v", got, err)
	}
	if got := r.post("["+cancelled+"]", id); got.status != 202 {
		t.Errorf("notifications: %+v", got)
	}
	for body, header := range map[string]string{
		"[]": "MCP-Protocol-Version: 2025-03-26",
		`[{"jsonrpc":"2.0","id":1,"method":"initialize"}]`: "MCP-Protocol-Version: 2025-03-26",
		"[" + call("1", "now") + "]":                       "MCP-Protocol-Version: 2025-06-18",
		"[" + call("1", "now"):                             "MCP-Protocol-Version: 2025-03-26",
	} {
		if got := r.post(body, id, header); got.status != 400 || errorOf(got.body) == 0 {
			t.Errorf("%s: %+v", body, got)
		}
	}
}

// MCP-G24, MCP-G28, MCP-G15: the requests of one batch end one by one: answered,
// dropped, by the end of the server, or by the caller's disconnect.
func TestBatchEnds(t *testing.T) {
	r := newRig(t, Config{Disconnect: Cancel})
	three := "[" + call("1", "a") + "," + call("2", "b") + "," + call("3", "c") + "]"
	id := r.start("2025-03-26")
	done := make(chan reply, 1)
	go func() { done <- r.post(three, id) }()
	one, two := r.session(0).call(t, "1"), r.session(0).call(t, "2")
	one.to.Drop()
	one.to.Drop()
	if one.to.Answer(0, one.ok()) == nil || one.to.Send([]byte(`{}`)) == nil {
		t.Error("a dropped request takes messages")
	}
	_ = two.to.Answer(0, two.ok())
	if two.to.Answer(0, two.ok()) == nil {
		t.Error("a second answer was taken")
	}
	r.session(0).call(t, "3")
	r.session(0).die()
	list, _ := events((<-done).body)
	if len(list) != 2 || !strings.Contains(list[0].data, `"id":2`) || !strings.Contains(list[1].data, `"id":3`) || errorOf(list[1].data) != -32603 {
		t.Errorf("%+v", list)
	}

	id = r.start("2025-03-26")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		if resp, err := r.begin(ctx, http.MethodPost, "", three, id); err == nil {
			_, _ = resp.Body.Read(make([]byte, 1))
			cancel(nil)
			resp.Body.Close()
		}
	}()
	two = r.session(1).call(t, "2")
	r.session(1).call(t, "3")
	_ = two.to.Answer(0, two.ok())
	eventually(t, "two calls stopped", func() bool { return len(r.session(1).abandoned()) == 2 })
	r.session(1).mu.Lock()
	defer r.session(1).mu.Unlock()
	if _, ok := r.session(1).gone[two.Exchange]; ok {
		t.Error("the answered call was stopped")
	}
}

// MCP-G5: headers go out after HeaderWait at the latest, then comments.
func TestQuietStream(t *testing.T) {
	r := newRig(t, Config{HeaderWait: 10 * time.Millisecond, KeepAlive: 10 * time.Millisecond})
	id := r.start("2025-11-25")
	resp, err := r.begin(t.Context(), http.MethodPost, "", call("7", "later"), id, "MCP-Protocol-Version: 2025-11-25")
	if err != nil {
		t.Fatal(err)
	}
	if resp.Header.Get("Content-Type") != "text/event-stream" || resp.Header.Get("X-Accel-Buffering") != "no" {
		t.Errorf("headers %v", resp.Header)
	}
	in := bufio.NewReader(resp.Body)
	for seen := ""; !strings.Contains(seen, ": still here"); {
		line, err := in.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		seen += line
	}
	a := r.session(0).call(t, "7")
	_ = a.to.Answer(0, a.ok())
	rest, _ := events(r.readAll(in, resp))
	if len(rest) != 1 || !strings.Contains(rest[0].data, "result") {
		t.Errorf("rest %+v", rest)
	}
}

func (r *rig) readAll(in *bufio.Reader, resp *http.Response) string {
	r.t.Helper()
	defer resp.Body.Close()
	var b strings.Builder
	if _, err := in.WriteTo(&b); err != nil {
		r.t.Fatal(err)
	}
	return b.String()
}

// drop begins a legacy call, waits for its first event, and drops the
// connection. It returns the call and the event's id.
func (r *rig) drop(id, request string) (arrival, string) {
	r.t.Helper()
	ctx, cancel := context.WithCancelCause(r.t.Context())
	defer cancel(nil)
	go func() {
		_ = r.session(0).call(r.t, request).to.Send([]byte(`{"jsonrpc":"2.0","method":"notifications/progress","params":{}}`))
	}()
	resp, err := r.begin(ctx, http.MethodPost, "", call(request, "later"), id, "MCP-Protocol-Version: 2025-06-18")
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	in := bufio.NewReader(resp.Body)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			r.t.Fatal(err)
		}
		if event, ok := strings.CutPrefix(strings.TrimSpace(line), "id: "); ok {
			return r.session(0).call(r.t, request), event
		}
	}
}

func (r *rig) parkedStreams() int {
	n := 0
	r.h.mu.Lock()
	defer r.h.mu.Unlock()
	for _, s := range r.h.sessions {
		s.mu.Lock()
		for _, st := range s.streams {
			if !st.attached.Load() {
				n++
			}
		}
		s.mu.Unlock()
	}
	return n
}

// MCP-31, MCP-33, MCP-36, MCP-G15, MCP-G24: by default a dropped call goes on,
// and a resume gets its result, exactly that stream's, until nothing is left.
func TestDetachAndResume(t *testing.T) {
	r := newRig(t, Config{})
	id := r.start("2025-06-18")
	a, last := r.drop(id, "7")
	b, other := r.drop(id, "8")
	eventually(t, "detached", func() bool { return r.parkedStreams() == 2 })
	if err := a.to.Answer(0, a.ok()); err != nil {
		t.Fatal(err)
	}
	if err := b.to.Answer(0, b.ok()); err != nil {
		t.Fatal(err)
	}
	got := r.do(http.MethodGet, "", "", id, "Last-Event-ID: "+last)
	list, _ := events(got.body)
	if got.status != 200 || len(list) != 1 || !strings.Contains(list[0].data, `"id":7`) {
		t.Fatalf("resume: %+v", got)
	}
	for _, event := range []string{list[0].id, "99-1", "x", "1", "1-", "-1", "01-1", strings.Repeat("9", 40) + "-1"} {
		if got := r.do(http.MethodGet, "", "", id, "Last-Event-ID: "+event); got.status != 405 {
			t.Errorf("resume behind %q: %+v", event, got)
		}
	}
	// Whoever lost the answer itself gets it a second time, and only that.
	got = r.do(http.MethodGet, "", "", id, "Last-Event-ID: "+last)
	if again, _ := events(got.body); len(again) != 1 || again[0] != list[0] {
		t.Errorf("again: %+v", got)
	}
	other2 := r.start("2025-06-18")
	if got := r.do(http.MethodGet, "", "", other2, "Last-Event-ID: "+other); got.status != 405 {
		t.Errorf("another session's stream: %+v", got)
	}
	if n := len(r.session(0).abandoned()); n != 0 {
		t.Errorf("%d calls abandoned", n)
	}
}

// MCP-G15: the policies cancel and cancel-after.
func TestDisconnectPolicies(t *testing.T) {
	r := newRig(t, Config{Disconnect: Cancel})
	a, _ := r.drop(r.start("2025-06-18"), "7")
	eventually(t, "Abandon", func() bool { return len(r.session(0).abandoned()) == 1 })
	if c := r.session(0).abandoned()[0]; c.Cause != belay.CauseDisconnect {
		t.Errorf("cancellation %+v", c)
	}
	if a.to.Send([]byte(`{}`)) == nil {
		t.Error("the stream still takes messages")
	}

	r = newRig(t, Config{Disconnect: CancelAfter, CancelAfter: 50 * time.Millisecond})
	id := r.start("2025-06-18")
	_, last := r.drop(id, "7")
	eventually(t, "Abandon", func() bool { return len(r.session(0).abandoned()) == 1 })
	if got := r.do(http.MethodGet, "", "", id, "Last-Event-ID: "+last); got.status != 405 {
		t.Errorf("resume: %+v", got)
	}

	r = newRig(t, Config{Disconnect: CancelAfter, CancelAfter: time.Hour})
	id = r.start("2025-06-18")
	a, last = r.drop(id, "7")
	eventually(t, "detached", func() bool { return r.parkedStreams() == 1 })
	resp, err := r.begin(t.Context(), http.MethodGet, "", "", id, "Last-Event-ID: "+last)
	if err != nil {
		t.Fatal(err)
	}
	_ = a.to.Answer(0, a.ok())
	if list, _ := events(r.read(resp).body); len(list) != 1 {
		t.Errorf("resumed in time: %+v", list)
	}
	if n := len(r.session(0).abandoned()); n != 0 {
		t.Errorf("%d calls abandoned", n)
	}
}

// MCP-G15: a drop before the headers follows the policy too, though nobody can
// resume.
func TestDropBeforeHeaders(t *testing.T) {
	for policy, want := range map[Policy]int{Detach: 0, Cancel: 1} {
		r := newRig(t, Config{Disconnect: policy, HeaderWait: time.Hour})
		id := r.start("2025-06-18")
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			if resp, err := r.begin(ctx, http.MethodPost, "", call("7", "later"), id); err == nil {
				resp.Body.Close()
			}
		}()
		a := r.session(0).call(t, "7")
		cancel(nil)
		<-done
		eventually(t, "policy", func() bool { return r.parkedStreams() == 1-want && len(r.session(0).abandoned()) == want })
		eventually(t, "the stream takes nothing", func() bool { return a.to.Send([]byte(`{}`)) != nil })
	}
}

// MCP-36, MCP-33: the GET stream takes what belongs to no request, and what
// came before it; a second GET replaces the first; it is resumable.
func TestGetStream(t *testing.T) {
	r := newRig(t, Config{})
	id := r.start("2025-06-18")
	out := r.session(0).out
	notice := func(n string) []byte {
		return []byte("{\"jsonrpc\":\"2.0\",\n\"method\":\"notifications/n" + n + "\"}")
	}
	_ = out.Send(notice("1"))
	first, err := r.begin(t.Context(), http.MethodGet, "", "", id)
	if err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(first.Body)
	event := nextEvent(t, in)
	if !strings.Contains(event.data, "n1") || event.id != "0-1" {
		t.Errorf("event %+v", event)
	}
	_ = out.Send(notice("2"))
	if e := nextEvent(t, in); !strings.Contains(e.data, "n2") {
		t.Errorf("event %+v", e)
	}
	second, err := r.begin(t.Context(), http.MethodGet, "", "", id, "Last-Event-ID: 0-1")
	if err != nil {
		t.Fatal(err)
	}
	if rest := r.readAll(in, first); rest != "" {
		t.Errorf("the first stream had %q", rest)
	}
	in = bufio.NewReader(second.Body)
	if e := nextEvent(t, in); !strings.Contains(e.data, "n2") {
		t.Errorf("replayed %+v", e)
	}
	_ = out.Send(notice("3"))
	if e := nextEvent(t, in); !strings.Contains(e.data, "n3") || e.id != "0-3" {
		t.Errorf("event %+v", e)
	}
	r.do(http.MethodDelete, "", "", id)
	if rest := r.readAll(in, second); rest != "" {
		t.Errorf("at the end: %q", rest)
	}
}

// nextEvent reads one event with data.
func nextEvent(t *testing.T, in *bufio.Reader) sse {
	t.Helper()
	var block strings.Builder
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			t.Fatalf("after %q: %v", block.String(), err)
		}
		block.WriteString(line)
		if list, _ := events(block.String()); line == "\n" {
			if len(list) == 1 && list[0].data != "" {
				return list[0]
			}
			block.Reset()
		}
	}
}

// Without a GET stream the newest open response takes what belongs to no
// request; with neither it waits (MCP-36).
func TestUnrelatedMessages(t *testing.T) {
	r := newRig(t, Config{})
	id := r.start("2025-06-18")
	done := make(chan reply, 1)
	go func() { done <- r.post(call("7", "later"), id) }()
	a := r.session(0).call(t, "7")
	_ = r.session(0).out.Send([]byte(`{"jsonrpc":"2.0","id":"b-1","method":"roots/list"}`))
	_ = a.to.Answer(0, a.ok())
	got := <-done
	if list, _ := events(got.body); len(list) != 2 || !strings.Contains(list[0].data, "roots/list") {
		t.Errorf("%+v", got)
	}
	_ = r.session(0).out.Send([]byte(`{"jsonrpc":"2.0","method":"notifications/waits"}`))
	resp, err := r.begin(t.Context(), http.MethodGet, "", "", id)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if e := nextEvent(t, bufio.NewReader(resp.Body)); !strings.Contains(e.data, "waits") {
		t.Errorf("%+v", e)
	}
}

// A refused initialize leaves no session, nor does a caller that leaves during
// it: nobody would ever know its id.
func TestFailedInitialize(t *testing.T) {
	f := &fake{handle: func(_ *fakeSession, a arrival) {
		if a.ID.Raw() == "1" {
			_ = a.to.Answer(0, jsonrpc.AppendError(nil, a.ID, -32602, "no", nil))
		}
	}}
	r := newRig(t, Config{Backend: f, HeaderWait: time.Hour})
	got := r.post(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`)
	if got.status != 200 || got.header.Get("Mcp-Session-Id") != "" || errorOf(got.body) != -32602 {
		t.Errorf("%+v", got)
	}
	eventually(t, "close", func() bool { return len(r.session(0).closes()) == 1 })
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if resp, err := r.begin(ctx, http.MethodPost, "", `{"jsonrpc":"2.0","id":2,"method":"initialize","params":{}}`); err == nil {
			resp.Body.Close()
		}
	}()
	eventually(t, "second session", func() bool { f.mu.Lock(); defer f.mu.Unlock(); return len(f.sessions) == 2 })
	r.session(1).call(t, "2")
	cancel(nil)
	<-done
	eventually(t, "close", func() bool { return len(r.session(1).closes()) == 1 })
}

// MCP-37, MCP-G28: a server that goes away leaves no caller waiting, and its
// session is 404 from then on.
func TestServerEndsSession(t *testing.T) {
	r := newRig(t, Config{})
	id := r.start("2025-06-18")
	done := make(chan reply, 1)
	go func() { done <- r.post(call("7", "later"), id) }()
	r.session(0).call(t, "7")
	r.session(0).die()
	if got := <-done; got.status != 502 || errorOf(got.body) != -32603 || !strings.Contains(got.body, `"id":7`) {
		t.Errorf("%+v", got)
	}
	if got := r.post(call("1", "now"), id); got.status != 404 {
		t.Errorf("%+v", got)
	}
}

// Sessions are bounded, and end when they are idle.
func TestSessionBounds(t *testing.T) {
	r := newRig(t, Config{MaxSessions: 2, SessionIdle: 200 * time.Millisecond})
	id := r.start("2025-06-18")
	busy := r.start("2025-06-18")
	resp, err := r.begin(t.Context(), http.MethodGet, "", "", busy)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got := r.post(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`); got.status != 503 {
		t.Errorf("third session: %+v", got)
	}
	r.session(1).call(t, "0") // still there
	eventually(t, "idle end", func() bool { return len(r.session(0).closes()) == 1 })
	if got := r.post(call("1", "now"), id); got.status != 404 {
		t.Errorf("%+v", got)
	}
	if got := r.post(call("1", "now"), busy); got.status != 200 {
		t.Errorf("busy: %+v", got)
	}
}

// MCP-G28, MCP-G25: Close answers what is in flight in both eras, ends the
// streams, and refuses from then on.
func TestClose(t *testing.T) {
	r := newRig(t, Config{})
	id := r.start("2025-06-18")
	legacy, modern := make(chan reply, 1), make(chan reply, 1)
	go func() { legacy <- r.post(call("7", "later"), id) }()
	body, headers := modernCall("8", "later")
	go func() { modern <- r.post(body, headers...) }()
	r.session(0).call(t, "7")
	r.modern("local").call(t, "8")
	get, err := r.begin(t.Context(), http.MethodGet, "", "", id)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.h.Close(t.Context(), belay.Cancellation{Cause: belay.CauseShutdown, Reason: "bye"}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []chan reply{legacy, modern} {
		got := <-c
		if errorOf(got.body) == 0 {
			t.Errorf("%+v", got)
		}
	}
	if got := r.read(get); got.body != "" {
		t.Errorf("GET: %+v", got)
	}
	if c := r.modern("local").abandoned(); len(c) != 1 || c[0].Cause != belay.CauseShutdown {
		t.Errorf("modern call: %+v", c)
	}
	if got := r.post(call("1", "now"), id); got.status != 503 || errorOf(got.body) == 0 {
		t.Errorf("after Close: %+v", got)
	}
}
