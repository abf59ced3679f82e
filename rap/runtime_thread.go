package rap

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/belayhq/belay"
)

// Events take what tool servers say beside results. Those of one thread are
// called one at a time, in the order in which the messages came (RAP-70); OAuth and
// Choice, which wait for people, have goroutines of their own. Every field may
// be nil.
type Events struct {
	// OAuth shows auth_url to the user. The call stays pending; ctx ends, with the
	// cancellation or the end of the call as its cause, when the prompt is to be
	// withdrawn. The URL is not to be kept longer (RAP-80).
	OAuth func(ctx context.Context, c *Pending, m *OAuth)

	// Choice shows a question and returns the index that was chosen. An error means
	// that the user has dismissed it: the default is chosen (RAP-83). ctx ends when
	// nobody wants the answer any more; then nothing is posted, whatever it returns
	// (RAP-85). Nil: nobody can be asked, so that the default is chosen.
	Choice func(ctx context.Context, c *Pending, m *UserChoice) (int, error)

	// Subscription takes an event of a live subscription.
	Subscription func(s *Subscription, e *SubscriptionEvent)

	// View takes the newest state of a view (RAP-86).
	View func(thread string, v *ViewUpdate)
}

// ThreadOptions describe a thread. The zero value of any field means its default.
type ThreadOptions struct {
	ID        string   // the group id; default: a minted one
	Ancestors []string // from the root to the parent; none for a root thread
	UserID    string   // sent along with invocations
	Owner     string   // of its runs

	// Servers are those whose tools the thread has; nil: all. Cancels go to all
	// servers of the runtime whatever is said here (RAP-27).
	Servers []string
	// Session is the thread whose toolsets this one has, too: that of the root.
	// Nil: it discovers its own (RAP-50).
	Session *Thread

	Events *Events    // nil: the runtime's
	Parent *belay.Run // above its subscriptions, and its calls if they name none
	// Durable threads' subscriptions outlive the program, if the runtime has a store.
	Durable bool
}

// Thread is one conversation: the scope of call ids, subscriptions and views.
// All methods are safe for concurrent use; end it with Close.
type Thread struct {
	rt *Runtime
	id string

	// mu guards the fields below, and the calls and subscriptions of the thread: who
	// holds it handles one message (RAP-70). It comes before every other lock, those
	// of belay included.
	mu      sync.Mutex
	o       ThreadOptions
	left    bool         // by a restart, and nobody has opened it since
	tools   *loadedTools // nil: not loaded
	calls   map[string]*Pending
	subs    map[string]*Subscription
	views   map[string]*ViewUpdate
	closed  bool
	stays   bool     // a subscription of it goes on after the end of the program
	queue   []func() // for Events, at most maxQueue
	working bool     // somebody empties the queue
}

// Bounds of a thread.
const (
	maxQueue = 1000
	maxViews = 64
)

// Errors of threads.
var (
	// ErrNoTool says that no tool of that name is loaded in the thread.
	ErrNoTool = fmt.Errorf("%w: no such tool is loaded", belay.ErrBadRequest)
	// ErrNoSubscription says that the thread has no such subscription (RAP-77).
	ErrNoSubscription = fmt.Errorf("%w: this thread has no such subscription", belay.ErrNotFound)
	// errNobody ends a prompt whose call has got its result.
	errNobody = errors.New("the call is over")
)

// Open opens a thread, or takes up one whose subscriptions outlived a restart.
// Errors wrap [ErrMalformed], [belay.ErrTooMany] or [belay.ErrClosed].
func (rt *Runtime) Open(o ThreadOptions) (*Thread, error) {
	if o.ID == "" {
		o.ID = "thread_" + rand.Text()
	}
	if err := CheckID(o.ID); err != nil {
		return nil, fmt.Errorf("the thread's id: %w", err)
	}
	th, there, err := rt.thread(o.ID, &o)
	switch {
	case err != nil:
		return nil, err
	case there && !th.adopt(o):
		return nil, fmt.Errorf("%w: thread %.64q is open", ErrMalformed, o.ID)
	}
	return th, nil
}

// thread is the thread of that id, which is made if it is not there; o nil: by a
// restart.
func (rt *Runtime) thread(id string, o *ThreadOptions) (th *Thread, there bool, err error) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if th := rt.threads[id]; th != nil {
		return th, true, nil
	}
	switch {
	case rt.closed:
		return nil, false, fmt.Errorf("open a thread: %w", belay.ErrClosed)
	case len(rt.threads) >= maxThreads:
		return nil, false, fmt.Errorf("open a thread: %w: %d are open", belay.ErrTooMany, len(rt.threads))
	}
	th = &Thread{rt: rt, id: id, calls: map[string]*Pending{}, subs: map[string]*Subscription{}, views: map[string]*ViewUpdate{}}
	if o != nil {
		th.o = *o
	} else {
		th.o, th.left = ThreadOptions{ID: id, Durable: true}, true
	}
	rt.threads[id] = th
	return th, false, nil
}

// adopt makes a thread that only a restart has left somebody's.
func (th *Thread) adopt(o ThreadOptions) bool {
	th.mu.Lock()
	defer th.mu.Unlock()
	if !th.left || th.closed {
		return false
	}
	th.o, th.left = o, false
	return true
}

// ID is the group id.
func (th *Thread) ID() string { return th.id }

// eventsLocked is where the thread's messages go.
func (th *Thread) eventsLocked() *Events {
	if th.o.Events != nil {
		return th.o.Events
	}
	return &th.rt.o.Events
}

// enqueueLocked has something done in the order of the thread's messages, without
// the lock. It is false when too much waits already.
func (th *Thread) enqueueLocked(f func()) bool {
	if len(th.queue) >= maxQueue {
		return false
	}
	th.queue = append(th.queue, f)
	if !th.working {
		th.working = th.rt.spawn(th.work)
		if !th.working {
			th.queue = nil
			return false
		}
	}
	return true
}

func (th *Thread) work() {
	for {
		th.mu.Lock()
		list := th.queue
		th.queue = nil
		if len(list) == 0 {
			th.working = false
			th.mu.Unlock()
			return
		}
		th.mu.Unlock()
		for _, f := range list {
			f()
		}
	}
}

// Views are the newest states of the thread's views, by type (RAP-86).
func (th *Thread) Views() map[string]*ViewUpdate {
	th.mu.Lock()
	defer th.mu.Unlock()
	return maps.Clone(th.views)
}

// viewLocked keeps the newest state of a view and passes it on. It is false when
// too much waits already.
func (th *Thread) viewLocked(v *ViewUpdate, of *Events) bool {
	if th.closed {
		return true // nobody looks any more
	}
	view := th.eventsLocked().View
	if of != nil && of.View != nil {
		view = of.View
	}
	if view != nil && !th.enqueueLocked(func() { view(th.id, v) }) {
		return false
	}
	if _, there := th.views[v.ViewType]; there || len(th.views) < maxViews {
		th.views[v.ViewType] = v
	}
	return true
}

// Close ends the thread: its pending calls and subscriptions are stopped, cause
// parent unless c says another, and every server is told, which is not waited
// for (RAP-87). It may be called again.
func (th *Thread) Close(c belay.Cancellation) {
	if c.Cause == "" {
		c.Cause = belay.CauseParent
	}
	th.shut(c, false)
}

// shut is Close; at the end of the program durable subscriptions stay.
func (th *Thread) shut(c belay.Cancellation, ending bool) {
	if c.Stop.IsZero() {
		c.Stop = belay.NewStopID()
	}
	th.mu.Lock()
	if th.closed {
		th.mu.Unlock()
		return
	}
	th.closed = true
	calls := slices.Collect(maps.Values(th.calls))
	subs := slices.Collect(maps.Values(th.subs))
	th.views = map[string]*ViewUpdate{}
	stays := ending && th.stays
	for _, s := range subs {
		s.staying = ending && s.stored
		stays = stays || s.staying
	}
	th.mu.Unlock()
	var told []<-chan struct{}
	for _, call := range calls {
		call.run.Cancel(c) // Close sees to it that it is handed over
	}
	for _, s := range subs {
		s.run.Cancel(c)
		if !s.staying {
			told = append(told, s.told)
		}
	}
	rt := th.rt
	if !stays { // a server that is told that the thread is over would end them
		if err := rt.notify.CloseThread(CloseNotice{ThreadID: th.id}, nil); err != nil {
			rt.log.Debug("the end of a thread could not be told", "thread", th.id, "error", err)
		}
	}
	if ending { // who closes the notifier next has to wait until all has been handed over
		awaitAll(told)
	}
	rt.mu.Lock()
	delete(rt.threads, th.id)
	rt.mu.Unlock()
}

// handOverWait bounds how long the end of the program waits for Stops to be handed to
// their deliveries, which takes microseconds.
const handOverWait = time.Second

// awaitAll waits until Stops have been handed over.
func awaitAll(told []<-chan struct{}) {
	limit := time.NewTimer(handOverWait)
	defer limit.Stop()
	for _, ch := range told {
		select {
		case <-ch:
		case <-limit.C: // the tree was closed before, and tells nobody any more
			limit.Reset(0)
		}
	}
}

// Subscriptions are the thread's live subscriptions, by call id.
func (th *Thread) Subscriptions() []*Subscription {
	th.mu.Lock()
	defer th.mu.Unlock()
	list := slices.Collect(maps.Values(th.subs))
	slices.SortFunc(list, func(a, b *Subscription) int { return a.since.Compare(b.since) })
	return list
}

// CancelSubscription ends a live subscription of this thread: every server is
// told, which is not waited for. An id that is none of this thread is
// [ErrNoSubscription], and nobody is told (RAP-77).
func (th *Thread) CancelSubscription(id string, c belay.Cancellation) error {
	th.mu.Lock()
	s := th.subs[id]
	th.mu.Unlock()
	if s == nil {
		return fmt.Errorf("%w: %.64q", ErrNoSubscription, id)
	}
	if c.Cause == "" {
		c.Cause = belay.CauseUser
	}
	s.run.Cancel(c)
	return nil
}

// checkArguments is what can be said of arguments before they are sent.
func (th *Thread) checkArguments(t *Tool, arguments json.RawMessage) error {
	if !isKind(arguments, rawObject) {
		return fmt.Errorf("%w: the arguments of %s have to be a JSON object", ErrArguments, t.Name)
	}
	if th.rt.o.Validate == nil {
		return nil
	}
	if err := th.rt.o.Validate(t.InputSchema, arguments); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrArguments, t.Name, err)
	}
	return nil
}
