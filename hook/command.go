package hook

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/belayhq/belay/proc"
)

// maxOutput bounds what is kept of a command's output, and of a response.
const maxOutput = 4 << 10

// readersLimit is how long after the end of a command's tree its output may
// still be open: a process that was spared can hold it.
const readersLimit = 100 * time.Millisecond

// output keeps the beginning of what a command prints.
type output struct {
	mu   sync.Mutex
	kept []byte
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.kept = append(o.kept, p[:min(len(p), maxOutput-len(o.kept))]...)
	return len(p), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.TrimSpace(clean(strings.ToValidUTF8(string(o.kept), "?")))
}

// command runs the action's command to its end, or to that of ctx, and ends
// what it left behind. It returns the exit code and what was printed.
func (a *Action) command(ctx context.Context, args, env []string, label string) (code int, printed string, err error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, "", err
	}
	defer null.Close()
	tree, err := proc.Start(ctx, proc.Config{
		Path: args[0], Args: args[1:], Dir: a.Dir, Env: append(os.Environ(), env...), Label: label, Stdin: null,
	})
	if err != nil {
		return 0, "", err
	}
	var out output
	var readers sync.WaitGroup
	for _, f := range []*os.File{tree.Stdout(), tree.Stderr()} {
		readers.Go(func() { _, _ = io.Copy(&out, f) })
	}
	select {
	case <-tree.Done():
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	report, closed := tree.Close(context.WithoutCancel(ctx))
	slow := time.AfterFunc(readersLimit, func() { shut(tree) })
	readers.Wait()
	slow.Stop()
	shut(tree)
	switch {
	case err != nil:
		return 0, out.String(), err
	case closed != nil && len(report.Survivors) > 0:
		return 0, out.String(), fmt.Errorf("%d of its processes could not be ended: %w", len(report.Survivors), closed)
	}
	exit := tree.Exit()
	if exit.Signal != 0 || exit.Unknown {
		return 0, out.String(), fmt.Errorf("it ended by %s", exit)
	}
	return exit.Code, out.String(), nil
}

func shut(t *proc.Tree) {
	_ = t.Stdout().Close()
	_ = t.Stderr().Close()
}
