package rap

// maxIdle is how many goroutines of a crew wait for work.
const maxIdle = 64

// crew runs functions on goroutines that stay when they are done: whoever has made
// an HTTP request has a stack that fits the next one, and a new goroutine's would
// have to be grown again for each call. Its owner counts the goroutines, and ends
// them by closing quit.
type crew struct {
	work chan func()     // has no buffer: only who waits for work gets it
	idle chan struct{}   // holds a token for each that waits
	quit <-chan struct{} // closed when nobody is to wait any more
}

func newCrew(quit <-chan struct{}) crew {
	return crew{work: make(chan func()), idle: make(chan struct{}, maxIdle), quit: quit}
}

// run has f run: by one that waits, else by what start starts.
func (c crew) run(f func(), start func(func())) {
	select {
	case c.work <- f:
	default:
		start(func() { c.stay(f) })
	}
}

// stay runs f, and then what there is to do.
func (c crew) stay(f func()) {
	for {
		f()
		f = nil // what it holds is not needed while nothing is done
		select {
		case c.idle <- struct{}{}:
		default:
			return // enough are waiting
		}
		select {
		case f = <-c.work:
		case <-c.quit:
		}
		<-c.idle
		if f == nil {
			return
		}
	}
}
