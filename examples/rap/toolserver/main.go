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
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/proc"
	"github.com/belayhq/belay/rap"
	"github.com/belayhq/belay/rap/schema"
)

func main() {
	proc.Main() // this binary again, as the guardian of a command
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

// run runs a command with everything that comes from it, and returns when nothing of
// that is left: then a stopped call may be said to have ended.
func run(ctx context.Context, j *rap.Job) (rap.Result, error) {
	var in struct {
		Command string `json:"command"`
	}
	if err := json.Unmarshal(j.Arguments(), &in); err != nil {
		return rap.Result{}, err
	}
	tree, err := proc.Start(ctx, proc.Config{Path: "sh", Args: []string{"-c", "exec 2>&1\n" + in.Command}, Label: j.Run().ID().String()})
	if err != nil {
		return rap.Result{}, err
	}
	out := &output{job: j}
	read := make(chan struct{})
	go func() { // it ends when nobody holds the other end any more
		defer close(read)
		_, _ = io.Copy(out, tree.Stdout())
	}()
	defer func() {
		_ = tree.Stdout().Close()
		<-read
		_ = tree.Stderr().Close()
	}()
	_ = tree.Stdin().Close()
	select {
	case <-tree.Done(): // what it has left behind ends, too
	case <-ctx.Done():
		asked, end := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		_, _ = tree.Terminate(asked, proc.Selection{}, time.Second)
		end()
	}
	report, err := tree.Close(context.WithoutCancel(ctx)) // whoever is left is killed
	if err != nil || len(report.Survivors) > 0 {
		return rap.Result{}, fmt.Errorf("%w: %d processes are left", rap.ErrUnproven, len(report.Survivors))
	}
	<-read
	text := out.String()
	switch exit := tree.Exit(); {
	case ctx.Err() != nil:
		return rap.Result{}, context.Cause(ctx)
	case exit.Code != 0:
		return rap.Result{}, fmt.Errorf("the command ended with %v: %s", exit, text)
	}
	return rap.Result{Text: text}, nil
}

// output is what a command has said so far: a Stop, whenever it comes, has that to
// show.
type output struct {
	job  *rap.Job
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.text.Write(p)
	o.job.Partial(o.String())
	return n, err
}

func (o *output) String() string { return strings.TrimSpace(o.text.String()) }

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
