package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"strings"
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
	Mode          string            `json:"mode"` // legacy, auto; "" = the SDK's default
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
	cmd := exec.Command(c.Command, c.Args...)
	cmd.Stderr = os.Stderr
	cmd.Env = os.Environ()
	for k, v := range c.Env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	session, err := client.Connect(context.Background(), &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		fmt.Fprintln(os.Stderr, "go-client: connect:", err)
		return 1
	}
	sayStep("connected", "", true)
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

// tickArgs are the arguments of the Go server's tools.
type tickArgs struct {
	Key string `json:"key,omitempty"`
	N   int    `json:"n,omitempty"`
	MS  int    `json:"ms,omitempty"`
}

// goServer is a server on the official Go SDK, for both eras. args[0] is the
// witness file.
func goServer(args []string) int {
	if len(args) != 1 {
		fmt.Fprintln(os.Stderr, "go-server: want one argument, the witness file")
		return 2
	}
	file, err := os.OpenFile(args[0], os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		fmt.Fprintln(os.Stderr, "go-server:", err)
		return 1
	}
	write := func(key, name, detail string) {
		line := strings.TrimSpace(fmt.Sprintf("%d %d %s %s %s", time.Now().UnixNano(), os.Getpid(), key, name, detail))
		_, _ = io.WriteString(file, line+"\n")
	}
	write("server", "start", "")
	server := mcp.NewServer(&mcp.Implementation{Name: "tick-go", Version: "1.0.0"}, nil)
	tick := func(listens bool) mcp.ToolHandlerFor[tickArgs, any] {
		return func(ctx context.Context, req *mcp.CallToolRequest, a tickArgs) (*mcp.CallToolResult, any, error) {
			write(a.Key, "start", "")
			defer context.AfterFunc(ctx, func() { write(a.Key, "signal", context.Cause(ctx).Error()) })()
			for i := 1; i <= a.N; i++ {
				time.Sleep(time.Duration(a.MS) * time.Millisecond)
				if listens && ctx.Err() != nil {
					write(a.Key, "stopped", "")
					return nil, nil, context.Cause(ctx)
				}
				write(a.Key, "tick", fmt.Sprint(i))
				if token := req.Params.GetProgressToken(); token != nil {
					_ = req.Session.NotifyProgress(context.WithoutCancel(ctx),
						&mcp.ProgressNotificationParams{ProgressToken: token, Progress: float64(i), Total: float64(a.N)})
				}
			}
			write(a.Key, "done", "")
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done"}}}, nil, nil
		}
	}
	mcp.AddTool(server, &mcp.Tool{Name: "tick", Description: "ticks and listens"}, tick(true))
	mcp.AddTool(server, &mcp.Tool{Name: "deaf", Description: "ticks and does not listen"}, tick(false))
	mcp.AddTool(server, &mcp.Tool{Name: "echo", Description: "returns its arguments"},
		func(_ context.Context, _ *mcp.CallToolRequest, a map[string]any) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprint(a)}}}, nil, nil
		})
	if err := server.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		log.Println("go-server:", err)
	}
	return 0
}
