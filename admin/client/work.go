package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/belayhq/belay"
)

// ErrNotReported says that work has ended, but that the server did not take the
// report of it: it goes on believing in the run until the lease runs out.
var ErrNotReported = errors.New("the end of the work could not be reported")

// Hold does work as a run of the server's: registered before it starts, kept
// alive while it lasts, and reported when it has returned, which is the proof that
// it has ended. The context that work gets ends when the run, or one above it, is
// stopped, with the *[belay.Cancellation] as its cause; the lease is there for its
// id, below which other runs hang.
//
// Hold returns what work returns, except that work which fails after a Stop
// yields an error that wraps the cancellation, and that [ErrNotReported] stands
// beside it if the report failed. Work that fails with [belay.ErrDeclined] is
// declined. If ctx has ended or the run is refused, work is not called.
func (c *Client) Hold(ctx context.Context, r Registration, work func(context.Context, *Lease) error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%.64q was not started: %w", r.Name, context.Cause(ctx))
	}
	lease, err := c.Register(ctx, r)
	if err != nil {
		return fmt.Errorf("%.64q was not started: %w", r.Name, err)
	}
	held, release := lease.Hold(ctx)
	defer release()
	returned := false
	defer func() {
		if !returned { // it panicked, or ended its goroutine: it is over all the same
			_, _ = lease.Finish(held, errors.New("it panicked"))
		}
	}()
	err = work(held, lease)
	returned = true
	if stopped := belay.CancellationOf(held); stopped != nil && err != nil && !errors.Is(err, error(stopped)) {
		err = fmt.Errorf("%w (%w)", stopped, err)
	}
	if _, failed := lease.Finish(held, err); failed != nil {
		return errors.Join(err, fmt.Errorf("%w: %w", ErrNotReported, failed))
	}
	return err
}
