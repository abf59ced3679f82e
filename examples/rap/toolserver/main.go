// Command toolserver is a tool server of the Reactive Agent Protocol with two tools:
// one that runs a shell command, and one that asks its user first. It shows what an
// author has to do for Stop to work: hand the ctx of the call to whatever does the
// work, and return when that is over.
//
//	TOKEN=a-token-of-at-least-16-bytes toolserver
//
// It prints {"port":N} and serves there, on loopback.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/rap"
	"github.com/belayhq/belay/rap/schema"
)

func main() {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "toolserver:", err)
		os.Exit(1)
	}
}

var input = json.RawMessage(`{"type":"object","properties":{"command":{"type":"string","minLength":1}},"required":["command"]}`)

func serve() error {
	check, err := schema.Compile(input)
	if err != nil {
		return err
	}
	tools, err := rap.NewToolset(
		rap.Manifest{Name: "shell", Description: "Runs commands."},
		rap.Operation{Tool: rap.Tool{Name: "run", Description: "Runs a shell command.", InputSchema: input}, Check: check, Run: run},
		rap.Operation{Tool: rap.Tool{Name: "ask_and_run", Description: "Asks the user, then runs a shell command.", InputSchema: input}, Check: check, Run: askAndRun},
	)
	if err != nil {
		return err
	}
	// The same token is wanted for calls and for cancels.
	callers, err := rap.Bearer(map[string]string{os.Getenv("TOKEN"): "runtime"})
	if err != nil {
		return err
	}
	handler, err := rap.NewHandler(rap.HandlerOptions{Toolset: tools, Authenticator: callers, Timeout: time.Hour})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if at, ok := l.Addr().(*net.TCPAddr); ok {
		fmt.Printf("{\"port\":%d}\n", at.Port)
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	web := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- web.Serve(l) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	// Every call is stopped, its runtime is told, and what does not stop is named.
	brief, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err = handler.Close(brief, belay.Cancellation{Cause: belay.CauseShutdown, Reason: "the tool server ends"})
	return errors.Join(err, web.Shutdown(brief))
}

// run runs a command that ends with ctx. What a shell leaves running, this does not
// find: for that, start tools with Belay's package proc.
func run(ctx context.Context, j *rap.Job) (rap.Result, error) {
	var in struct {
		Command string `json:"command"`
	}
	if err := json.Unmarshal(j.Arguments(), &in); err != nil {
		return rap.Result{}, err
	}
	cmd := exec.CommandContext(ctx, "sh", "-c", "exec "+in.Command)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // asked first
	cmd.WaitDelay = 2 * time.Second                                       // killed then
	out := &output{job: j}
	cmd.Stdout, cmd.Stderr = out, out // the same: written to by one goroutine
	err := cmd.Run()
	if ctx.Err() != nil {
		return rap.Result{}, context.Cause(ctx)
	}
	if err != nil {
		return rap.Result{}, fmt.Errorf("%w: %s", err, out.text.String())
	}
	return rap.Result{Text: strings.TrimSpace(out.text.String())}, nil
}

// output is what a command has said so far: a Stop, whenever it comes, has that to
// show.
type output struct {
	job  *rap.Job
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.text.Write(p)
	o.job.Partial(strings.TrimSpace(o.text.String()))
	return n, err
}

// askAndRun stays pending while the user is asked. A Stop withdraws the question.
func askAndRun(ctx context.Context, j *rap.Job) (rap.Result, error) {
	i, err := j.Choose(ctx, "Run a command?", []string{"Yes", "No"}, 1)
	if err != nil {
		return rap.Result{}, err
	}
	if i != 0 {
		return rap.Result{}, fmt.Errorf("%w by the user; do something else", belay.ErrDeclined)
	}
	return run(ctx, j)
}
