package admin

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/belayhq/belay"
)

// feedKept is how many events are kept for streams that come back or lag.
const feedKept = 4096

// feed keeps the last events of a Control, each with a number, so that a stream
// that broke can go on where it was. One goroutine watches the Control for all
// streams; a stream reads at its own pace and, when it falls behind what is
// kept, is told how much it missed.
type feed struct {
	epoch string // of this process: numbers of an earlier one mean nothing here
	end   context.CancelCauseFunc
	ended chan struct{} // closed when the goroutine has returned

	mu     sync.Mutex
	events []entry       // ring: number n is at n % feedKept
	next   uint64        // number of the next event; the first is 1
	more   chan struct{} // closed and replaced when there is more, or at the end
	closed bool
}

// entry is one thing that happened: an event, or a notice of a cancel for who
// may see the run (ORC-44b).
type entry struct {
	belay.Event        // of a notice only its Run and its time
	frame       []byte // the notice as sessions get it; nil: it is an event
}

var errFeedClosed = errors.New("the event feed is closed")

func newFeed(control belay.Control) *feed {
	ctx, end := context.WithCancelCause(context.Background())
	f := &feed{
		epoch: newEpoch(), end: end, ended: make(chan struct{}),
		events: make([]entry, feedKept), next: 1, more: make(chan struct{}),
	}
	// The first watch begins before New returns: no run that is registered
	// afterwards is missed.
	events := belay.Follow(ctx, control, belay.Filter{Ended: true}, nil)
	go func() {
		defer close(f.ended)
		for e, err := range events {
			if err == nil {
				f.add(entry{Event: e})
			}
		}
	}()
	return f
}

func newEpoch() string {
	var b [6]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

func (f *feed) close() {
	f.end(errFeedClosed)
	<-f.ended
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed {
		f.closed = true
		close(f.more)
	}
}

func (f *feed) add(e entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events[f.next%feedKept] = e
	f.next++
	close(f.more)
	f.more = make(chan struct{})
}

// forget takes what happened to an owner's runs out of what is kept. Their numbers
// stay, so that streams miss nothing else.
func (f *feed) forget(owner string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for n := range f.events {
		if e := &f.events[n]; e.Run.Owner == owner {
			*e = entry{Event: belay.Event{Lost: e.Lost}}
		}
	}
}

// now is the position behind everything that has happened.
func (f *feed) now() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.next
}

// batch is what a stream gets at once.
type batch struct {
	events []entry
	first  uint64          // number of the first
	lost   uint64          // events before it that are not kept any more
	more   <-chan struct{} // with no events: closed when there are some
	closed bool
}

// from returns what is kept from a position on, at most so many events.
func (f *feed) from(pos uint64, limit int) batch {
	f.mu.Lock()
	defer f.mu.Unlock()
	oldest := uint64(1)
	if f.next > feedKept {
		oldest = f.next - feedKept
	}
	b := batch{first: max(pos, oldest), more: f.more, closed: f.closed}
	b.lost = b.first - pos
	for n := b.first; n < f.next && len(b.events) < limit; n++ {
		b.events = append(b.events, f.events[n%feedKept])
	}
	return b
}

// id is the Last-Event-ID of a number.
func (f *feed) id(n uint64) string { return fmt.Sprintf("%s-%d", f.epoch, n) }

// after is the position behind a Last-Event-ID. known is false for one of
// another process, or one that never was.
func (f *feed) after(id string) (pos uint64, known bool) {
	text, ok := strings.CutPrefix(id, f.epoch+"-")
	n, err := strconv.ParseUint(text, 10, 64)
	if now := f.now(); !ok || err != nil || n >= now {
		return now, false
	}
	return n + 1, true
}
