package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/belayhq/belay/acp"
)

// sdkMarker is the first argument that turns this binary into an agent on
// package acp, which other people's clients drive.
const sdkMarker = "acp-library-agent"

// sdkAgent does the same work as peers/acp-sdk/agent.mjs.
func sdkAgent() int {
	agent := acp.NewAgent(acp.NewStdio(os.Stdin, os.Stdout), acp.AgentOptions{
		Info:     acp.Info{Name: "library-agent", Version: "1"},
		Versions: []int{acp.Version1, acp.Version2},
		NewSession: func(context.Context, *acp.SessionRequest) (*acp.SessionResult, error) {
			return &acp.SessionResult{Session: "s_1"}, nil
		},
		Prompt: sdkTurn,
		Options: acp.Options{Handler: func(ctx context.Context, r *acp.Request) (any, error) {
			switch r.Method() {
			case "_tick":
				return nil, sdkTick(ctx)
			case "_quick":
				return json.RawMessage(`{"done":true}`), nil
			}
			return nil, acp.MethodNotFound(r.Method())
		}},
	})
	<-agent.Done()
	if err := agent.Close(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "library agent:", err)
		return 1
	}
	return 0
}

func sdkTurn(ctx context.Context, turn *acp.Turn) (acp.StopReason, error) {
	if err := turn.Insert(""); err != nil {
		return "", err
	}
	if err := turn.Say("working"); err != nil {
		return "", err
	}
	switch turn.Text() {
	case "tick":
		return "", sdkTick(ctx)
	case "ask":
		_, err := turn.RequestPermission(ctx, acp.Permission{
			ToolCall: acp.ToolCall{ID: "tc_1", Title: "rm"},
			Options:  []acp.PermissionOption{{ID: "ok", Name: "Allow", Kind: "allow_once"}},
		})
		return acp.StopEndTurn, err
	}
	return acp.StopEndTurn, nil
}

// sdkTick writes to the witness until ctx ends.
func sdkTick(ctx context.Context) error {
	beat := time.NewTicker(20 * time.Millisecond)
	defer beat.Stop()
	for {
		f, err := os.OpenFile(os.Getenv("ACP_WITNESS"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(f, time.Now().UnixMilli())
		if closed := f.Close(); err != nil || closed != nil {
			return fmt.Errorf("witness: %w", err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-beat.C:
		}
	}
}
