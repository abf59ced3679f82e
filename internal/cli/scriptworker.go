package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/belayhq/belay/internal/config"
	"github.com/belayhq/belay/internal/memcap"
	"github.com/belayhq/belay/script"
	"github.com/belayhq/belay/script/worker"
)

// scriptWorkerCmd is for Belay itself, which starts it like any tool server on
// stdio; see package script/worker.
type scriptWorkerCmd struct {
	Grace           time.Duration            `default:"2s" help:"Time between the Stop and the interrupt."`
	KillAfter       time.Duration            `default:"5s" help:"Time between the Stop and the end of the interpreter."`
	ToolGrace       map[string]time.Duration `placeholder:"TOOL=DURATION" help:"--grace of a single tool."`
	ToolKillAfter   map[string]time.Duration `placeholder:"TOOL=DURATION" help:"--kill-after of a single tool."`
	AllowHost       []string                 `placeholder:"HOST" sep:"none" help:"A host that scripts may connect to."`
	AutoApprove     bool                     `help:"Tools that permit it need no approval."`
	ApprovalTimeout time.Duration            `default:"10m" help:"How long a person may take to answer."`
	AtOnce          int                      `default:"8" help:"Calls of one tool at once."`
	Memory          config.Size              `default:"0" placeholder:"SIZE" help:"What the process may use; 0: no bound."`
	CPU             time.Duration            `name:"cpu" default:"0s" help:"Running time of one call's interpreter; 0: no bound."`
	EditorRoot      string                   `type:"path" placeholder:"DIR" help:"The folder that tools for the editor work on."`
	EditorWrite     bool                     `help:"They may change it."`
	Test            bool                     `help:"Tests of scripts are listed, and can be called."`
	Try             bool                     `help:"Only run the top level of each project, and say which can be served."`
	Dirs            []string                 `arg:"" name:"dir" type:"path" help:"A project, or a folder of projects."`
}

// Run serves one client on standard input and output.
func (c *scriptWorkerCmd) Run(env *Env) error {
	if c.Memory > 0 {
		defer memcap.Cap(int64(c.Memory), nil)() // before anybody else's code
	}
	if c.Try {
		return c.try(env)
	}
	log := newLog(env)
	o := worker.Options{
		Grace: c.Grace, KillAfter: c.KillAfter, ToolGrace: c.ToolGrace, ToolKillAfter: c.ToolKillAfter,
		AutoApprove: c.AutoApprove, AskTimeout: c.ApprovalTimeout, AtOnce: c.AtOnce, CPU: c.CPU, Test: c.Test, Log: log,
	}
	if len(c.AllowHost) > 0 {
		o.Network = &script.Network{Hosts: c.AllowHost}
	}
	if c.EditorRoot != "" {
		editor, err := script.OpenEditor(c.EditorRoot, c.EditorWrite)
		if err != nil { // which keeps no other tool from being served
			log.Error("tools for the editor are not served", "error", err)
		} else {
			o.Editor = editor
			defer editor.Close()
		}
	}
	tools := script.CollectionOptions{Dirs: c.Dirs, Editor: o.Editor != nil, Log: log}
	if !c.Test { // which hears of tests by a trial here, of one project
		tools.Try = c.trial(log)
	}
	o.Collection = script.OpenCollection(tools)
	w := worker.New(o)
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM)
	defer signal.Stop(signals)
	ended, heard := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(heard)
		for {
			select {
			case <-signals:
				w.Interrupt()
			case <-ended:
				return
			}
		}
	}()
	err := w.Serve(context.Background(), env.Stdin, env.Stdout)
	close(ended)
	<-heard
	return err
}
