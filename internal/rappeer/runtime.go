package rappeer

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"
)

// Runtime is a runtime written from the sheet alone: it invokes tools of a tool
// server, cancels them, and keeps every message that comes to its callback URLs.
// Set the fields before Start.
type Runtime struct {
	// Base is the tool server's base URL.
	Base string
	// Sign adds credentials to a request; nil: none.
	Sign func(r *http.Request, body []byte)
	// Status answers a message: its number for the call counts from 1. Nil: 200.
	Status func(id string, n int) int
	// NoViews refuses views of progress.
	NoViews bool
	// Client sends requests; nil: one of its own.
	Client *http.Client

	web  *httptest.Server
	http *http.Client

	mu    sync.Mutex
	cond  *sync.Cond
	calls map[string]*received        // by the path of the callback URL
	views map[string][]map[string]any // states of progress views, by thread
	byID  map[string]string           // thread and id -> path, of the newest invocation
}

type received struct {
	messages []Message
	tries    int // POSTs, refused ones too
}

// Message is what came to a callback URL.
type Message struct {
	Type, GroupID, ID, Text, ToolCallID string
	Subscription, Final, Associative    bool
	CallID                              *string
	Raw                                 map[string]any
	Body                                []byte
}

// Start opens the callback server.
func (r *Runtime) Start() {
	r.cond = sync.NewCond(&r.mu)
	r.calls, r.views, r.byID = map[string]*received{}, map[string][]map[string]any{}, map[string]string{}
	r.web = httptest.NewServer(http.HandlerFunc(r.take))
	if r.http = r.Client; r.http == nil {
		r.http = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}, Timeout: 30 * time.Second}
	}
}

// Stop ends it.
func (r *Runtime) Stop() {
	r.http.CloseIdleConnections()
	r.web.CloseClientConnections()
	r.web.Close()
}

func (r *Runtime) take(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.calls[req.URL.Path]
	if c == nil || req.Method != http.MethodPost || !strings.HasPrefix(req.Header.Get("Content-Type"), "application/json") {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	defer r.cond.Broadcast()
	m := Message{Body: body, Raw: map[string]any{}}
	if json.Unmarshal(body, &m.Raw) != nil {
		c.tries++
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if view, _ := m.Raw["view_type"].(string); strings.HasPrefix(view, progressView) {
		if r.NoViews {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		content, _ := m.Raw["content"].(map[string]any)
		thread, _ := m.Raw["group_id"].(string)
		r.views[thread] = append(r.views[thread], content)
		return
	}
	c.tries++
	text := func(key string) string { s, _ := m.Raw[key].(string); return s }
	m.Type, m.GroupID, m.ID, m.Text, m.ToolCallID = text("type"), text("group_id"), text("id"), text("text"), text("tool_call_id")
	m.Subscription, _ = m.Raw["subscription"].(bool)
	m.Final, _ = m.Raw["final"].(bool)
	m.Associative, _ = m.Raw["associative"].(bool)
	if s, ok := m.Raw["call_id"].(string); ok {
		m.CallID = &s
	}
	if r.Status != nil {
		if status := r.Status(m.ID+m.ToolCallID, c.tries); status != http.StatusOK {
			w.WriteHeader(status)
			return
		}
	}
	c.messages = append(c.messages, m)
}

// progressView begins the type of views that tell how far calls are. They come beside
// the messages of a call, as often as the tool server likes, and are kept apart.
const progressView = "belay.progress."

// View returns the first state of a thread's view of progress that fits, as soon as
// it is there.
func (r *Runtime) View(ctx context.Context, thread string, fits func(content map[string]any) bool) (map[string]any, error) {
	defer context.AfterFunc(ctx, func() { r.mu.Lock(); defer r.mu.Unlock(); r.cond.Broadcast() })()
	r.mu.Lock()
	defer r.mu.Unlock()
	for seen := 0; ; r.cond.Wait() {
		for ; seen < len(r.views[thread]); seen++ {
			if fits(r.views[thread][seen]) {
				return r.views[thread][seen], nil
			}
		}
		if ctx.Err() != nil {
			last := r.views[thread][max(0, len(r.views[thread])-1):]
			return nil, fmt.Errorf("none of %d views of thread %s fits: %w; the last: %v", len(r.views[thread]), thread, context.Cause(ctx), last)
		}
	}
}

// Callback mints a callback URL for a call.
func (r *Runtime) Callback(thread, id string) string {
	path := "/cb/" + rand.Text()
	r.mu.Lock()
	r.calls[path] = &received{}
	r.byID[thread+"\x00"+id] = path
	r.mu.Unlock()
	return r.web.URL + path
}

// Answer is a tool server's answer to a request.
type Answer struct {
	Status int
	Header http.Header
	Body   string
}

// Do sends one request; body "" sends none.
func (r *Runtime) Do(method, path, body string) (Answer, error) {
	return r.DoAs(r.Sign, method, path, "application/json", body)
}

// DoAs is Do with other credentials and another content type.
func (r *Runtime) DoAs(sign func(*http.Request, []byte), method, path, contentType, body string) (Answer, error) {
	to := path
	if !strings.Contains(path, "://") {
		to = r.Base + path
	}
	req, err := http.NewRequest(method, to, bytes.NewReader([]byte(body)))
	if err != nil {
		return Answer{}, err
	}
	if body != "" {
		req.Header.Set("Content-Type", contentType)
	}
	if sign != nil {
		sign(req, []byte(body))
	}
	resp, err := r.http.Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	return Answer{resp.StatusCode, resp.Header, string(got)}, err
}

// Invocation is the body of an invocation; more are members that replace or add.
func (r *Runtime) Invocation(operation, thread, id string, arguments any, more map[string]any) string {
	m := map[string]any{
		"operation": operation, "arguments": arguments, "id": id, "group_id": thread,
		"call_id": nil, "callback_url": r.Callback(thread, id),
	}
	if arguments == nil {
		m["arguments"] = map[string]any{}
	}
	maps.Copy(m, more)
	body, err := json.Marshal(m)
	if err != nil {
		panic(err) // the test's own values
	}
	return string(body)
}

// Endpoint discovers where invocations go.
func (r *Runtime) Endpoint() (endpoint string, manifest map[string]any, err error) {
	a, err := r.Do(http.MethodGet, "/.well-known/rap-toolset", "")
	if err != nil {
		return "", nil, err
	}
	if a.Status != http.StatusOK || !strings.HasPrefix(a.Header.Get("Content-Type"), "application/json") {
		return "", nil, fmt.Errorf("discovery: %d %s", a.Status, a.Body)
	}
	if err := json.Unmarshal([]byte(a.Body), &manifest); err != nil {
		return "", nil, err
	}
	endpoint, _ = manifest["endpoint"].(string)
	return endpoint, manifest, nil
}

// Invoke sends an invocation to where discovery says.
func (r *Runtime) Invoke(operation, thread, id string, arguments any) (Answer, error) {
	endpoint, _, err := r.Endpoint()
	if err != nil {
		return Answer{}, err
	}
	return r.Do(http.MethodPost, endpoint, r.Invocation(operation, thread, id, arguments, nil))
}

// Cancel sends the notification once.
func (r *Runtime) Cancel(thread, id string) (Answer, error) {
	body, err := json.Marshal(map[string]string{"thread_id": thread, "tool_call_id": id})
	if err != nil {
		return Answer{}, err
	}
	return r.Do(http.MethodPost, "/cancel_tool_call", string(body))
}

// CloseThread sends the notification once.
func (r *Runtime) CloseThread(thread string) (Answer, error) {
	body, err := json.Marshal(map[string]string{"thread_id": thread})
	if err != nil {
		return Answer{}, err
	}
	return r.Do(http.MethodPost, "/close_thread", string(body))
}

// Messages are what has come for the newest invocation of these ids.
func (r *Runtime) Messages(thread, id string) []Message {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.calls[r.byID[thread+"\x00"+id]]; c != nil {
		return append([]Message(nil), c.messages...)
	}
	return nil
}

// Tries counts the POSTs for a call.
func (r *Runtime) Tries(thread, id string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.calls[r.byID[thread+"\x00"+id]]; c != nil {
		return c.tries
	}
	return 0
}

// Wait returns the nth message (from 1) of a call as soon as it is there.
func (r *Runtime) Wait(ctx context.Context, thread, id string, n int) (Message, error) {
	defer context.AfterFunc(ctx, func() { r.mu.Lock(); defer r.mu.Unlock(); r.cond.Broadcast() })()
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		if c := r.calls[r.byID[thread+"\x00"+id]]; c != nil && len(c.messages) >= n {
			return c.messages[n-1], nil
		}
		if ctx.Err() != nil {
			return Message{}, fmt.Errorf("message %d of (%s, %s) has not come: %w", n, thread, id, context.Cause(ctx))
		}
		r.cond.Wait()
	}
}
