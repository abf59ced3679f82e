package belay

import (
	"context"
	"iter"
	"time"
)

// followAgain is how long to wait before a watch that ended by itself is begun
// again.
const followAgain = time.Second

// Follow is [Control.Watch] for who keeps account of runs and so needs every watch
// to be followed by another: it begins with the call, and when a watch ends by
// itself, as one over a connection may, a new one is begun a second later, until
// ctx ends or the loop is left. again, if set, is called whenever that has
// happened, before the first event of the new watch: what lay between was not
// seen. The sequence is for one range loop.
func Follow(ctx context.Context, c Control, f Filter, again func()) iter.Seq2[Event, error] {
	watch := c.Watch(ctx, f)
	return func(yield func(Event, error) bool) {
		for {
			for e, err := range watch {
				if !yield(e, err) {
					return
				}
			}
			pause := time.NewTimer(followAgain)
			select {
			case <-pause.C:
			case <-ctx.Done():
				pause.Stop()
				return
			}
			watch = c.Watch(ctx, f)
			if again != nil {
				again()
			}
		}
	}
}
