package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/belayhq/belay/internal/config"
	"github.com/belayhq/belay/internal/memcap"
	"github.com/belayhq/belay/script"
)

// The top level of a script may never end, and may take its process along. A worker
// that is asked for the list of tools has another process try them all: what dies or
// gets stuck there is refused, and the rest is tried by the next.

// tried is a line of that process: what came of one project.
type tried struct {
	Error string `json:"error"` // empty: it can be served
}

// trialStep is how long one project may take there: its top level has 5 s, and a
// builtin that no interrupt reaches a second more.
const trialStep = 10 * time.Second

// trialMemory bounds that process where the worker has no bound. Else it has half of
// the worker's: the two of them share what the system allows.
const trialMemory config.Size = 128 << 20

// try is that process.
func (c *scriptWorkerCmd) try(env *Env) error {
	out := json.NewEncoder(env.Stdout)
	for _, dir := range c.Dirs {
		line := tried{}
		if _, err := script.LoadFor(dir, c.EditorRoot != ""); err != nil {
			line.Error = err.Error()
		}
		if err := out.Encode(line); err != nil {
			return err
		}
	}
	return nil
}

// trial has another process try projects; see [script.CollectionOptions].
func (c *scriptWorkerCmd) trial(log *slog.Logger) func(context.Context, []string, func(int, error)) {
	memory := trialMemory
	if c.Memory > 0 {
		memory = c.Memory / 2
	}
	args := []string{"script-worker", "--try", "--memory", memory.String()}
	if c.EditorRoot != "" {
		args = append(args, "--editor-root", c.EditorRoot)
	}
	return func(ctx context.Context, dirs []string, said func(int, error)) {
		for done := 0; done < len(dirs) && ctx.Err() == nil; {
			n, err := tryThem(ctx, append(slices.Clip(args), append([]string{"--"}, dirs[done:]...)...), func(i int, err error) { said(done+i, err) })
			done += n
			switch {
			case done == len(dirs) || ctx.Err() != nil:
			case errors.Is(err, errTrialEnded):
				said(done, fmt.Errorf("load %s: %w: %w", dirs[done], script.ErrRegistration, err))
				done++
			default:
				log.Error("scripts could not be tried, and are not served", "error", err)
				return
			}
		}
	}
}

// errTrialEnded says what a top level did to the process.
var errTrialEnded = errors.New("its top level ended the process that tried it")

var errStuck = fmt.Errorf("nothing came of it for %s", trialStep)

// tryThem runs one process, and returns how many projects it has said something of.
func tryThem(ctx context.Context, args []string, said func(int, error)) (n int, err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	cmd := exec.CommandContext(ctx, self, args...)
	var stderr bytes.Buffer
	cmd.Stderr, cmd.WaitDelay = &stderr, time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	stuck := time.AfterFunc(trialStep, func() { end(errStuck) })
	defer stuck.Stop()
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		stuck.Reset(trialStep)
		var line tried
		if json.Unmarshal(lines.Bytes(), &line) != nil {
			break
		}
		var refused error
		if line.Error != "" {
			refused = errors.New(line.Error)
		}
		said(n, refused)
		n++
	}
	err = cmd.Wait()
	exit, died := errors.AsType[*exec.ExitError](err)
	switch {
	case errors.Is(context.Cause(ctx), errStuck):
		return n, fmt.Errorf("%w: %w", errTrialEnded, errStuck)
	case died && memcap.Died(exit.ExitCode(), stderr.Bytes()):
		return n, fmt.Errorf("%w: it ran out of memory", errTrialEnded)
	case died:
		return n, fmt.Errorf("%w: %w %.200s", errTrialEnded, exit, oneLine(strings.TrimSpace(stderr.String())))
	}
	return n, err
}
