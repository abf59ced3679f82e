package cli

import (
	"flag"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"github.com/belayhq/belay/internal/fakeagent"
	"github.com/belayhq/belay/internal/faketool"
	"github.com/belayhq/belay/proc"
)

// TestMain makes the test binary the programs that scripts run: belay itself,
// hold, which is some other Belay process with runs in it, and the fake tools and
// agents.
func TestMain(m *testing.M) {
	proc.Main() // never returns in a guardian
	faketool.MaybeRun()
	fakeagent.MaybeRun()
	if len(os.Args) > 2 && os.Args[1] == "editor" {
		os.Exit(playEditor(os.Args[2:]))
	}
	_ = flag.Set("test.parallel", "4") // most of the time of a test is somebody's grace period
	testscript.Main(leakFree{m}, map[string]func(){
		"belay": func() { os.Exit(Main(os.Args[1:], os.Getenv, os.Stdin, os.Stdout, os.Stderr)) },
		"hold":  func() { os.Exit(hold(os.Args[1:])) },
	})
}

// leakFree fails the package if a goroutine is left at its end.
type leakFree struct{ m *testing.M }

// Run implements testscript.TestingM.
func (l leakFree) Run() int {
	if signal.Ignored(syscall.SIGINT) {
		// A shell's background job, as a CI may be. What inherits that goes on
		// through a Ctrl-C, on purpose; it is not inherited where it is caught.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGINT)
	}
	code := l.m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			println(err.Error())
			return 1
		}
	}
	return code
}
