package demo

import (
	"context"
	"os"
	"os/exec"
	"time"

	"github.com/belayhq/belay"
)

// parentRun is a shell with three children: a process, or a run of Belay.
type parentRun struct {
	lab  *lab
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
}

func (l *lab) startParent(script string) (*parentRun, error) {
	argv := []string{"sh", "-c", script}
	if l.under {
		argv = append([]string{l.self, "exec", "--grace", grace.String(), "--name", "parent", "--"}, argv...)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), l.env()...) // no pipes: the children would hold them open
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &parentRun{lab: l, cmd: cmd, done: make(chan struct{})}
	go func() { defer close(p.done); cmd.Wait() }()
	return p, nil
}

// stop presses Stop on the parent alone: as a terminal does it without Belay,
// and as `belay cancel` does it with Belay.
func (p *parentRun) stop() ([]belay.Receipt, error) {
	if !p.lab.under {
		return nil, p.cmd.Process.Signal(os.Interrupt)
	}
	ctx, end := context.WithTimeoutCause(context.Background(), patience, errNoReceipt)
	defer end()
	list, err := p.lab.mesh.List(ctx, belay.Filter{})
	if err != nil {
		return nil, err
	}
	var top belay.RunID
	for i := range list {
		if list[i].Parent.IsZero() {
			top = list[i].ID
		}
	}
	results, err := p.lab.mesh.Cancel(ctx, belay.CancelRequest{
		Filter:       belay.Filter{IDs: []belay.RunID{top}},
		Cancellation: belay.Cancellation{Cause: belay.CauseUser, Via: "demo", Reason: "the person pressed Stop"},
		Wait:         -1,
	})
	var receipts []belay.Receipt
	for _, r := range results {
		if r.Receipt != nil {
			receipts = append(receipts, *r.Receipt)
		}
	}
	return receipts, err
}

func (p *parentRun) end() {
	select {
	case <-p.done:
	case <-time.After(patience):
		p.cmd.Process.Kill()
		<-p.done
	}
}
