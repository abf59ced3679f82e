package rap

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/belayhq/belay"
)

// Target is one tool server that is told of cancels and closed threads.
type Target struct {
	// Name is for people; default: the host of Base.
	Name string
	// Base is the address below which the server is discovered (RAP-8).
	Base string
	// Client and Sign bring the server's credentials along, as for invocations:
	// certificates and headers, or a signature. Nil: none. The client's Timeout and
	// CheckRedirect are not heeded: redirects are never followed.
	Client *http.Client
	Sign   Signer
}

// DefaultNotifyTimeout is how long one server may take to be told (RAP-90).
const DefaultNotifyTimeout = 2 * time.Second

// MaxTargets bounds the servers of one notifier.
const MaxTargets = 10_000

// NotifierOptions are the settings of a [Notifier]. The zero value of any field means
// its default.
type NotifierOptions struct {
	Targets []Target
	Timeout time.Duration // for each server; default [DefaultNotifyTimeout]
	Log     *slog.Logger  // statuses are logged, nothing else is done with them; nil: nowhere
}

// Told is what came of telling one server.
type Told struct {
	Server string
	Status int           // 0: there was no answer
	Err    error         // why there was none
	After  time.Duration // since the fan-out began
}

// Taken reports whether the server took the message. A conforming server
// answers 200 whatever it does about it (RAP-11), so that any other status only
// says that the message did not get to where somebody could have acted on it.
func (t *Told) Taken() bool { return t.Status == http.StatusOK }

// String is for logs and receipts.
func (t *Told) String() string {
	switch {
	case t.Err != nil:
		return fmt.Sprintf("%s was not told: %v", t.Server, t.Err)
	case t.Taken():
		return t.Server + " took it"
	}
	return fmt.Sprintf("%s did not take it: %v", t.Server, statusError(t.Status))
}

// Notifier tells every tool server of a runtime that a call was cancelled or a
// thread closed: all at the same time, each with a time of its own, once
// (RAP-15, RAP-27 to RAP-31, RAP-87). No method waits for a server, and what happens with one
// has no bearing on another. Safe for concurrent use; end it with Close.
type Notifier struct {
	timeout time.Duration
	log     *slog.Logger
	life    context.Context
	end     context.CancelCauseFunc

	list func() []target // a runtime's, in place of targets; nil: targets

	mu      sync.Mutex // guards the fields below
	targets []target   // never changed, only replaced
	closed  bool
	wg      sync.WaitGroup // of deliveries; Add under mu while !closed
}

// target is a [Target] made ready.
type target struct {
	name          string
	cancel, close string // URLs
	link          link
}

// NewNotifier checks the targets. Errors wrap [ErrMalformed].
func NewNotifier(o NotifierOptions) (*Notifier, error) {
	n := &Notifier{timeout: o.Timeout, log: o.Log}
	if n.timeout <= 0 {
		n.timeout = DefaultNotifyTimeout
	}
	if n.log == nil {
		n.log = slog.New(slog.DiscardHandler)
	}
	n.life, n.end = context.WithCancelCause(context.Background())
	return n, n.SetTargets(o.Targets)
}

// SetTargets replaces the servers, from the next notification on. Nothing is
// changed by an error, which wraps [ErrMalformed].
func (n *Notifier) SetTargets(list []Target) error {
	if len(list) > MaxTargets {
		return fmt.Errorf("%w: %d servers, at most %d can be told", ErrMalformed, len(list), MaxTargets)
	}
	ready := make([]target, 0, len(list))
	for i := range list {
		base, err := ParseBase(list[i].Base)
		if err != nil {
			return fmt.Errorf("server %q: %w", list[i].Name, err)
		}
		ready = append(ready, readyTarget(list[i].Name, base, newLink(list[i].Client, list[i].Sign)))
	}
	n.setReady(ready)
	return nil
}

func readyTarget(name string, base Base, l link) target {
	if name == "" {
		name = base.url.Host
	}
	return target{name: name, cancel: base.At(PathCancel), close: base.At(PathClose), link: l}
}

// setReady is SetTargets of a list that was made ready before.
func (n *Notifier) setReady(list []target) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.targets = list
}

// Cancel tells all servers that a call was cancelled, and returns at once. report, if
// not nil, is called once for each server, from goroutines of their own. Errors
// are those of bad ids ([ErrMalformed]) and of a closed notifier ([belay.ErrClosed]).
func (n *Notifier) Cancel(c CancelNotice, report func(Told)) error {
	body, err := c.Append(nil)
	if err != nil {
		return err
	}
	return n.tell(n.all(), body, toCancel, report)
}

// CloseThread tells all servers that a thread is over. It is otherwise like Cancel.
func (n *Notifier) CloseThread(c CloseNotice, report func(Told)) error {
	body, err := c.Append(nil)
	if err != nil {
		return err
	}
	return n.tell(n.all(), body, toClose, report)
}

func toCancel(t *target) string { return t.cancel }
func toClose(t *target) string  { return t.close }

// all are the servers as they are now.
func (n *Notifier) all() []target {
	if n.list != nil {
		return n.list()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.targets
}

// tell starts one delivery for each server. Whoever comes late in a long list is
// not behind anybody: no delivery waits for another.
func (n *Notifier) tell(list []target, body []byte, to func(*target) string, report func(Told)) error {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return fmt.Errorf("notify: %w", belay.ErrClosed)
	}
	n.wg.Add(len(list))
	n.mu.Unlock()
	began := time.Now()
	for i := range list {
		go func() {
			defer n.wg.Done()
			n.deliver(&list[i], to(&list[i]), body, began, report)
		}()
	}
	return nil
}

func (n *Notifier) deliver(t *target, to string, body []byte, began time.Time, report func(Told)) {
	ctx, end := context.WithTimeoutCause(n.life, n.timeout, slowError(n.timeout))
	defer end()
	told := Told{Server: t.name}
	told.Status, told.Err = t.link.post(ctx, to, body)
	told.After = time.Since(began)
	n.log.Debug("a tool server was told", "server", t.name, "status", told.Status, "error", told.Err, "after", told.After)
	if report != nil {
		report(told)
	}
}

// Close refuses further notifications and waits for those that are under way,
// which takes no longer than the timeout; when ctx ends before, they are broken off.
func (n *Notifier) Close(ctx context.Context) error {
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	done := make(chan struct{})
	go func() { defer close(done); n.wg.Wait() }()
	select {
	case <-done:
		n.end(belay.ErrClosed)
		return nil
	case <-ctx.Done():
		n.end(context.Cause(ctx))
		<-done // each returns as soon as its context has ended
		return context.Cause(ctx)
	}
}
