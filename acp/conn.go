package acp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
)

// Role is which end of the connection this is.
type Role uint8

// The roles.
const (
	RoleAgent  Role = iota + 1 // it is prompted
	RoleClient                 // it prompts: an editor
)

// Default times and bounds.
const (
	DefaultCancelWait  = 5 * time.Second
	DefaultAnswerAfter = 5 * time.Second
	DefaultMaxRequests = 10_000
	DefaultMaxNotes    = 64 << 20

	earlyFor   = 10 * time.Second // how long a cancel waits for its request (ACP-L11)
	mutedFor   = 10 * time.Minute // how long the answer to a call that was given up is known (ACP-L10)
	maxMemory  = 10_000           // ids of each kind that are remembered (ACP-L10)
	orderWait  = time.Second      // how long an answer waits for a slow handler of the notifications before it
	closeSlack = time.Second      // what Close gives beyond AnswerAfter
	flushWait  = time.Second      // what Close gives a peer that reads slowly
)

// Handler serves the requests of the other side, each in a goroutine of its own.
// Its ctx ends with a *belay.Cancellation as its cause when the request is
// cancelled: by the other side (cause peer), by its time or by somebody here, when
// the connection ends, and after the handler has returned. Nothing else ends it.
//
// What it returns is sent, also after a cancel: then it may be a partial result.
// A nil result is {}. [json.RawMessage] and []byte are sent as they are, other
// values as encoding/json has them. After a cancel an error is sent as -32800; else
// an [*Error] as it is, a context error as -32800, every other one as -32603.
type Handler func(ctx context.Context, r *Request) (result any, err error)

// Options are the settings of a [Conn].
type Options struct {
	// Role is required.
	Role Role
	// Handler serves requests. Nil: every method is unknown.
	Handler Handler
	// Notify is told of notifications, in their order, one at a time; cancels of
	// single requests are not among them. ctx ends with the connection. Nil: nobody
	// is told.
	Notify func(ctx context.Context, method string, params []byte)

	// Tree holds the runs, one for each request that is served. Nil: a tree of the
	// connection's own.
	Tree *belay.Tree
	// Parent is the run below which they hang; of Tree. Nil: none.
	Parent *belay.Run

	// Dialect says in which form a peer is told, by the name it gives of itself
	// (ACP-47). Of others it is found out.
	Dialect map[string]Form
	// Declare tells the peer that cancels of single requests are handled, as the
	// first form of cancelling wants it. An agent does that anyway if its client
	// used the field (ACP-49).
	Declare bool
	// Deaf ignores cancels of single requests that the peer sends (ACP-29).
	Deaf bool

	// CancelWait is how long a call whose context has ended waits for the real
	// answer, and the answer of a cancelled request for those of its children.
	// Default 5 s.
	CancelWait time.Duration
	// AnswerAfter is when a cancelled request is answered whose handler does not
	// return. Default 5 s.
	AnswerAfter time.Duration
	// Limit is how long a request of this method may take; 0: for ever. Nil: none has
	// a limit. A limit is a cancel with cause deadline.
	Limit func(method string) time.Duration
	// MaxRequests bounds the requests that are served at once; those above it are
	// refused. Default 10,000.
	MaxRequests int
	// MaxNotes bounds the bytes of notifications that wait for Notify. A peer that
	// sends more is cut off, since neither losing some nor reading no further, and so
	// no cancel either, would do. Default 64 MiB.
	MaxNotes int

	// Log gets one line for whatever the peer did wrong. Nil: nothing is logged.
	Log *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.CancelWait <= 0 {
		o.CancelWait = DefaultCancelWait
	}
	if o.AnswerAfter <= 0 {
		o.AnswerAfter = DefaultAnswerAfter
	}
	if o.MaxRequests <= 0 {
		o.MaxRequests = DefaultMaxRequests
	}
	if o.MaxNotes <= 0 {
		o.MaxNotes = DefaultMaxNotes
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Handler == nil {
		o.Handler = func(_ context.Context, r *Request) (any, error) { return nil, MethodNotFound(r.Method()) }
	}
	return o
}

// Conn is one connection, of either role. It reads by itself from the moment it is
// made, and must be ended with Close. All methods are safe for concurrent use.
type Conn struct {
	o       Options
	t       Transport
	w       *jsonrpc.Writer
	tree    *belay.Tree
	ownTree bool
	forms   Forms // of the peer
	ids     jsonrpc.Minter
	minted  atomic.Uint64 // at least as many ids as were given out
	calls   jsonrpc.Table[*call]
	muted   *belay.Tombstones[string, struct{}] // calls that were given up
	early   *belay.Tombstones[string, struct{}] // cancels that came before their request
	notes   notes
	counts  counts
	dismiss func(r *Request) *belay.Cancellation // a client's: why a dialog is not even shown; nil: it is

	ctx  context.Context // of notifications; ends with the connection
	end  context.CancelCauseFunc
	done chan struct{} // closed when the reader has ended

	mu sync.Mutex
	// The fields below are guarded by mu.
	open    map[string]*Request // not answered, by the key of the id
	first   *Request            // of the requests whose handlers have not returned
	running int
	idle    chan struct{} // closed when running becomes 0, for Close
	seen    memory        // ids of requests that were answered
	closing bool          // Close has begun
	err     error         // why it ended; set by fail
	peer    Hello
	version int
}

// NewConn takes over t and begins to read. Options.Role is required; a wrong one is
// a mistake in the calling code and panics.
func NewConn(t Transport, o Options) *Conn {
	c := newConn(t, o)
	c.start()
	return c
}

func newConn(t Transport, o Options) *Conn {
	prefix := map[Role]string{RoleAgent: agentPrefix, RoleClient: clientPrefix}[o.Role]
	if prefix == "" {
		panic(fmt.Sprintf("acp: Options.Role is %d, want RoleAgent or RoleClient", o.Role))
	}
	c := &Conn{
		o: o.withDefaults(), t: t, tree: o.Tree,
		w:     jsonrpc.NewWriter(outlet(t), jsonrpc.WriterOptions{}),
		muted: belay.NewTombstones[string, struct{}](mutedFor, maxMemory),
		early: belay.NewTombstones[string, struct{}](earlyFor, maxMemory),
		done:  make(chan struct{}),
		open:  make(map[string]*Request),
	}
	c.ids.Prefix = prefix
	if c.tree == nil {
		// Nobody can look anything up in it but by a Request.
		c.tree, c.ownTree = belay.NewTree(belay.Options{KeepRuns: 1}), true
	}
	c.ctx, c.end = context.WithCancelCause(context.Background())
	c.notes.init(c)
	return c
}

func (c *Conn) start() { go c.read() }

// The ends of a connection count their ids apart, for people who read a log. The
// ids of the two directions are strangers all the same.
const (
	agentPrefix  = "a-"
	clientPrefix = "c-"
)

// Role is the role of this end.
func (c *Conn) Role() Role { return c.o.Role }

// Peer is what the other side said of itself in initialize; the zero Hello before
// that was answered.
func (c *Conn) Peer() Hello {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.peer
}

// Version is the protocol version that holds; 0 before initialize was answered.
func (c *Conn) Version() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.version
}

// greet opens the connection for cancels. It is called before anything that
// follows the answer to initialize is read or sent.
func (c *Conn) greet(version int, peer Hello) {
	peer.Caps = append([]byte(nil), peer.Caps...)
	c.mu.Lock()
	c.peer, c.version = peer, version
	c.mu.Unlock()
	c.forms.Use(c.o.Dialect[peer.Name])
	c.forms.Greet(version, peer.Cancel)
}

// Notify sends a notification. It waits for nobody; [jsonrpc.ErrQueueFull] means
// that the peer does not read.
func (c *Conn) Notify(method string, params any) error {
	raw, err := encode(params)
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	_, err = c.send(func(dst []byte) []byte { return jsonrpc.AppendNotification(dst, method, raw) })
	return err
}

// send queues one message.
func (c *Conn) send(build func([]byte) []byte) (uint64, error) {
	seq, err := c.w.Send(build)
	if err != nil {
		return 0, c.sendFailed(err)
	}
	return seq, nil
}

func (c *Conn) sendFailed(err error) error {
	if errors.Is(err, jsonrpc.ErrQueueFull) || errors.Is(err, jsonrpc.ErrEmptyFrame) {
		return err
	}
	if errors.Is(err, jsonrpc.ErrClosed) {
		return c.why()
	}
	c.fail(fmt.Errorf("%w: %w", ErrLost, err)) // the peer no longer takes what we write
	return c.why()
}

// why is the error of everything that is tried after the end.
func (c *Conn) why() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closing:
		return ErrClosed
	case c.err != nil:
		return c.err
	}
	return ErrClosed
}

// Done is closed when the connection has ended: nothing more is read, and all calls
// and handlers have been told.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err is why the connection has ended; nil while it lives, and if it was closed
// here. A peer that went in peace is [ErrLost] with io.EOF.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if errors.Is(c.err, ErrClosed) {
		return nil
	}
	return c.err
}

// read is the reader's goroutine. Cancels take effect in it, whatever handlers do
// (ACP-L7).
func (c *Conn) read() {
	defer close(c.done)
	for {
		frame, err := c.t.Read()
		if err == nil {
			c.receive(frame)
			continue
		}
		if tooLong, ok := errors.AsType[*jsonrpc.TooLongError](err); ok {
			c.oversized(tooLong)
			continue
		}
		if errors.Is(err, jsonrpc.ErrTooLong) {
			c.counts.badMessages.Add(1)
			continue
		}
		if partial, ok := errors.AsType[*jsonrpc.PartialError](err); ok {
			c.counts.badMessages.Add(1)
			c.o.Log.Warn("the stream ended within a message", "bytes", partial.Size)
		}
		c.fail(fmt.Errorf("%w: %w", ErrLost, err))
		return
	}
}

// fail ends everything that needs the connection, once.
func (c *Conn) fail(err error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = err
	lost := c.runningLocked()
	cause := &belay.Cancellation{Cause: belay.CauseDisconnect, Via: "acp", Reason: belay.CleanReason(err.Error())}
	if c.closing {
		cause.Cause, cause.Reason = belay.CauseShutdown, "the connection was closed"
	}
	c.mu.Unlock()
	for _, cl := range c.calls.TakeAll() {
		cl.answered <- answer{err: c.why()}
	}
	for _, r := range lost {
		r.abandon(*cause)
	}
	cause.At = time.Now()
	c.end(cause)
	_ = c.w.CloseNow() // nobody is left to whom a failure would matter
	_ = c.t.Close()
}

// runningLocked lists the requests whose handlers have not returned.
func (c *Conn) runningLocked() []*Request {
	var all []*Request
	for r := c.first; r != nil; r = r.next {
		all = append(all, r)
	}
	return all
}

// Close ends the connection in order: no more requests are served, those that are
// get cancelled with cause shutdown and are answered, what is written is flushed,
// and the transport is closed. It waits for the handlers, at most until ctx ends
// and not much longer than AnswerAfter, and says how many have not returned even
// so. It may be called more than once.
func (c *Conn) Close(ctx context.Context) error {
	c.mu.Lock()
	c.closing = true
	running := c.runningLocked()
	c.mu.Unlock()
	for _, r := range running {
		r.Cancel(belay.Cancellation{Cause: belay.CauseShutdown, Via: "acp", Reason: "the connection is being closed"})
	}
	stuck := c.awaitHandlers(ctx)
	flush, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), flushWait, errCleanUp)
	_ = c.w.Close(flush)
	cancel()
	c.fail(ErrClosed)
	slack := time.NewTimer(closeSlack)
	defer slack.Stop()
	select {
	case <-c.done:
	case <-slack.C: // a terminal or a plain file: its Close does not free a Read
		return errors.Join(stuck, fmt.Errorf("%w: the transport's Read has not returned", ErrClosed))
	}
	if !c.notes.wait(slack.C) {
		stuck = errors.Join(stuck, errors.New("the handler of notifications has not returned"))
	}
	if c.ownTree {
		over, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), time.Millisecond, errCleanUp)
		defer cancel()
		_ = c.tree.Close(over) // gives up handlers that have not returned, which stuck names
	}
	return stuck
}

// awaitHandlers waits until all handlers have returned.
func (c *Conn) awaitHandlers(ctx context.Context) error {
	c.mu.Lock()
	if c.running == 0 {
		c.mu.Unlock()
		return nil
	}
	if c.idle == nil {
		c.idle = make(chan struct{})
	}
	idle := c.idle
	c.mu.Unlock()
	limit := time.NewTimer(c.o.AnswerAfter + closeSlack)
	defer limit.Stop()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
	case <-limit.C:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running == 0 {
		return nil
	}
	return fmt.Errorf("%d handlers have not returned; the first serves %s", c.running, c.first.method)
}

// admit puts a request among those that are served.
func (c *Conn) admit(r *Request) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closing, c.err != nil:
		return fmt.Errorf("%w: nothing new is started", belay.ErrClosed)
	case c.running >= c.o.MaxRequests:
		return fmt.Errorf("%w: %d requests are served already", belay.ErrTooMany, c.running)
	}
	if old := c.open[r.key]; old != nil {
		// A mistake of the peer. Both are answered; a cancel hits this one.
		c.o.Log.Warn("the peer uses an id twice at the same time", "id", r.id.String(), "method", r.method)
	}
	c.open[r.key] = r
	r.next = c.first
	if c.first != nil {
		c.first.prev = r
	}
	c.first = r
	c.running++
	return nil
}

// settled takes a request out of those that a cancel can name.
func (c *Conn) settled(r *Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[r.key] == r {
		delete(c.open, r.key)
		c.seen.add(r.key)
	}
}

// leave takes a request out whose handler has returned.
func (c *Conn) leave(r *Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.prev != nil {
		r.prev.next = r.next
	} else {
		c.first = r.next
	}
	if r.next != nil {
		r.next.prev = r.prev
	}
	r.prev, r.next = nil, nil
	if c.open[r.key] == r { // it was settled before it was put there, or is settled by nobody any more
		delete(c.open, r.key)
		c.seen.add(r.key)
	}
	if c.running--; c.running == 0 && c.idle != nil {
		close(c.idle)
		c.idle = nil
	}
}

// matching lists the requests that are being served for a session.
func (c *Conn) matching(session string, want func(method string) bool) []*Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []*Request
	for r := c.first; r != nil; r = r.next {
		if r.session == session && want(r.method) {
			found = append(found, r)
		}
	}
	return found
}

var _ io.Closer = (*unliner)(nil)
