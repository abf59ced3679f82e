// Command client prompts an ACP agent once and prints what it does. Control-C is
// Stop: it ends the turn, says how it ended, and leaves the agent in order.
//
//	client -prompt "sleep 60" -- PATH-OF-AGENT ARGS…
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"time"

	"github.com/belayhq/belay/acp"
)

func main() {
	text := flag.String("prompt", "echo hello", "what to ask for")
	after := flag.Duration("stop-after", 0, "press Stop after this time; 0: only on Control-C")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "client: which agent?")
		os.Exit(2)
	}
	if err := run(*text, *after, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "client:", err)
		os.Exit(1)
	}
}

func run(text string, after time.Duration, argv []string) error {
	agent := exec.Command(argv[0], argv[1:]...)
	agent.Stderr = os.Stderr
	in, err := agent.StdinPipe()
	if err != nil {
		return err
	}
	out, err := agent.StdoutPipe()
	if err != nil {
		return err
	}
	if err := agent.Start(); err != nil {
		return err
	}
	c := acp.NewClient(acp.NewStdio(out, in), acp.ClientOptions{
		Info:              acp.Info{Name: "belay-example-client", Version: "1"},
		Update:            func(_ context.Context, _ string, update json.RawMessage) { fmt.Printf("update %s\n", update) },
		RequestPermission: allow,
	})
	err = turn(c, text, after)
	return errors.Join(err, c.Close(context.Background()), agent.Wait()) // the end of its input is the agent's end
}

func turn(c *acp.Client, text string, after time.Duration) error {
	ctx := context.Background()
	if _, err := c.Initialize(ctx); err != nil {
		return err
	}
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	session, err := c.NewSession(ctx, acp.SessionRequest{Cwd: dir})
	if err != nil {
		return err
	}
	stop, release := signal.NotifyContext(ctx, os.Interrupt)
	defer release()
	if after > 0 {
		var cancel context.CancelFunc
		stop, cancel = context.WithTimeout(stop, after)
		defer cancel()
	}
	// The end of stop is session/cancel, and Prompt returns with the agent's own end
	// of the turn, which is no error.
	end, err := c.Prompt(stop, session.Session, acp.Text(text))
	if err != nil {
		return err
	}
	fmt.Println("the turn has ended:", end.Reason)
	return nil
}

// allow says yes to everything. A real editor shows a dialog here, and takes it
// away when ctx ends: then the agent has been answered already.
func allow(_ context.Context, r *acp.Request) (acp.PermissionAnswer, error) {
	var asked struct {
		Options []acp.PermissionOption `json:"options"`
	}
	if err := r.Decode(&asked); err != nil {
		return acp.PermissionAnswer{}, err
	}
	for _, o := range asked.Options {
		if o.Allows() {
			return acp.PermissionAnswer{Option: o.ID}, nil
		}
	}
	return acp.PermissionAnswer{}, nil
}
