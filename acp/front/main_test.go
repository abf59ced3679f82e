package front_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/belayhq/belay/internal/cli"
	"github.com/belayhq/belay/internal/faketool"
	"github.com/belayhq/belay/mcp/httpclient"
	"github.com/belayhq/belay/proc"
)

// TestMain makes the test binary the programs that an editor and its agent start:
// belay acp and belay wrap, their guardians, the agent, and fake servers.
func TestMain(m *testing.M) {
	proc.Main() // never returns in a guardian
	faketool.MaybeRun()
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "acp", "wrap", "ps", "script-worker", "approvals":
			os.Exit(cli.Main(os.Args[1:], os.Getenv, os.Stdin, os.Stdout, os.Stderr))
		case agentMarker:
			os.Exit(agentMain())
		}
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		httpclient.CloseIdleConnections()
		if code == 0 {
			if err := goleak.Find(); err != nil {
				println(err.Error())
				code = 1
			}
		}
		os.Exit(code)
	}))
}
