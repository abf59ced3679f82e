// Command acp-go is the agent and the client on github.com/coder/acp-go-sdk, in the
// steps of ../acp-sdk: "acp-go agent", or "acp-go client 1 SCENARIO COMMAND ARGS…".
// It is a module of its own, since nothing of Belay may depend on that SDK.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"

	acp "github.com/coder/acp-go-sdk"
)

func main() {
	if len(os.Args) > 4 && os.Args[1] == "client" {
		if err := client(os.Args[3], os.Args[4:]); err != nil {
			fmt.Fprintln(os.Stderr, "acp-go client:", err)
			os.Exit(1)
		}
		return
	}
	a := &agent{turns: map[acp.SessionId]context.CancelFunc{}}
	a.conn = acp.NewAgentSideConnection(a, os.Stdout, os.Stdin)
	<-a.conn.Done()
}

// tick writes to the witness until ctx ends.
func tick(ctx context.Context) error {
	for {
		f, err := os.OpenFile(os.Getenv("ACP_WITNESS"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		fmt.Fprintln(f, time.Now().UnixMilli())
		_ = f.Close()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

type agent struct {
	acp.Agent // what is not here is not called
	conn      *acp.AgentSideConnection
	mu        sync.Mutex
	turns     map[acp.SessionId]context.CancelFunc
}

func (a *agent) Initialize(context.Context, acp.InitializeRequest) (acp.InitializeResponse, error) {
	return acp.InitializeResponse{ProtocolVersion: acp.ProtocolVersionNumber}, nil
}

func (a *agent) NewSession(context.Context, acp.NewSessionRequest) (acp.NewSessionResponse, error) {
	return acp.NewSessionResponse{SessionId: "s_1"}, nil
}

func (a *agent) Cancel(_ context.Context, p acp.CancelNotification) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if stop := a.turns[p.SessionId]; stop != nil {
		stop()
	}
	return nil
}

func (a *agent) say(ctx context.Context, session acp.SessionId, text string) {
	_ = a.conn.SessionUpdate(ctx, acp.SessionNotification{SessionId: session, Update: acp.UpdateAgentMessageText(text)})
}

func (a *agent) Prompt(request context.Context, p acp.PromptRequest) (acp.PromptResponse, error) {
	ctx, stop := context.WithCancel(request)
	defer stop()
	a.mu.Lock()
	a.turns[p.SessionId] = stop
	a.mu.Unlock()
	what := ""
	for _, b := range p.Prompt {
		if b.Text != nil {
			what += b.Text.Text
		}
	}
	a.say(context.WithoutCancel(ctx), p.SessionId, "working")
	switch what {
	case "tick":
		_ = tick(ctx)
	case "ask":
		got, err := a.conn.RequestPermission(ctx, acp.RequestPermissionRequest{
			SessionId: p.SessionId,
			ToolCall:  acp.ToolCallUpdate{ToolCallId: "tc_1"},
			Options:   []acp.PermissionOption{{OptionId: "ok", Name: "Allow", Kind: acp.PermissionOptionKindAllowOnce}},
		})
		how := fmt.Sprint(err)
		if err == nil && got.Outcome.Cancelled != nil {
			how = "cancelled"
		}
		a.say(context.WithoutCancel(ctx), p.SessionId, "permission "+how)
	case "callback":
		ctx, cancel := context.WithCancel(ctx)
		defer time.AfterFunc(100*time.Millisecond, cancel).Stop()
		_, err := a.conn.CallExtension(ctx, "_wait", struct{}{})
		how := "answered"
		var e *acp.RequestError
		if errors.As(err, &e) {
			how = fmt.Sprint(e.Code)
		}
		a.say(context.WithoutCancel(ctx), p.SessionId, "callback "+how)
		return acp.PromptResponse{StopReason: acp.StopReasonEndTurn}, nil
	}
	if ctx.Err() != nil {
		return acp.PromptResponse{StopReason: acp.StopReasonCancelled}, nil
	}
	return acp.PromptResponse{StopReason: acp.StopReasonEndTurn}, nil
}

// HandleExtensionMethod implements acp.ExtensionMethodHandler.
func (a *agent) HandleExtensionMethod(ctx context.Context, method string, _ json.RawMessage) (any, error) {
	switch method {
	case "_tick":
		return nil, tick(ctx)
	case "_quick":
		return map[string]bool{"done": true}, nil
	}
	return nil, acp.NewMethodNotFound(method)
}

type editor struct {
	acp.Client
	started, asked chan struct{}
	stopped        context.Context // the user pressed Stop
}

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

func (e *editor) SessionUpdate(_ context.Context, n acp.SessionNotification) error {
	if n.Update.AgentMessageChunk != nil {
		signal(e.started)
	}
	return nil
}

func (e *editor) RequestPermission(ctx context.Context, _ acp.RequestPermissionRequest) (acp.RequestPermissionResponse, error) {
	signal(e.asked)
	select {
	case <-ctx.Done():
	case <-e.stopped.Done():
	}
	return acp.RequestPermissionResponse{Outcome: acp.NewRequestPermissionOutcomeCancelled()}, nil
}

func step(event, how string) {
	line, _ := json.Marshal(map[string]any{"at": time.Now().UnixMilli(), "event": event, "how": how})
	fmt.Println(string(line))
}

func client(scenario string, argv []string) error {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	ctx := context.Background()
	pressed, press := context.WithCancel(ctx)
	defer press()
	e := &editor{started: make(chan struct{}, 1), asked: make(chan struct{}, 1), stopped: pressed}
	c := acp.NewClientSideConnection(e, in, out)
	err = talk(ctx, c, e, scenario, press)
	_ = in.Close()
	force := time.AfterFunc(5*time.Second, func() { _ = cmd.Process.Kill() })
	defer force.Stop()
	return errors.Join(err, cmd.Wait())
}

func talk(ctx context.Context, c *acp.ClientSideConnection, e *editor, scenario string, press func()) error {
	if _, err := c.Initialize(ctx, acp.InitializeRequest{ProtocolVersion: acp.ProtocolVersionNumber}); err != nil {
		return err
	}
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	s, err := c.NewSession(ctx, acp.NewSessionRequest{Cwd: dir, McpServers: []acp.McpServer{}})
	if err != nil {
		return err
	}
	prompt := func(ctx context.Context, what string) string {
		got, err := c.Prompt(ctx, acp.PromptRequest{SessionId: s.SessionId, Prompt: []acp.ContentBlock{acp.TextBlock(what)}})
		return word(string(got.StopReason), err)
	}
	ended := make(chan string, 1)
	switch scenario {
	case "request":
		stop, cancel := context.WithCancel(ctx)
		go func() {
			_, err := c.CallExtension(stop, "_tick", struct{}{})
			ended <- word("result", err)
		}()
		time.Sleep(300 * time.Millisecond)
		step("stop", "")
		cancel()
		step("end", <-ended)
		got, err := c.CallExtension(ctx, "_quick", struct{}{})
		step("next", word(string(got), err))
		return nil
	case "prompt request": // the end of Prompt's ctx, which in this SDK is two cancels
		stop, cancel := context.WithCancel(ctx)
		go func() { ended <- prompt(stop, "tick") }()
		<-e.started
		time.Sleep(300 * time.Millisecond)
		step("stop", "")
		cancel()
	default:
		what, begun := "tick", e.started
		if scenario == "permission" {
			what, begun = "ask", e.asked
		}
		go func() { ended <- prompt(ctx, what) }()
		<-begun
		time.Sleep(300 * time.Millisecond)
		step("stop", "")
		if err := c.Cancel(ctx, acp.CancelNotification{SessionId: s.SessionId}); err != nil {
			return err
		}
		press()
	}
	step("end", <-ended)
	step("next", prompt(ctx, "quick"))
	return nil
}

func word(ok string, err error) string {
	var e *acp.RequestError
	switch {
	case errors.As(err, &e):
		return fmt.Sprint(e.Code)
	case err != nil:
		return err.Error()
	}
	return ok
}
