package rappeer

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// ToolServer is a tool server of the protocol's page and nothing else: it
// acknowledges what it gets, writes down every request, and has its tools and
// its manners from the test. Set the fields before Start. Safe for concurrent use.
type ToolServer struct {
	// Manifest is what discovery answers; "ENDPOINT" in it becomes the server's own
	// URL for invocations. Empty: one tool of each name in Tools.
	Manifest string
	Name     string // of the toolset; default "peer"

	// Tools run after the 200, each in a goroutine of its own.
	Tools map[string]func(c *Invoked)

	// Bearer is the token that every request must carry; empty: none.
	Bearer string

	// Manners: what is answered, and after what, instead of 200 at once. The
	// function may block; ctx ends with the request or the server. Nil: 200.
	OnInvoke, OnCancel, OnClose, OnMigrate, OnDiscovery, OnChoice func(ctx context.Context, body []byte) (status int)

	base   string
	http   *http.Server
	client http.Client
	life   context.Context
	end    context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	seen    []Seen
	calls   map[[2]string]*Invoked
	changed chan struct{} // closed and replaced with each request
}

// Seen is one request.
type Seen struct {
	Method, Path, ContentType, Authorization string
	Body                                     []byte
	At                                       time.Time
}

// Invoked is one call.
type Invoked struct {
	Operation string          `json:"operation"`
	Arguments json.RawMessage `json:"arguments"`
	ID        string          `json:"id"`
	CallID    *string         `json:"call_id"`
	Callback  string          `json:"callback_url"`
	Group     string          `json:"group_id"`
	Ancestors []string        `json:"thread_ancestors"`
	User      string          `json:"user_id"`

	// Cancelled is closed when the call was cancelled, Closed when its thread was
	// closed.
	Cancelled, Closed chan struct{} `json:"-"`

	server *ToolServer
	once   sync.Once
	closed sync.Once
}

// Start serves on loopback. Stop ends it.
func (s *ToolServer) Start() (base string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it does not wait
	if err != nil {
		return "", err
	}
	s.base = "http://" + l.Addr().String()
	s.life, s.end = context.WithCancel(context.Background())
	s.calls, s.changed = map[[2]string]*Invoked{}, make(chan struct{})
	s.client.Transport = &http.Transport{MaxIdleConnsPerHost: 16}
	s.http = &http.Server{Handler: http.HandlerFunc(s.serve), ReadHeaderTimeout: 10 * time.Second}
	s.wg.Go(func() { _ = s.http.Serve(l) })
	return s.base, nil
}

// Base is the server's address.
func (s *ToolServer) Base() string { return s.base }

// Stop ends the server and every tool that listens to its context.
func (s *ToolServer) Stop() {
	s.end()
	_ = s.http.Close()
	s.wg.Wait()
	s.client.CloseIdleConnections()
}

// Life ends with the server.
func (s *ToolServer) Life() context.Context { return s.life }

func (s *ToolServer) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	s.note(Seen{
		Method: r.Method, Path: r.URL.Path, ContentType: r.Header.Get("Content-Type"),
		Authorization: r.Header.Get("Authorization"), Body: body, At: time.Now(),
	})
	if s.Bearer != "" && r.Header.Get("Authorization") != "Bearer "+s.Bearer {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	ctx, end := context.WithCancel(r.Context())
	defer end()
	defer context.AfterFunc(s.life, end)()
	switch r.Method + " " + r.URL.Path {
	case "GET /.well-known/rap-toolset":
		if status := ask(ctx, s.OnDiscovery, body); status != http.StatusOK {
			w.WriteHeader(status)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, s.manifest())
	case "POST /run":
		s.invoke(ctx, w, body)
	case "POST /cancel_tool_call":
		s.cancel(body)
		w.WriteHeader(ask(ctx, s.OnCancel, body))
	case "POST /close_thread":
		s.closeThread(body)
		w.WriteHeader(ask(ctx, s.OnClose, body))
	case "POST /migrate":
		w.WriteHeader(ask(ctx, s.OnMigrate, body))
	case "POST /choice":
		w.WriteHeader(ask(ctx, s.OnChoice, body))
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func ask(ctx context.Context, manner func(context.Context, []byte) int, body []byte) int {
	if manner == nil {
		return http.StatusOK
	}
	if status := manner(ctx, body); status != 0 {
		return status
	}
	return http.StatusOK
}

func (s *ToolServer) manifest() string {
	text := s.Manifest
	if text == "" {
		name := s.Name
		if name == "" {
			name = "peer"
		}
		var tools []string
		for _, tool := range slices.Sorted(maps.Keys(s.Tools)) {
			tools = append(tools, `{"name":"`+tool+`","description":"does `+tool+`","inputSchema":{"type":"object"}}`)
		}
		text = `{"name":"` + name + `","endpoint":"ENDPOINT","tools":[` + strings.Join(tools, ",") + `]}`
	}
	return strings.ReplaceAll(text, "ENDPOINT", s.base+"/run")
}

func (s *ToolServer) invoke(ctx context.Context, w http.ResponseWriter, body []byte) {
	if status := ask(ctx, s.OnInvoke, body); status != http.StatusOK {
		w.WriteHeader(status)
		return
	}
	c := &Invoked{server: s, Cancelled: make(chan struct{}), Closed: make(chan struct{})}
	if err := json.Unmarshal(body, c); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	tool := s.Tools[c.Operation]
	s.mu.Lock()
	key := [2]string{c.Group, c.ID}
	_, again := s.calls[key]
	if !again {
		s.calls[key] = c
	}
	s.mu.Unlock()
	if !again { // RAP-61
		s.wg.Go(func() {
			if tool == nil {
				_, _ = c.Text("Error: there is no tool " + c.Operation)
				return
			}
			tool(c)
		})
	}
	w.WriteHeader(http.StatusOK)
}

func (s *ToolServer) cancel(body []byte) {
	var m struct {
		Thread string `json:"thread_id"`
		Call   string `json:"tool_call_id"`
	}
	if json.Unmarshal(body, &m) != nil {
		return
	}
	s.mu.Lock()
	c := s.calls[[2]string{m.Thread, m.Call}]
	s.mu.Unlock()
	if c != nil {
		c.once.Do(func() { close(c.Cancelled) })
	}
}

func (s *ToolServer) closeThread(body []byte) {
	var m struct {
		Thread string `json:"thread_id"`
	}
	if json.Unmarshal(body, &m) != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, c := range s.calls {
		if key[0] == m.Thread {
			c.closed.Do(func() { close(c.Closed) })
		}
	}
}

// Text sends a result of a text.
func (c *Invoked) Text(text string) (int, error) {
	return c.Post(map[string]any{"type": "tool_result", "group_id": c.Group, "id": c.ID, "call_id": c.CallID, "text": text})
}

// Event sends an event of the call, which is a subscription.
func (c *Invoked) Event(text string, final bool) (int, error) {
	return c.Post(map[string]any{"type": "subscription_event", "group_id": c.Group, "tool_call_id": c.ID, "text": text, "final": final})
}

// Post sends any message to the callback URL and returns the status, or 0.
func (c *Invoked) Post(message any) (int, error) {
	body, err := json.Marshal(message)
	if err != nil {
		return 0, err
	}
	return c.PostRaw("application/json", body)
}

// PostRaw sends anything to the callback URL.
func (c *Invoked) PostRaw(contentType string, body []byte) (int, error) {
	return c.server.post(c.Callback, contentType, body)
}

func (s *ToolServer) post(to, contentType string, body []byte) (int, error) {
	r, err := http.NewRequestWithContext(s.life, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Content-Type", contentType)
	resp, err := s.client.Do(r)
	if err != nil {
		return 0, err
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode, nil
}

func (s *ToolServer) note(one Seen) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, one)
	close(s.changed)
	s.changed = make(chan struct{})
}

// Seen lists the requests to a path so far.
func (s *ToolServer) Seen(path string) []Seen {
	list, _ := s.look(path)
	return list
}

func (s *ToolServer) look(path string) ([]Seen, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []Seen
	for _, one := range s.seen {
		if one.Path == path {
			list = append(list, one)
		}
	}
	return list, s.changed
}

// Await waits until there were n requests to a path, and returns them; fewer when
// ctx ends before.
func (s *ToolServer) Await(ctx context.Context, path string, n int) []Seen {
	for {
		list, changed := s.look(path)
		if len(list) >= n {
			return list
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return list
		}
	}
}

// AwaitCall waits for the call of an operation, and returns the newest; nil when
// ctx ends before.
func (s *ToolServer) AwaitCall(ctx context.Context, operation string) *Invoked {
	for {
		s.mu.Lock()
		changed := s.changed
		var found *Invoked
		for _, c := range s.calls {
			if c.Operation == operation {
				found = c
			}
		}
		s.mu.Unlock()
		if found != nil {
			return found
		}
		select {
		case <-changed:
		case <-time.After(5 * time.Millisecond): // it is known a moment after its request was seen
		case <-ctx.Done():
			return nil
		}
	}
}

// Call is closed when the call with these ids was cancelled. A cancel that came before
// the call is forgotten, as the reference implementation does it.
func (s *ToolServer) Call(group, id string) <-chan struct{} {
	for {
		s.mu.Lock()
		c := s.calls[[2]string{group, id}]
		s.mu.Unlock()
		if c != nil {
			return c.Cancelled
		}
		select {
		case <-time.After(time.Millisecond):
		case <-s.life.Done():
			return nil
		}
	}
}
