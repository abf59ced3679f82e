package raptools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
	"github.com/belayhq/belay/rap"
)

// Toolset serves the tools of one server. The fields are required, and must not
// be changed.
type Toolset struct {
	Runtime *rap.Runtime
	Tree    *belay.Tree
	Server  string // its name in the runtime
	Log     *slog.Logger
	Version string
}

// session is one Serve.
type session struct {
	t      *Toolset
	out    *jsonrpc.Writer
	thread *rap.Thread
	life   context.Context
	wg     sync.WaitGroup // of requests; Add by the reading goroutine alone

	load   sync.Mutex // held by who discovers
	loaded bool       // guarded by load

	mu     sync.Mutex // guards the fields below
	caller caller
	calls  map[string]*request // in flight, by the id's key
	asks   map[string]chan *mcp.Message
	askIDs jsonrpc.Minter
	rounds map[string]*round // questions of the modern era that wait for a retry, by requestState
}

// caller is what the session's caller has said of itself.
type caller struct {
	elicits bool // forms
	urls    bool // URL elicitation
}

// request is one tools/call, with all of its legs.
type request struct {
	era       mcp.Era
	elicits   bool           // the caller takes questions between two legs
	tool      string         // what it calls
	above     *belay.Run     // of the MCP call; nil: unknown
	questions chan *question // for the next leg's end

	// The fields below are guarded by session.mu.
	leg  *mcp.Message // that waits for an answer; nil between two legs
	last *mcp.Message // the newest leg
	call *rap.Pending // nil: not yet
	gone bool         // the caller has cancelled it: it is told nothing more
}

// Serve serves MCP on a pair of streams until in ends or ctx does, and returns when
// everything of it is over; see gateway.Config. It may be called any number of
// times at once.
func (t *Toolset) Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	s := &session{
		t: t, out: jsonrpc.NewWriter(out, jsonrpc.WriterOptions{KeepOpen: true}),
		calls: map[string]*request{}, asks: map[string]chan *mcp.Message{}, rounds: map[string]*round{},
	}
	var end context.CancelCauseFunc
	s.life, end = context.WithCancelCause(ctx)
	defer end(belay.ErrClosed)
	if c, ok := in.(io.Closer); ok {
		defer context.AfterFunc(ctx, func() { _ = c.Close() })() // a read that waits comes back
	}
	var err error
	s.thread, err = t.Runtime.Open(rap.ThreadOptions{Servers: []string{t.Server}, Events: s.events()})
	if err != nil {
		s.out.CloseNow()
		return err
	}
	err = s.read(in)
	why := belay.Cancellation{Cause: belay.CauseDisconnect, Via: "mcp", Reason: "the session is over"}
	if c := belay.CancellationOf(ctx); c != nil {
		why = *c
	}
	end(&why)
	s.thread.Close(why)
	s.wg.Wait()
	s.dropRounds()
	s.out.CloseNow() // whoever was to read is gone
	return err
}

// read takes messages until there are no more.
func (s *session) read(in io.Reader) error {
	lines := jsonrpc.NewReader(in, jsonrpc.ReaderOptions{})
	for {
		line, err := lines.Next()
		switch {
		case errors.As(err, new(*jsonrpc.TooLongError)):
			s.t.Log.Warn("a message was over the bound; it was dropped", "error", err)
			continue
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrClosedPipe), err != nil && s.life.Err() != nil:
			return nil //nolint:nilerr // the caller has gone, or the session is over: no failure
		case err != nil:
			return err
		}
		m := &mcp.Message{}
		if err := m.Read(append([]byte(nil), line...)); err != nil { // the line is the reader's
			s.t.Log.Warn("what came is no message; it was dropped", "error", err)
			continue
		}
		s.take(m)
	}
}

// take handles one message. It waits for nothing.
func (s *session) take(m *mcp.Message) {
	switch m.Kind {
	case jsonrpc.Notification:
		if m.Method == mcp.NoticeCancelled {
			s.cancelled(m)
		}
	case jsonrpc.Response:
		s.answered(m)
	case jsonrpc.Request:
		s.asked(m)
	}
}

// asked handles a request.
func (s *session) asked(m *mcp.Message) {
	switch m.Method {
	case mcp.MethodInitialize:
		s.initialize(m)
	case mcp.MethodDiscover:
		s.reply(m, discovery{[]string{mcp.Revision26}, capabilities(), 0, "private", map[string]any{metaServerInfo: s.info()}})
	case mcp.MethodPing, mcp.MethodSetLevel:
		s.reply(m, struct{}{})
	case mcp.MethodListTools:
		s.wg.Go(func() { s.list(m) })
	case mcp.MethodCallTool:
		s.call(m)
	default:
		s.send(jsonrpc.AppendError(nil, m.ID, mcp.CodeMethodNotFound, "there is no method "+m.Method, nil))
	}
}

const metaServerInfo = "io.modelcontextprotocol/serverInfo"

type discovery struct {
	Supported    []string       `json:"supportedVersions"`
	Capabilities any            `json:"capabilities"`
	TTL          int            `json:"ttlMs"`
	Scope        string         `json:"cacheScope"`
	Meta         map[string]any `json:"_meta"`
}

func capabilities() any {
	return map[string]any{"tools": struct{}{}, "logging": struct{}{}}
}

func (s *session) info() any {
	return map[string]string{"name": s.t.Server, "version": s.t.Version}
}

// revisions are those of the legacy era, the newest first.
var revisions = []string{"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}

func (s *session) initialize(m *mcp.Message) {
	var p struct {
		Version      string `json:"protocolVersion"`
		Capabilities struct {
			Elicitation *struct {
				Form *struct{} `json:"form"`
				URL  *struct{} `json:"url"`
			} `json:"elicitation"`
		} `json:"capabilities"`
	}
	if err := json.Unmarshal(m.Params.Of(m.Frame), &p); err != nil {
		s.send(jsonrpc.AppendError(nil, m.ID, mcp.CodeInvalidParams, "the parameters of initialize cannot be read", nil))
		return
	}
	version := revisions[0]
	for _, known := range revisions {
		if p.Version == known {
			version = known
		}
	}
	s.mu.Lock()
	if e := p.Capabilities.Elicitation; e != nil {
		s.caller = caller{elicits: e.Form != nil || e.URL == nil, urls: e.URL != nil}
	}
	s.mu.Unlock()
	s.reply(m, map[string]any{"protocolVersion": version, "capabilities": capabilities(), "serverInfo": s.info()})
}

// reply answers a request with a result.
func (s *session) reply(m *mcp.Message, result any) {
	raw, err := json.Marshal(result)
	if err != nil {
		s.send(jsonrpc.AppendError(nil, m.ID, mcp.CodeInternal, "the answer cannot be written", nil))
		return
	}
	s.send(jsonrpc.AppendResponse(nil, m.ID, complete(raw, m.Era())))
}

// complete says in a modern result that there is no more to come (MCP-66).
func complete(raw []byte, era mcp.Era) []byte {
	if era != mcp.Modern {
		return raw
	}
	head := []byte(`{"resultType":"complete"`)
	if len(raw) > 2 {
		head = append(head, ',')
	}
	return append(head, raw[1:]...)
}

func (s *session) send(frame []byte) {
	if _, err := s.out.SendFrame(frame); err != nil {
		s.t.Log.Debug("a message was dropped: nobody reads", "error", err)
	}
}

// tools discovers the server, once for the session; what has failed is tried again
// the next time.
func (s *session) tools() ([]rap.Loaded, error) {
	s.load.Lock()
	defer s.load.Unlock()
	if !s.loaded {
		err := s.thread.Load(s.life)
		switch {
		case s.life.Err() != nil:
			return nil, context.Cause(s.life)
		case err != nil && len(s.thread.Tools()) == 0:
			return nil, err
		}
		s.loaded = true
	}
	return s.thread.Tools(), nil
}

// cancelSubscription is Belay's own tool (RAP-77).
const cancelSubscription = "cancel_subscription"

func (s *session) list(m *mcp.Message) {
	tools, err := s.tools()
	if err != nil {
		s.send(jsonrpc.AppendError(nil, m.ID, mcp.CodeInternal, err.Error(), nil))
		return
	}
	list := make([]tool, 0, len(tools)+1)
	for i := range tools {
		list = append(list, toolOf(&tools[i].Tool))
	}
	list = append(list, tool{
		Name:        cancelSubscription,
		Description: "Ends a live subscription of this conversation.",
		InputSchema: json.RawMessage(`{"type":"object","properties":{"tool_call_id":{"type":"string","description":"the id that the subscription's result names"}},"required":["tool_call_id"]}`),
	})
	result := map[string]any{"tools": list}
	if m.Era() == mcp.Modern {
		result["ttlMs"], result["cacheScope"] = 0, "private"
	}
	s.reply(m, result)
}

// tool is one of tools/list.
type tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"inputSchema"`
	Annotations *hints          `json:"annotations,omitempty"`
	Meta        map[string]any  `json:"_meta,omitempty"`
}

// hints are a tool's annotations as MCP names them.
type hints struct {
	ReadOnly    *bool `json:"readOnlyHint,omitempty"`
	Destructive *bool `json:"destructiveHint,omitempty"`
	Idempotent  *bool `json:"idempotentHint,omitempty"`
}

// metaRAP is the member of _meta that carries what MCP has no word for, unread
// (RAP-47, RAP-64).
const metaRAP = "io.github.belayhq/rap"

func toolOf(t *rap.Tool) tool {
	out := tool{Name: t.Name, Description: t.Description, InputSchema: t.InputSchema}
	more := map[string]json.RawMessage{}
	if len(t.Annotations) > 0 {
		var a struct {
			ReadOnly    *bool `json:"readOnly"`
			Destructive *bool `json:"destructive"`
			Idempotent  *bool `json:"idempotent"`
		}
		if json.Unmarshal(t.Annotations, &a) == nil && (a.ReadOnly != nil || a.Destructive != nil || a.Idempotent != nil) {
			out.Annotations = &hints{a.ReadOnly, a.Destructive, a.Idempotent}
		}
		more["annotations"] = t.Annotations
	}
	if len(t.DisplayScript) > 0 {
		more["displayScript"] = t.DisplayScript
	}
	if len(more) > 0 {
		out.Meta = map[string]any{metaRAP: more}
	}
	return out
}

// errOf is what a caller reads of an error of a call that was not made.
func errOf(err error) string { return fmt.Sprintf("Error: %v", err) }
