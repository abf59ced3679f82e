package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/belayhq/belay/script"
	"github.com/belayhq/belay/stopack"
)

// DefaultAtOnce is how many calls of one tool may run at once (AT-88).
const DefaultAtOnce = 8

// Options say what a worker serves, and how. One of Collection and Tools is required.
type Options struct {
	Collection *script.Collection // as it changes (AT-86)
	Tools      []*script.Tool     // with different ids
	Grace      time.Duration      // see [script.Options]
	KillAfter  time.Duration

	// ToolGrace and ToolKillAfter are the same of single tools, by id.
	ToolGrace     map[string]time.Duration
	ToolKillAfter map[string]time.Duration

	AutoApprove bool
	CPU         time.Duration   // of one call's interpreter; 0: no bound
	Network     *script.Network // where scripts may connect to; nil: nowhere
	Editor      *script.Editor  // the folder of tools that are for the editor only; nil: none (AT-44)
	Test        bool            // tests of scripts are listed, and can be called
	AtOnce      int             // calls of one tool at once; 0: DefaultAtOnce
	AskTimeout  time.Duration   // for an answer to a dialog; 0: 10 min (AT-61)
	Log         *slog.Logger    // the scripts' console; nil: nothing
}

// Worker serves tools. Its methods are safe for concurrent use.
type Worker struct {
	o    Options
	acks *stopack.Acks

	mu      sync.Mutex
	running map[*script.Call]struct{}
	at      map[string]int // calls that run, by tool
	calls   sync.WaitGroup // the same
}

// New returns a worker that serves nobody yet.
func New(o Options) *Worker {
	if o.AtOnce <= 0 {
		o.AtOnce = DefaultAtOnce
	}
	if o.AskTimeout <= 0 {
		o.AskTimeout = 10 * time.Minute
	}
	return &Worker{o: o, acks: stopack.New(), running: make(map[*script.Call]struct{}), at: make(map[string]int)}
}

// Serve serves one client until in ends or ctx does, and returns when no script
// runs any more. For ctx to end it at once in must be an io.Closer.
func (w *Worker) Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	server := mcp.NewServer(&mcp.Implementation{Name: "belay-scripts", Title: "Scripted tools", Version: "1.0.0"}, &mcp.ServerOptions{
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{ListChanged: true}}, // there may be no tool yet
	})
	for _, tool := range w.o.Tools {
		server.AddTool(w.entry(tool), w.handler(tool))
	}
	if w.o.Collection != nil {
		shop := w.open(server)
		defer shop.close()
	}
	if err := w.acks.Install(server); err != nil {
		return fmt.Errorf("serve scripts: %w", err)
	}
	questions := &inquiries{}
	if err := questions.install(server); err != nil {
		return fmt.Errorf("serve scripts: %w", err)
	}
	err := server.Run(ctx, w.acks.Transport(questions.transport(silent{&mcp.IOTransport{Reader: readCloser(in), Writer: writeCloser(out)}})))
	w.calls.Wait() // their contexts have ended with the connection
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// entry is what the list of tools says of one.
func (w *Worker) entry(tool *script.Tool) *mcp.Tool {
	return &mcp.Tool{
		Name: tool.Manifest.ID, Title: tool.Manifest.DisplayName, Description: tool.Manifest.Description,
		InputSchema: json.RawMessage(tool.Schema()), Meta: w.testMeta(tool),
	}
}

// Interrupt ends the grace period of every call that was stopped.
func (w *Worker) Interrupt() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for call := range w.running {
		call.Interrupt()
	}
}

// or is what is said of a tool, or else of all.
func or(of map[string]time.Duration, tool *script.Tool, all time.Duration) time.Duration {
	if own, ok := of[tool.Manifest.ID]; ok {
		return own
	}
	return all
}

// errCancelled is what the SDK makes an answer of that nobody reads, and by which the
// acknowledgement says that the work was broken off.
var errCancelled = fmt.Errorf("cancelled: %w", context.Canceled)

// errLate is what a call answers whose script came to a result of its own after the
// Stop, which is dropped: the receipt counts the answer.
var errLate = fmt.Errorf("cancelled, its result is dropped: %w", context.Canceled)

func (w *Worker) handler(tool *script.Tool) mcp.ToolHandler {
	return func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		tool := current(ctx, tool)
		if tool == nil { // it has left a moment ago
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("unknown tool %q", req.Params.Name)}
		}
		var telling sync.WaitGroup // the acknowledgement follows what was handed back
		defer telling.Wait()
		params := []byte(req.Params.Arguments)
		if len(params) == 0 {
			params = []byte("{}")
		}
		call, err := tool.Call(params, script.Options{
			Grace: or(w.o.ToolGrace, tool, w.o.Grace), KillAfter: or(w.o.ToolKillAfter, tool, w.o.KillAfter), AutoApprove: w.o.AutoApprove, CPU: w.o.CPU, Network: w.o.Network,
			Test: w.rehearsal(req), Editor: w.o.Editor,
			Hooks: script.Hooks{
				Report: w.reporter(ctx, req),
				Log:    w.logger(tool),
				Ask:    w.asker(ctx, req, w.logger(tool)),
				Cancelled: func(message string, partial bool) {
					if partial {
						telling.Go(func() { stopack.HandBack(ctx, message) })
					}
				},
			},
		})
		if err != nil {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: err.Error()}
		}
		if !w.enter(tool, call) {
			return result(script.Result{Assistant: []script.Part{{Text: script.TextBusy}}}), nil
		}
		defer w.leave(tool, call)
		ended := call.Run(ctx)
		stopack.Ended(ctx, string(ended.Ending))
		if ended.Cancelled {
			if ended.Late {
				return nil, errLate
			}
			return nil, errCancelled
		}
		return concluded(&ended), nil
	}
}

// enter takes a place for a call, if its tool has one free.
func (w *Worker) enter(tool *script.Tool, call *script.Call) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.at[tool.Manifest.ID] >= w.o.AtOnce {
		return false
	}
	w.at[tool.Manifest.ID]++
	w.calls.Add(1)
	w.running[call] = struct{}{}
	return true
}

func (w *Worker) leave(tool *script.Tool, call *script.Call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at[tool.Manifest.ID]--
	w.calls.Done()
	delete(w.running, call)
}

// reporter turns reports into progress, for a caller who wants to know.
func (w *Worker) reporter(ctx context.Context, req *mcp.CallToolRequest) func(message, id string) {
	token := req.Params.GetProgressToken()
	if token == nil {
		return nil
	}
	steps := 0.0
	return func(message, id string) {
		steps++
		_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
			Meta: mcp.Meta{metaReport: id}, ProgressToken: token, Message: message, Progress: steps,
		})
	}
}

// metaReport is the member of _meta that says which report it is: one with the same
// id takes its place (AT-54).
const metaReport = "io.github.belayhq/report"

func (w *Worker) logger(tool *script.Tool) func(level, message string) {
	if w.o.Log == nil {
		return nil
	}
	log := w.o.Log.With("tool", tool.Manifest.ID)
	return func(level, message string) {
		at := slog.LevelInfo
		switch level {
		case "debug":
			at = slog.LevelDebug
		case "warn":
			at = slog.LevelWarn
		case "error":
			at = slog.LevelError
		}
		log.Log(context.Background(), at, message)
	}
}

// result is a tool's result in MCP's words (AT-71).
func result(r script.Result) *mcp.CallToolResult {
	out := &mcp.CallToolResult{IsError: !r.Success}
	add := func(parts []script.Part, to mcp.Role) {
		for _, p := range parts {
			audience := &mcp.Annotations{Audience: []mcp.Role{to}}
			if p.Image != nil {
				out.Content = append(out.Content, &mcp.ImageContent{Data: p.Image, MIMEType: p.MIMEType, Annotations: audience})
				continue
			}
			out.Content = append(out.Content, &mcp.TextContent{Text: p.Text, Annotations: audience})
		}
	}
	if len(r.Assistant) == 0 {
		r.Assistant = []script.Part{{}}
	}
	add(r.Assistant, "assistant")
	add(r.User, "user")
	return out
}

type nopWriteCloser struct{ io.Writer }

func (nopWriteCloser) Close() error { return nil }

func writeCloser(w io.Writer) io.WriteCloser {
	if c, ok := w.(io.WriteCloser); ok {
		return c
	}
	return nopWriteCloser{w}
}

func readCloser(r io.Reader) io.ReadCloser {
	if c, ok := r.(io.ReadCloser); ok {
		return c
	}
	return io.NopCloser(r)
}
