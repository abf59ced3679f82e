package acp_test

import (
	"context"

	"github.com/belayhq/belay/acp"
)

// testAgent is an agent whose turns are what prompt says; nil: they end at once.
func testAgent(prompt func(context.Context, *acp.Turn) (acp.StopReason, error)) acp.AgentOptions {
	if prompt == nil {
		prompt = func(context.Context, *acp.Turn) (acp.StopReason, error) { return acp.StopEndTurn, nil }
	}
	return acp.AgentOptions{
		Info: acp.Info{Name: "test-agent", Version: "1"},
		NewSession: func(context.Context, *acp.SessionRequest) (*acp.SessionResult, error) {
			return &acp.SessionResult{Session: "s_1"}, nil
		},
		Prompt: prompt,
	}
}
