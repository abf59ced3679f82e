package cli

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/belayhq/belay"
)

// What a terminal is told. The screen is cleared once and then written over:
// clearing it each time flickers, and fills the scrollback of some terminals.
const (
	clearScreen = "\x1b[H\x1b[2J"
	goHome      = "\x1b[H"
	clearLine   = "\x1b[K" // from the cursor on
	clearBelow  = "\x1b[J"
)

// screen shows the list on a terminal, anew when something happens and once a
// second for the ages, until ctx ends.
func (c *psCmd) screen(ctx context.Context, env *Env) error {
	const burst = 100 * time.Millisecond // what happens within it is one redraw
	changed := make(chan struct{}, 1)
	done := make(chan struct{})
	ctx, end := context.WithCancelCause(ctx)
	go func() {
		defer close(done)
		for _, err := range c.at.Watch(ctx, c.filter()) {
			if err != nil {
				continue // the list says it
			}
			select {
			case changed <- struct{}{}:
			default:
			}
		}
	}()
	defer func() { end(errDone); <-done }()
	before := clearScreen
	for {
		runs, err := c.list(ctx)
		if ctx.Err() != nil {
			return exitWith(ExitStopped)
		}
		if _, err := fmt.Fprint(env.Stdout, before, c.page(env, runs, err)); err != nil {
			return fmt.Errorf("print: %w", err)
		}
		before = goHome
		select {
		case <-ctx.Done():
			return exitWith(ExitStopped)
		case <-time.After(time.Second):
		case <-changed:
			time.Sleep(burst)
		}
	}
}

var errDone = fmt.Errorf("the command is over")

// page is what one screen shows: the list and the warnings, cut to the window.
func (c *psCmd) page(env *Env, runs []belay.Info, err error) string {
	st := styleOf(env.Stdout, env.Getenv) // each time: the window may have another size now
	var b bytes.Buffer
	switch {
	case len(runs) == 0 && err != nil && c.at.client != nil: // nobody knows; the warning says why
	case len(runs) == 0:
		b.WriteString("nothing is running\n")
	default:
		c.print(&b, st, runs, time.Now())
	}
	for _, one := range flatten(err) {
		b.WriteString(st.paint(warn, fit(oneLine(one.Error()), st.width)) + "\n")
	}
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	lines = cutLines(lines, st.height)
	return strings.Join(lines, clearLine+"\n") + clearLine + "\n" + clearBelow
}

// cutLines are as many lines as fit a window, with the last saying how many do not.
// A terminal that does not know its height (a serial line, some containers) is taken
// for one of 24 lines, as has been usual for fifty years.
func cutLines(lines []string, height int) []string {
	const usual = 24
	if height <= 0 {
		height = usual
	}
	most := max(height-1, 2)
	if len(lines) <= most {
		return lines
	}
	return append(lines[:most-1], fmt.Sprintf("… and %d lines more", len(lines)-most+1))
}
