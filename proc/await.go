package proc

import (
	"context"
	"time"
)

// awaitPause lies between two looks where a death is not announced.
const awaitPause = 100 * time.Millisecond

// Await waits until exactly this process is dead, and returns nil, or until ctx
// ends, and returns its cause. On Linux it sleeps until the kernel says so;
// elsewhere, and where there is no descriptor left for that, it looks every 100
// ms. What the dead one has left behind is not waited for.
func Await(ctx context.Context, id ID) error {
	if done, err := awaitNotice(ctx, id); done {
		return err
	}
	for alive(id) {
		timer := time.NewTimer(awaitPause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		case <-timer.C:
		}
	}
	return nil
}
