package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/belayhq/belay/script"
	"github.com/belayhq/belay/script/worker"
)

// scriptWorkerCmd is for Belay itself, which starts it like any tool server on
// stdio; see package script/worker.
type scriptWorkerCmd struct {
	Grace           time.Duration `default:"2s" help:"Time between the Stop and the interrupt."`
	KillAfter       time.Duration `default:"5s" help:"Time between the Stop and the end of the interpreter."`
	AllowHost       []string      `placeholder:"HOST" sep:"none" help:"A host that scripts may connect to."`
	AutoApprove     bool          `help:"Tools that permit it need no approval."`
	ApprovalTimeout time.Duration `default:"10m" help:"How long a person may take to answer."`
	AtOnce          int           `default:"8" help:"Calls of one tool at once."`
	Dirs            []string      `arg:"" name:"dir" type:"path" help:"A project, or a folder of projects."`
}

// Run serves one client on standard input and output.
func (c *scriptWorkerCmd) Run(env *Env) error {
	log := newLog(env)
	o := worker.Options{
		Collection: script.OpenCollection(script.CollectionOptions{Dirs: c.Dirs, Log: log}),
		Grace: c.Grace, KillAfter: c.KillAfter, AutoApprove: c.AutoApprove, AtOnce: c.AtOnce, AskTimeout: c.ApprovalTimeout, Log: log,
	}
	if len(c.AllowHost) > 0 {
		o.Network = &script.Network{Hosts: c.AllowHost}
	}
	w := worker.New(o)
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM)
	defer signal.Stop(signals)
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		for {
			select {
			case <-signals:
				w.Interrupt()
			case <-ended:
				return
			}
		}
	}()
	return w.Serve(context.Background(), env.Stdin, env.Stdout)
}
