// Command runtime calls one tool of a tool server, answers what it asks with yes, and
// stops it when it is interrupted.
//
//	TOKEN=… runtime [-stop-after 2s] BASE TOOL ARGUMENTS
//
// It says how the call ended and, if it was stopped, what is known of the work.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/rap"
)

func main() {
	after := flag.Duration("stop-after", 0, "stop the call then; 0: when interrupted")
	flag.Parse()
	if flag.NArg() != 3 {
		fmt.Fprintln(os.Stderr, "usage: runtime [-stop-after 2s] BASE TOOL ARGUMENTS")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if *after > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, *after)
		defer cancel()
	}
	if err := call(ctx, flag.Arg(0), flag.Arg(1), json.RawMessage(flag.Arg(2))); err != nil {
		fmt.Fprintln(os.Stderr, "runtime:", err)
		os.Exit(1)
	}
}

func call(ctx context.Context, base, tool string, arguments json.RawMessage) (err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	tree := belay.NewTree(belay.Options{})
	rt, err := rap.NewRuntime(rap.RuntimeOptions{
		Tree:     tree,
		Callback: "http://" + l.Addr().String(), // tool servers answer there
		Servers:  []rap.Server{{Name: "tools", Base: base, Sign: rap.BearerToken(os.Getenv("TOKEN")), ConfirmAfter: 5 * time.Second}},
		Events: rap.Events{Choice: func(_ context.Context, _ *rap.Pending, m *rap.UserChoice) (int, error) {
			fmt.Println("asked:", m.Prompt)
			return 0, nil // ctx would say when nobody wants the answer any more
		}},
	})
	if err != nil {
		return err
	}
	web := &http.Server{Handler: rt, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = web.Serve(l) }()
	defer func() {
		brief, end := context.WithTimeout(context.Background(), 5*time.Second)
		defer end()
		err = errors.Join(err, rt.Close(brief, belay.Cancellation{}), web.Shutdown(brief), tree.Close(brief))
	}()

	thread, err := rt.Open(rap.ThreadOptions{})
	if err != nil {
		return err
	}
	if err := thread.Load(ctx); err != nil {
		return err
	}
	pending, err := thread.Invoke(rap.CallOptions{Tool: tool, Arguments: arguments})
	if err != nil {
		return err
	}
	fmt.Println("thread", thread.ID(), "call", pending.ID())
	select {
	case <-pending.Done():
	case <-ctx.Done(): // Stop: the caller is settled at once, all servers are told
		pending.Run().Cancel(belay.Cancellation{Cause: belay.CauseUser, Reason: "stopped"})
	}
	result, err := pending.Result()
	if stopped := pending.Run().Cancellation(); stopped != nil {
		receipt, err := pending.Run().Wait(context.Background())
		if err != nil {
			return err
		}
		fmt.Printf("stopped; its work: %s, %s\n", pending.Run().Info().Work, receipt.Verdict)
		if receipt.Partial != "" {
			fmt.Println("what it had:", receipt.Partial)
		}
		return nil
	}
	if err != nil {
		return err
	}
	for _, item := range result.Items() {
		fmt.Println(item.Text)
	}
	return nil
}
