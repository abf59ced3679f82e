package gateway

import (
	"sync/atomic"
	"time"
)

// idleAfter is how long nothing must have passed for a session to be idle.
const idleAfter = 5 * time.Second

// idler calls f once each time that nothing has passed for a while. It has a
// timer only from the first message to that moment: an idle session does not
// wake. The zero idler does nothing.
type idler struct {
	f      func()
	armed  atomic.Bool // the timer runs
	active atomic.Bool // something has passed since it was set
}

// touch says that something has passed.
func (i *idler) touch() {
	if i.f == nil {
		return
	}
	if !i.active.Load() {
		i.active.Store(true)
	}
	if !i.armed.Load() && i.armed.CompareAndSwap(false, true) {
		time.AfterFunc(idleAfter, i.look)
	}
}

func (i *idler) look() {
	if i.active.Swap(false) {
		time.AfterFunc(idleAfter, i.look)
		return
	}
	i.armed.Store(false)
	i.f()
}
