package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// First arguments that turn this binary into a Go peer.
const (
	goClientMarker = "go-client"
	goServerMarker = "go-server"
)

// clientConfig is what every client script gets as its one argument.
type clientConfig struct {
	Command       string            `json:"command"`
	Args          []string          `json:"args"`
	Env           map[string]string `json:"env"`
	URL           string            `json:"url,omitempty"` // over HTTP, in place of Command
	Mode          string            `json:"mode"`          // legacy, auto; "" = the SDK's default
	Tool          string            `json:"tool"`
	Arguments     map[string]any    `json:"arguments"`
	Event         string            `json:"event"` // abort, timeout or wait
	AfterMS       int               `json:"afterMs"`
	TimeoutMS     int               `json:"timeoutMs"`
	NextTool      string            `json:"nextTool"`
	NextArguments map[string]any    `json:"nextArguments"`
}

// clientStep is one line that a client prints.
type clientStep struct {
	At    float64 `json:"at"` // unix milliseconds
	Event string  `json:"event"`
	How   string  `json:"how,omitempty"`
	OK    bool    `json:"ok,omitempty"`
}

func (s clientStep) time() time.Time { return time.UnixMicro(int64(s.At * 1000)) }

func sayStep(event, how string, ok bool) {
	line, err := json.Marshal(clientStep{
		At: float64(time.Now().UnixMicro()) / 1000, Event: event, How: how, OK: ok,
	})
	if err == nil {
		fmt.Println(string(line))
	}
}

// goClient is the official Go client: the same steps as drive.mjs.
func goClient(args []string) int {
	var c clientConfig
	if len(args) != 1 || json.Unmarshal([]byte(args[0]), &c) != nil {
		fmt.Fprintln(os.Stderr, "go-client: want one argument, the configuration as JSON")
		return 2
	}
	ctx, stop := context.WithCancelCause(context.Background())
	var once sync.Once
	client := mcp.NewClient(&mcp.Implementation{Name: "interop-go", Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(context.Context, *mcp.ProgressNotificationClientRequest) {
			once.Do(func() {
				sayStep("progress", "", true)
				if c.Event == "abort" {
					time.AfterFunc(time.Duration(c.AfterMS)*time.Millisecond, func() {
						sayStep("stop", "", true)
						stop(fmt.Errorf("the user pressed Stop"))
					})
				}
			})
		},
	})
	session, err := client.Connect(context.Background(), c.transport(), c.revision())
	if err != nil {
		fmt.Fprintln(os.Stderr, "go-client: connect:", err)
		return 1
	}
	sayStep("connected", session.InitializeResult().ProtocolVersion, true)
	if c.Event == "timeout" {
		var end context.CancelFunc
		ctx, end = context.WithTimeoutCause(ctx, time.Duration(c.TimeoutMS)*time.Millisecond, fmt.Errorf("time is up"))
		defer end()
	}
	params := &mcp.CallToolParams{Name: c.Tool, Arguments: c.Arguments}
	params.SetProgressToken("go-1")
	how, _ := goCall(ctx, session, params)
	sayStep("settled", how, true)
	another := func(event string) {
		limit, end := context.WithTimeoutCause(context.Background(), 20*time.Second, fmt.Errorf("20s"))
		defer end()
		how, ok := goCall(limit, session, &mcp.CallToolParams{Name: c.NextTool, Arguments: c.NextArguments})
		sayStep(event, how, ok)
	}
	another("next")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		another("later")
	}
	_ = session.Close()
	sayStep("closed", "", true)
	return 0
}

// transport is the way to the server: a child process or a URL.
func (c *clientConfig) transport() mcp.Transport {
	if c.URL != "" {
		return &mcp.StreamableClientTransport{Endpoint: c.URL}
	}
	cmd := exec.Command(c.Command, c.Args...)
	cmd.Stderr = os.Stderr
	cmd.Env = os.Environ()
	for k, v := range c.Env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	return &mcp.CommandTransport{Command: cmd}
}

// revision makes the client ask for the handshake's revisions only, if that is
// wanted; the SDK itself tries the newest first.
func (c *clientConfig) revision() *mcp.ClientSessionOptions {
	if c.Mode != "legacy" {
		return nil
	}
	return &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"}
}

func goCall(ctx context.Context, session *mcp.ClientSession, params *mcp.CallToolParams) (string, bool) {
	result, err := session.CallTool(ctx, params)
	if err != nil {
		return "error: " + err.Error(), false
	}
	text := "result: "
	if result.IsError {
		text = "isError: "
	}
	if len(result.Content) > 0 {
		if t, ok := result.Content[0].(*mcp.TextContent); ok {
			text += t.Text[:min(len(t.Text), 120)]
		}
	}
	return text, true
}
