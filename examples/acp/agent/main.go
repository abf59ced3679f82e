// Command agent is an ACP agent that runs the shell command it is prompted with.
// It shows what an author has to do for Stop to work: hand the ctx of the turn to
// whatever does the work. Editors start it by its path.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/belayhq/belay/acp"
)

func main() {
	agent := acp.NewAgent(acp.NewStdio(os.Stdin, os.Stdout), acp.AgentOptions{
		Info:         acp.Info{Name: "belay-example-agent", Version: "1"},
		Versions:     []int{1, 2},
		Capabilities: json.RawMessage(`{"sessionCapabilities":{"close":{}}}`),
		NewSession:   newSession,
		CloseSession: func(context.Context, string) error { return nil },
		Prompt:       prompt,
	})
	<-agent.Done() // the editor closed our standard input, or is gone
	if err := agent.Close(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err) // names what has not stopped
		os.Exit(1)
	}
}

func newSession(_ context.Context, s *acp.SessionRequest) (*acp.SessionResult, error) {
	return &acp.SessionResult{Session: "session-of-" + s.Cwd}, nil
}

// prompt is one turn. Its ctx ends when the user presses Stop, when the session is
// closed, and when the editor goes away.
func prompt(ctx context.Context, turn *acp.Turn) (acp.StopReason, error) {
	if err := turn.Insert(""); err != nil { // v2 wants to know that the work begins; in v1 it is nothing
		return "", err
	}
	call := acp.ToolCall{ID: "call-1", Title: turn.Text(), Kind: "execute", Status: "pending"}
	if err := turn.ToolCall(call); err != nil {
		return "", err
	}
	yes := acp.PermissionOption{ID: "yes", Name: "Run it", Kind: "allow_once"}
	no := acp.PermissionOption{ID: "no", Name: "Do not", Kind: "reject_once"}
	answer, err := turn.RequestPermission(ctx, acp.Permission{ToolCall: call, Options: []acp.PermissionOption{yes, no}})
	if err != nil {
		return "", err // among others: Stop was pressed while the user was being asked
	}
	if answer.Option != yes.ID {
		return acp.StopRefusal, turn.ToolCall(acp.ToolCall{ID: call.ID, Status: "failed"})
	}
	out, err := run(ctx, turn.Text())
	if err != nil {
		_ = turn.ToolCall(acp.ToolCall{ID: call.ID, Status: "failed"})
		return "", err // after a Stop the editor reads "cancelled", whatever this is
	}
	if err := turn.ToolCall(acp.ToolCall{ID: call.ID, Status: "completed"}); err != nil {
		return "", err
	}
	return acp.StopEndTurn, turn.Say(out)
}

// run runs a command that ends with ctx. What a shell leaves running, this does not
// find: for that, start tools with Belay's package proc, or the whole agent under
// "belay acp".
func run(ctx context.Context, command string) (string, error) {
	cmd := exec.CommandContext(ctx, "sh", "-c", "exec "+command)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return strings.TrimSpace(out.String()), err
}
