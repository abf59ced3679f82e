package builtin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/belayhq/belay/stopack"
)

// Bounds of what may be asked of the tools.
const (
	maxSeconds = 600
	maxSteps   = 10_000
)

// Serve serves the tools on a pair of streams, as one stdio server, until in
// ends or ctx does; then it returns when no handler is left. For ctx to end it
// at once in must be an io.Closer; it is closed then. It may be called any
// number of times at once.
func Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	acks := stopack.New()
	from := &input{Reader: in, over: make(chan struct{})}
	server, err := newServer(acks, from.over)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = from.Close() })() // the end of the input ends the handlers
	err = server.Run(ctx, acks.Transport(&mcp.IOTransport{Reader: from, Writer: writeCloser(out)}))
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// Server returns a server of the tools for an HTTP handler, on which clients
// ask for acknowledgements.
func Server() (*mcp.Server, error) { return newServer(stopack.New(), nil) }

// newServer makes a server; over is closed when its caller is gone for good.
func newServer(acks *stopack.Acks, over <-chan struct{}) (*mcp.Server, error) {
	s := mcp.NewServer(&mcp.Implementation{Name: "belay-demo", Title: "Belay's demonstration tools", Version: "1.0.0"}, &mcp.ServerOptions{
		Instructions: "Tools that take their time, so that there is something to stop.",
	})
	harmless := &mcp.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true, OpenWorldHint: new(bool)}
	mcp.AddTool(s, &mcp.Tool{Name: "wait", Annotations: harmless, Description: "Waits for some seconds. Stops at once when it is cancelled."}, wait)
	mcp.AddTool(s, &mcp.Tool{Name: "count", Annotations: harmless, Description: "Counts step by step and reports progress. Stopped in between, it says how far it came."}, count)
	mcp.AddTool(s, &mcp.Tool{Name: "stubborn", Annotations: harmless, Description: "Waits for some seconds and ignores being cancelled, as badly written tools do."}, stubborn(over))
	return s, acks.Install(s)
}

// seconds is the input of wait and stubborn.
type seconds struct {
	Seconds float64 `json:"seconds,omitempty" jsonschema:"how long, at most 600; default 30"`
}

func (s seconds) duration() (time.Duration, error) {
	switch {
	case s.Seconds == 0:
		return 30 * time.Second, nil
	case s.Seconds < 0 || s.Seconds > maxSeconds:
		return 0, fmt.Errorf("seconds is %v; it must lie between 0 and %d", s.Seconds, maxSeconds)
	}
	return time.Duration(s.Seconds * float64(time.Second)), nil
}

func wait(ctx context.Context, _ *mcp.CallToolRequest, in seconds) (*mcp.CallToolResult, any, error) {
	d, err := in.duration()
	if err != nil {
		return nil, nil, err
	}
	began := time.Now()
	if err := sleep(ctx, d); err != nil {
		stopack.Partial(ctx, fmt.Sprintf("waited %.1f of %.1f seconds", time.Since(began).Seconds(), d.Seconds()))
		return nil, nil, err
	}
	return text("Waited %.1f seconds.", d.Seconds()), nil, nil
}

// stubborn ignores its context, but not the end of its server.
func stubborn(over <-chan struct{}) mcp.ToolHandlerFor[seconds, any] {
	return func(_ context.Context, _ *mcp.CallToolRequest, in seconds) (*mcp.CallToolResult, any, error) {
		d, err := in.duration()
		if err != nil {
			return nil, nil, err
		}
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-over:
			return nil, nil, errors.New("the server has ended")
		}
		return text("Waited %.1f seconds, whatever happened.", d.Seconds()), nil, nil
	}
}

// steps is the input of count.
type steps struct {
	To          int `json:"to,omitempty" jsonschema:"the last number, at most 10000; default 20"`
	Millisecond int `json:"pause_ms,omitempty" jsonschema:"the pause between two numbers in milliseconds, at most 60000; default 500"`
}

func count(ctx context.Context, req *mcp.CallToolRequest, in steps) (*mcp.CallToolResult, any, error) {
	if in.To == 0 {
		in.To = 20
	}
	if in.Millisecond == 0 {
		in.Millisecond = 500
	}
	if in.To < 0 || in.To > maxSteps || in.Millisecond < 0 || in.Millisecond > 60_000 {
		return nil, nil, fmt.Errorf("to must lie between 0 and %d, pause_ms between 0 and 60000", maxSteps)
	}
	token := req.Params.GetProgressToken()
	var list strings.Builder
	for n := 1; n <= in.To; n++ {
		if err := sleep(ctx, time.Duration(in.Millisecond)*time.Millisecond); err != nil {
			stopack.Partial(ctx, fmt.Sprintf("counted to %d of %d:%s", n-1, in.To, list.String()))
			return nil, nil, err
		}
		fmt.Fprintf(&list, " %d", n)
		if token != nil {
			_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
				ProgressToken: token, Progress: float64(n), Total: float64(in.To), Message: fmt.Sprintf("at %d", n),
			})
		}
	}
	return text("Counted to %d:%s", in.To, list.String()), nil, nil
}

// sleep waits, or returns why ctx has ended.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func text(format string, args ...any) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprintf(format, args...)}}}
}

// input notices the end of the caller, and lets the SDK close what can be
// closed, so that a read that waits comes back.
type input struct {
	io.Reader
	once sync.Once
	over chan struct{}
}

func (r *input) end() { r.once.Do(func() { close(r.over) }) }

func (r *input) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil {
		r.end()
	}
	return n, err
}

func (r *input) Close() error {
	r.end()
	if c, ok := r.Reader.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

type nopWriteCloser struct{ io.Writer }

func (nopWriteCloser) Close() error { return nil }

func writeCloser(w io.Writer) io.WriteCloser {
	if c, ok := w.(io.WriteCloser); ok {
		return c
	}
	return nopWriteCloser{w}
}
