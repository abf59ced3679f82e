package rap

import (
	"fmt"
	"sync/atomic"

	"github.com/belayhq/belay"
)

// maxReading bounds what all bodies take that are being read, and may be large.
const maxReading = 512 << 20

// reading is their budget: whoever sends slowly holds what has come so far.
var reading = newBudget(maxReading)

// budget is how many bytes may still be taken; nil has no bound. Safe for concurrent
// use.
type budget struct{ left atomic.Int64 }

func newBudget(n int64) *budget {
	b := &budget{}
	b.left.Store(n)
	return b
}

// take takes n bytes; the error wraps belay.ErrTooMany when there are not so many.
func (b *budget) take(n int) error {
	if b != nil && b.left.Add(int64(-n)) < 0 {
		b.give(n)
		return fmt.Errorf("%w bytes are being read", belay.ErrTooMany)
	}
	return nil
}

func (b *budget) give(n int) {
	if b != nil {
		b.left.Add(int64(n))
	}
}
