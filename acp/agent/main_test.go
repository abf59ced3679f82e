//go:build linux

package agent

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/belayhq/belay/internal/faketool"
	"github.com/belayhq/belay/proc"
)

// TestMain makes the test binary an agent, a Belay in front of an MCP server, and
// the fake tools.
func TestMain(m *testing.M) {
	proc.Main() // never returns in a guardian
	faketool.MaybeRun()
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "agent":
			playAgent()
		case "wrap":
			playWrap(os.Args[2:])
		}
	}
	goleak.VerifyTestMain(m)
}

// order is what an agent of these tests is told: to start a command.
type order struct {
	Argv   []string
	Setsid bool
}

// playAgent starts what it is told, one JSON line each, says the pid, and reaps. It
// ends with its input.
func playAgent() {
	time.AfterFunc(2*time.Minute, func() { os.Exit(9) })
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var o order
		if err := json.Unmarshal(in.Bytes(), &o); err != nil {
			fmt.Println("error", err)
			continue
		}
		cmd := exec.Command(o.Argv[0], o.Argv[1:]...)
		if o.Setsid {
			cmd.SysProcAttr = setsid()
		}
		if err := cmd.Start(); err != nil {
			fmt.Println("error", err)
			continue
		}
		go func() { _ = cmd.Wait() }()
		fmt.Println("pid", cmd.Process.Pid)
	}
	os.Exit(0)
}

// playWrap is a Belay before a server: it starts the server and waits for it.
func playWrap(argv []string) {
	cmd := exec.Command(argv[0], argv[1:]...)
	if err := cmd.Run(); err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

func setsid() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
