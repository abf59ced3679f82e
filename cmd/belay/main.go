// Command belay stands between AI agents and their tools: when anyone presses
// Stop, the work really stops. See "belay --help".
package main

import (
	"os"

	"github.com/belayhq/belay/internal/cli"
	"github.com/belayhq/belay/internal/faketool"
	"github.com/belayhq/belay/proc"
)

func main() {
	proc.Main()         // never returns in a guardian
	faketool.MaybeRun() // nor here in a tool of the demo
	os.Exit(cli.Main(os.Args[1:], os.Getenv, os.Stdin, os.Stdout, os.Stderr))
}
