package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/belayhq/belay/script"
)

// shop is what a worker offers of a collection, as it changes. The server knows the
// tools by their manifests from the beginning, so that a process that was started for
// one call has nothing else to load; what cannot be loaded leaves when somebody asks
// for the list, or for it.
type shop struct {
	w      *Worker
	server *mcp.Server
	tasks  sync.WaitGroup // of refreshing and watching
	end    chan struct{}  // closed when the worker serves nobody any more

	mu      sync.Mutex
	offered map[string][]byte // by id: what the list says of it
	watched bool
	closed  bool
}

// open offers what the collection's manifests say.
func (w *Worker) open(server *mcp.Server) *shop {
	s := &shop{w: w, server: server, end: make(chan struct{}), offered: map[string][]byte{}}
	for _, m := range w.o.Collection.Manifests() {
		s.offer(&mcp.Tool{Name: m.ID, Title: m.DisplayName, Description: m.Description, InputSchema: json.RawMessage(m.Schema())})
	}
	server.AddReceivingMiddleware(s.middleware)
	return s
}

// close waits for what the shop has going on.
func (s *shop) close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	s.closed = true
	close(s.end)
	s.mu.Unlock()
	s.w.o.Collection.Close()
	s.tasks.Wait()
}

// toolKey finds the tool of a call in its handler's context.
type toolKey struct{}

// middleware brings what is offered up to date before anybody is told of it, or
// calls it.
func (s *shop) middleware(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		switch method {
		case "tools/list":
			s.refreshSoon(ctx)
			s.watch()
		case "tools/call":
			if p, ok := req.GetParams().(*mcp.CallToolParamsRaw); ok && p != nil {
				if tool := s.find(p.Name); tool != nil {
					ctx = context.WithValue(ctx, toolKey{}, tool)
				}
			}
		}
		return next(ctx, method, req)
	}
}

// current is the program of a call: the newest there was when it came.
func current(ctx context.Context, tool *script.Tool) *script.Tool {
	if newest, ok := ctx.Value(toolKey{}).(*script.Tool); ok {
		return newest
	}
	return tool
}

// refresh reads everything that has changed.
func (s *shop) refresh() {
	tools, _ := s.w.o.Collection.Tools()
	s.mu.Lock()
	defer s.mu.Unlock()
	gone := make(map[string]bool, len(s.offered))
	for id := range s.offered {
		gone[id] = true
	}
	for _, tool := range tools {
		delete(gone, tool.Manifest.ID)
		s.offerLocked(s.w.entry(tool))
	}
	for id := range gone {
		s.dropLocked(id)
	}
}

// listWait is how long a list waits for projects that take their time to load. What
// is not known then is listed as its manifest says, and leaves later if it has to.
const listWait = time.Second

// refreshSoon is refresh for somebody who waits.
func (s *shop) refreshSoon(ctx context.Context) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	done := make(chan struct{})
	s.tasks.Go(func() { defer close(done); s.refresh() })
	s.mu.Unlock()
	limit := time.NewTimer(listWait)
	defer limit.Stop()
	select {
	case <-done:
	case <-limit.C:
	case <-ctx.Done():
	}
}

// find brings one tool up to date; nil if there is none.
func (s *shop) find(id string) *script.Tool {
	tool := s.w.o.Collection.Tool(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if tool == nil {
		s.dropLocked(id)
		return nil
	}
	s.offerLocked(s.w.entry(tool))
	return tool
}

func (s *shop) offer(t *mcp.Tool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.offerLocked(t)
}

// offerLocked has the server list a tool as it is now. The client hears of it only if
// something is different.
func (s *shop) offerLocked(t *mcp.Tool) {
	text, err := json.Marshal(t)
	if err == nil && bytes.Equal(s.offered[t.Name], text) {
		return
	}
	s.offered[t.Name] = text
	s.server.AddTool(t, s.w.handler(nil))
}

func (s *shop) dropLocked(id string) {
	if _, ok := s.offered[id]; ok {
		delete(s.offered, id)
		s.server.RemoveTools(id)
	}
}
