package httpserver

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
)

// tools answers as a small server of both eras would.
func tools(s *fakeSession, a arrival) {
	if a.Kind != jsonrpc.Request {
		return
	}
	complete := ""
	if a.ByExchange {
		complete = `"resultType":"complete",`
	}
	reply := func(result string) { _ = a.to.Answer(0, jsonrpc.AppendResponse(nil, a.ID, []byte(result))) }
	switch a.Method {
	case mcp.MethodInitialize:
		reply(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"fake","version":"1"}}`)
	case mcp.MethodDiscover:
		reply(`{` + complete + `"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"fake","version":"1"}}}`)
	case mcp.MethodListTools:
		reply(`{` + complete + `"tools":[{"name":"echo","inputSchema":{"type":"object"}}],"ttlMs":0,"cacheScope":"private"}`)
	case "ping":
		reply(`{}`)
	case mcp.MethodCallTool:
		switch a.ToolName() {
		case "echo":
			reply(`{` + complete + `"content":[{"type":"text","text":"hello"}]}`)
		case "progress":
			for _, n := range []string{"1", "2"} {
				_ = a.to.Send([]byte(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + a.ProgressToken().Raw() + `,"progress":` + n + `}}`))
			}
			reply(`{` + complete + `"content":[{"type":"text","text":"hello"}]}`)
		}
	}
}

// The official Go client in all its versions: calls, progress, a cancel that
// arrives as its era has it, and a session that is usable afterwards.
func TestGoClient(t *testing.T) {
	for _, version := range []string{"2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"} {
		t.Run(version, func(t *testing.T) { goClient(t, version) })
	}
}

func goClient(t *testing.T, version string) {
	modern := version == mcp.Revision26
	f := &fake{}
	f.handle = func(s *fakeSession, a arrival) {
		if !modern && a.Method == mcp.MethodInitialize {
			_ = a.to.Answer(0, jsonrpc.AppendResponse(nil, a.ID, []byte(`{"protocolVersion":"`+version+`","capabilities":{"tools":{}},"serverInfo":{"name":"fake","version":"1"}}`)))
			return
		}
		if c, err := a.ReadCancel(); !modern && a.Method == mcp.NoticeCancelled && err == nil {
			s.drop(c.Request)
			return
		}
		if !modern && a.Method == mcp.MethodDiscover {
			_ = a.to.Answer(0, jsonrpc.AppendError(nil, a.ID, mcp.CodeMethodNotFound, "no such method", nil))
			return
		}
		tools(s, a)
	}
	r := newRig(t, Config{Backend: f})
	progress := make(chan float64, 10)
	client := sdk.NewClient(&sdk.Implementation{Name: "t", Version: "1"}, &sdk.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, p *sdk.ProgressNotificationClientRequest) { progress <- p.Params.Progress },
	})
	session, err := client.Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: r.url, HTTPClient: r.c}, &sdk.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	if got := session.InitializeResult().ProtocolVersion; got != version {
		t.Fatalf("speaks %s", got)
	}
	if list, err := session.ListTools(t.Context(), nil); err != nil || len(list.Tools) != 1 {
		t.Fatalf("tools: %v, %v", list, err)
	}
	params := &sdk.CallToolParams{Name: "progress", Arguments: map[string]any{}}
	params.SetProgressToken("pt")
	if _, err := session.CallTool(t.Context(), params); err != nil {
		t.Fatal(err)
	}
	if a, b := <-progress, <-progress; a != 1 || b != 2 {
		t.Errorf("progress %v, %v", a, b)
	}

	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := session.CallTool(ctx, &sdk.CallToolParams{Name: "later", Arguments: map[string]any{}})
		ended <- err
	}()
	be := func() *fakeSession {
		if modern {
			return r.modern(local)
		}
		return r.session(0)
	}
	eventually(t, "the call", func() bool { return be().running("later") })
	cancel(nil)
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled call: %v", err)
	}
	if modern {
		eventually(t, "Abandon", func() bool { return len(be().abandoned()) > 0 })
	} else {
		eventually(t, "the notification", func() bool { return slices.Contains(be().got(), mcp.NoticeCancelled) })
	}
	for range 3 {
		if got, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: "echo", Arguments: map[string]any{}}); err != nil || len(got.Content) != 1 {
			t.Fatalf("after the cancel: %v, %v", got, err)
		}
	}
	if !modern {
		eventually(t, "GET stream", func() bool { return r.attachedGets() == 1 })
	}
	if err := session.Close(); err != nil {
		t.Error(err)
	}
	if !modern {
		eventually(t, "DELETE", func() bool { c := be().closes(); return len(c) == 1 && c[0].Cause == belay.CauseDisconnect })
	}
}

// The official Go client over the transport of 2024-11-05.
func TestGoClientOverSSE(t *testing.T) {
	r := newRig(t, Config{Backend: &fake{handle: func(s *fakeSession, a arrival) {
		if a.Method == mcp.MethodDiscover {
			_ = a.to.Answer(0, jsonrpc.AppendError(nil, a.ID, mcp.CodeMethodNotFound, "no such method", nil))
			return
		}
		tools(s, a)
	}}})
	client := sdk.NewClient(&sdk.Implementation{Name: "t", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), &sdk.SSEClientTransport{Endpoint: r.url + "/sse", HTTPClient: r.c}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: "echo", Arguments: map[string]any{}}); err != nil || len(got.Content) != 1 {
		t.Errorf("call: %v, %v", got, err)
	}
	_ = session.Close()
	eventually(t, "close", func() bool { return len(r.session(0).closes()) == 1 })
}

// drop plays the gateway: a cancelled request gets no answer.
func (s *fakeSession) drop(id jsonrpc.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.calls {
		if a.ID.Same(id) {
			a.to.Drop()
		}
	}
}

// running reports whether a call of this tool was delivered.
func (s *fakeSession) running(tool string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.frames, func(f string) bool { return strings.Contains(f, `"name":"`+tool+`"`) })
}

func (r *rig) attachedGets() int {
	r.h.mu.Lock()
	defer r.h.mu.Unlock()
	n := 0
	for _, s := range r.h.sessions {
		if s.main.attached.Load() {
			n++
		}
	}
	return n
}
