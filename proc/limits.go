package proc

import (
	"context"
	"fmt"
	"time"
)

const (
	// endGrace lies between SIGTERM and SIGKILL at Belay's own end (DESIGN
	// section 12).
	endGrace = 500 * time.Millisecond
	// killLimit bounds a Kill whose context has no deadline: a process in an
	// uninterruptible sleep can outlast any patience.
	killLimit = 10 * time.Second
	// closeKill bounds the killing part of Close.
	closeKill = 5 * time.Second
)

// withKillLimit gives ctx a deadline if it has none.
func withKillLimit(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, killLimit, fmt.Errorf("gave up after %v", killLimit))
}

// survivorsError names who is left, nil when nobody is.
func survivorsError(ctx context.Context, r Report) error {
	if r.Gone {
		return nil
	}
	names := ""
	for i, p := range r.Survivors {
		if i == 5 {
			names += ", ..."
			break
		}
		names += fmt.Sprintf(", %s (pid %d)", p.Comm, p.PID)
	}
	if names != "" {
		names = names[2:]
	}
	return fmt.Errorf("%d %w: %s: %w", len(r.Survivors), ErrSurvivors, names, context.Cause(ctx))
}
