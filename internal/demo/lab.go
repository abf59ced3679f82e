package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/faketool"
	"github.com/belayhq/belay/local"
)

// The times of the demo. The ladder is shorter than by default, so that the
// whole demo takes less than a minute.
const (
	watchFor  = 2500 * time.Millisecond // how long a tool is watched after a Stop
	stillness = 300 * time.Millisecond  // without a tick for so long it has stopped
	grace     = 700 * time.Millisecond
	killAfter = 500 * time.Millisecond
	patience  = 15 * time.Second // for anything that should come at once
)

// lab is where one side of a scene is played.
type lab struct {
	self    string // the belay binary, which is also the tool
	dir     string
	under   bool // with Belay in front
	flags   []string
	witness *faketool.Witness
	mesh    *local.Mesh
	client  *faketool.Client
}

func newLab(self, dir, name string, under bool, flags ...string) (*lab, error) {
	side := "bare"
	if under {
		side = "belay"
	}
	l := &lab{self: self, dir: filepath.Join(dir, name+"-"+side), under: under, flags: flags}
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return nil, err
	}
	l.witness = faketool.NewWitness(filepath.Join(l.dir, "witness"))
	l.mesh = local.NewMesh(local.MeshOptions{Dirs: []string{l.runtime()}})
	return l, nil
}

// runtime is a runtime directory of its own, so that the demo sees only itself.
func (l *lab) runtime() string { return filepath.Join(l.dir, "run") }

func (l *lab) env() []string {
	return []string{local.EnvDir + "=" + l.runtime(), local.EnvParent + "=", "BELAY_LOG=off"}
}

// command is the tool's command line, behind Belay if this side has it.
func (l *lab) command(tool ...string) []string {
	if !l.under {
		return tool
	}
	wrap := append([]string{l.self, "wrap", "--enforce", "strict", "--grace", grace.String(), "--kill-after", killAfter.String()}, l.flags...)
	return append(append(wrap, "--"), tool...)
}

// fake is the command line of a fake server that writes this lab's witness.
func (l *lab) fake(args ...string) []string {
	return append([]string{l.self, faketool.Marker, "server", "-life", "60s", "-witness", l.witness.Path}, args...)
}

// connect starts a server and opens a session with it.
func (l *lab) connect(tool []string) error {
	client, err := faketool.StartClient(l.command(tool...), faketool.ClientOptions{Env: l.env(), Stderr: io.Discard})
	if err != nil {
		return err
	}
	client.Timeout = patience
	l.client = client
	_, err = client.Initialize("2025-06-18")
	return err
}

func (l *lab) close() {
	if l.client != nil {
		l.client.Close()
		l.client = nil
	}
}

// work starts the tick tool under a key and waits until it works.
func (l *lab) work(id, key, more string) error {
	if err := l.client.Call(id, "tick", fmt.Sprintf(`{"key":%q,"n":1000,"ms":20%s}`, key, more), ""); err != nil {
		return err
	}
	_, err := l.witness.WaitCount(key, "tick", 5, patience)
	return err
}

// watch looks at a tool after a Stop: how long it went on, and whether it was
// still at it when the watch ended.
func (l *lab) watch(key string, stopped time.Time) (wentOn time.Duration, still bool) {
	end := stopped.Add(watchFor)
	for time.Now().Before(end) {
		last := l.witness.LastTick(key)
		if time.Since(last) > stillness && time.Since(stopped) > stillness {
			return max(0, last.Sub(stopped)), false
		}
		time.Sleep(20 * time.Millisecond)
	}
	return l.witness.LastTick(key).Sub(stopped), l.witness.StillTicking(key, stillness)
}

// alive counts the processes that wrote under a key and are still there.
func (l *lab) alive(key string) (n int) {
	for _, pid := range append(l.witness.Pids(key), l.witness.Pids(key+"/*")...) {
		if faketool.Alive(pid) {
			n++
		}
	}
	return n
}

// receipts waits for the final receipt of every run that was stopped and that
// want accepts.
func (l *lab) receipts(want func(*belay.Info) bool) ([]belay.Receipt, error) {
	ctx, end := context.WithTimeoutCause(context.Background(), patience, errNoReceipt)
	defer end()
	for {
		list, err := l.mesh.List(ctx, belay.Filter{Ended: true})
		if err != nil && len(list) == 0 {
			return nil, err
		}
		var receipts []belay.Receipt
		open := false
		for i := range list {
			if list[i].Cancellation == nil || !want(&list[i]) {
				continue
			}
			d, err := l.mesh.Get(ctx, list[i].ID)
			if err != nil || d.Receipt == nil || !d.Receipt.Final {
				open = true
				continue
			}
			receipts = append(receipts, *d.Receipt)
		}
		if !open && len(receipts) > 0 {
			return receipts, nil
		}
		select {
		case <-time.After(30 * time.Millisecond):
		case <-ctx.Done():
			return receipts, context.Cause(ctx)
		}
	}
}

var errNoReceipt = errors.New("no final receipt in time")

func isCall(i *belay.Info) bool { return i.Kind == belay.KindCall }

// answer is what the client was told for an id: nothing, an error, a result.
func (l *lab) answer(id string) string {
	answers := l.client.Responses(id)
	if len(answers) == 0 {
		return "nothing"
	}
	if e := answers[0].Error; e != nil {
		return fmt.Sprintf("error %d", e.Code)
	}
	return "a result"
}
