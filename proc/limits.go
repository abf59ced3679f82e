package proc

import (
	"context"
	"fmt"
	"strings"
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

// survivorsError names who is left, nil when nobody is. unseen is set when the
// last look failed, so that nothing can be said about anybody.
func survivorsError(ctx context.Context, r Report, unseen error) error {
	if r.Gone {
		return nil
	}
	if len(r.Survivors) == 0 && unseen != nil {
		return fmt.Errorf("whether %w could not be seen: %w: %w", ErrSurvivors, unseen, context.Cause(ctx))
	}
	var names []string
	for _, p := range r.Survivors[:min(len(r.Survivors), 5)] {
		names = append(names, fmt.Sprintf("%s (pid %d)", p.Comm, p.PID))
	}
	if len(r.Survivors) > 5 {
		names = append(names, "...")
	}
	return fmt.Errorf("%d %w: %s: %w", len(r.Survivors), ErrSurvivors, strings.Join(names, ", "), context.Cause(ctx))
}
