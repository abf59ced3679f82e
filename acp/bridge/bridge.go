package bridge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/acp"
	"github.com/belayhq/belay/jsonrpc"
)

// Bridge stands between one editor and one agent. Make it with [New].
type Bridge struct {
	o   Options
	set Settings
	log *slog.Logger

	editor, agent *hop

	ended chan struct{}  // closed when Serve begins to end
	wg    sync.WaitGroup // what Serve waits for; Add under mu while !closed

	// mu guards the fields below, what hangs on them, and both hops. It is held for
	// moments: nothing is written, no run is cancelled and no seam is called under
	// it. What has to be done without it goes into todo.
	mu         sync.Mutex
	todo       []func()
	served     bool
	closed     bool   // no new goroutines
	reason     Reason // why Serve ends; "" while it does not
	version    int    // of the protocol; 0 until the agent has answered initialize
	hello      acp.Hello
	closes     bool // the agent takes session/close
	notices    bool // the editor shows notices
	sessions   map[string]*session
	unnamed    map[*session]struct{} // whose id the agent has not said yet
	orphans    map[*session]struct{} // that are over, with turns that are not
	runs       []*belay.Run          // of sessions, also of earlier rounds; those that are over are taken out now and then
	pruneAt    int                   // the length of runs at which that is done
	editorStop belay.StopID          // the newest Stop that the editor asked for
	stopping   map[*turn]struct{}    // whose receipts are not final
	dying      []*turn               // whose agent is to be killed when nobody else needs it
	kept       []*turn               // with broods that a second Stop could still need
	noise      noise
}

// New returns a bridge that relays nothing yet. It fails, with an error that wraps
// [ErrSetting], if the options make no sense.
func New(o Options) (*Bridge, error) {
	set, err := o.Settings.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("bridge: %w", err)
	}
	if o.Tree == nil {
		return nil, fmt.Errorf("bridge: %w: there is no tree for the runs", ErrSetting)
	}
	if o.Control == nil {
		o.Control = o.Tree
	}
	if o.Name == "" {
		o.Name = "agent"
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	b := &Bridge{
		o: o, set: set, log: o.Log,
		editor: newHop("editor"), agent: newHop("agent"),
		ended:    make(chan struct{}),
		sessions: map[string]*session{},
		unnamed:  map[*session]struct{}{},
		orphans:  map[*session]struct{}{},
		stopping: map[*turn]struct{}{},
	}
	for _, h := range []*hop{b.editor, b.agent} {
		h.forms.Use(set.Dialect[""])
	}
	return b, nil
}

// ErrServed reports a second call of [Bridge.Serve].
var ErrServed = errors.New("the bridge has served before")

// Serve relays between the two peers until one of them is gone or ctx ends, which
// is a shutdown; then it stops what runs, ends the agent with its tree, and
// returns when nothing of this is left to do. It can be called once; the error
// wraps [ErrServed] otherwise.
func (b *Bridge) Serve(ctx context.Context, editor, agent Pipes) (Result, error) {
	b.mu.Lock()
	if b.served {
		b.mu.Unlock()
		return Result{}, fmt.Errorf("bridge: %w", ErrServed)
	}
	b.served = true
	b.editor.w = jsonrpc.NewWriter(editor.Out, jsonrpc.WriterOptions{})
	b.agent.w = jsonrpc.NewWriter(agent.Out, jsonrpc.WriterOptions{})
	b.mu.Unlock()

	readers := sync.WaitGroup{}
	agentRead := make(chan struct{})
	readers.Go(func() {
		b.read(editor.In, b.agent, b.fromEditor)
		b.finish(EditorGone)
	})
	readers.Go(func() {
		defer close(agentRead)
		b.read(agent.In, b.editor, b.fromAgent)
		b.finish(AgentGone)
	})
	b.watchPeers(ctx, agentRead)
	<-b.ended
	result := b.end(agentRead)
	for _, p := range []any{editor.In, agent.In} {
		if c, ok := p.(io.Closer); ok {
			_ = c.Close()
		}
	}
	waitAtMost(&readers, unblockWait)
	b.close()
	return result, nil
}

// unblockWait is how long a reader may take to notice that its pipe was closed.
// Pipes notice at once; a terminal cannot be interrupted, and is then left to the
// end of the process.
const unblockWait = time.Second

func waitAtMost(wg *sync.WaitGroup, most time.Duration) {
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// watchPeers notices every end that is not the end of input.
func (b *Bridge) watchPeers(ctx context.Context, agentRead <-chan struct{}) {
	var gone <-chan struct{}
	if b.o.Agent != nil {
		gone = b.o.Agent.Done()
	}
	b.spawn(func() {
		select {
		case <-ctx.Done():
			b.finish(Shutdown)
		case <-b.editor.w.Done():
			b.finish(EditorGone)
		case <-gone:
			// What it has said is still read; a descendant may hold its output open.
			timer := time.NewTimer(lastWords)
			defer timer.Stop()
			select {
			case <-agentRead:
			case <-timer.C:
			case <-b.ended:
			}
			b.finish(AgentGone)
		case <-b.ended:
		}
	})
}

// lastWords is how long the output of a dead agent is read.
const lastWords = 200 * time.Millisecond

// finish makes Serve end. The first reason counts.
func (b *Bridge) finish(why Reason) {
	b.lock()
	defer b.unlock()
	b.finishLocked(why)
}

func (b *Bridge) finishLocked(why Reason) {
	if b.reason == "" {
		b.reason = why
		close(b.ended)
	}
}

// lock takes the lock and keeps back what is queued until unlock.
func (b *Bridge) lock() {
	b.mu.Lock()
	b.editor.w.Hold()
	b.agent.w.Hold()
}

// unlock gives the lock back, lets go what was queued, and then does what was to
// be done without the lock.
func (b *Bridge) unlock() {
	todo := b.todo
	b.todo = nil
	b.mu.Unlock()
	b.editor.w.Release()
	b.agent.w.Release()
	for _, f := range todo {
		f()
	}
}

// later has f called when the lock is given back, by who has it.
func (b *Bridge) later(f func()) { b.todo = append(b.todo, f) }

// spawn runs f in a goroutine that Serve waits for; never after its end.
func (b *Bridge) spawn(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spawnLocked(f)
}

func (b *Bridge) spawnLocked(f func()) {
	if !b.closed {
		b.wg.Go(f)
	}
}

// after calls f with the lock, d from now, unless Serve has ended before.
func (b *Bridge) afterLocked(d time.Duration, f func()) *time.Timer {
	return time.AfterFunc(d, func() {
		b.mu.Lock()
		closed := b.closed
		if !closed {
			b.wg.Add(1)
		}
		b.mu.Unlock()
		if closed {
			return
		}
		defer b.wg.Done()
		b.lock()
		defer b.unlock()
		f()
	})
}

// close ends all goroutines and waits for them.
func (b *Bridge) close() {
	b.mu.Lock()
	b.closed = true
	kept := b.kept
	b.kept = nil
	b.mu.Unlock()
	for _, t := range kept {
		t.release()
	}
	_ = b.agent.w.CloseNow()
	_ = b.editor.w.CloseNow()
	b.wg.Wait()
}

// read takes one line after the other until there are no more. What lines that
// came together become leaves together.
func (b *Bridge) read(in io.Reader, to *hop, take func([]byte, *jsonrpc.TooLongError)) {
	reader := jsonrpc.NewReader(in, jsonrpc.ReaderOptions{Max: b.o.MaxLine})
	held := false
	release := func() {
		if held {
			held = false
			to.w.Release()
		}
	}
	defer release()
	for {
		if !reader.Ready() {
			release() // what follows may take hours to come
		}
		if to == b.editor {
			b.breathe(release)
		}
		line, err := reader.Next()
		if !held {
			held = true
			to.w.Hold()
		}
		if long, ok := errors.AsType[*jsonrpc.TooLongError](err); ok {
			take(nil, long)
			continue
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				b.log.Debug("a peer's output ended", "error", err)
			}
			return
		}
		take(line, nil)
	}
}

// highWater is how much may wait for an editor that does not read before the agent
// is no longer read either, as a plain pipe would have it.
const highWater = 8 << 20

// breathe waits while the editor does not read. A Stop ends the wait: its clock
// needs the agent's answer.
func (b *Bridge) breathe(release func()) {
	for {
		if _, n := b.editor.w.Queued(); n < highWater {
			return
		}
		release()
		b.mu.Lock()
		stopping := b.reason != "" || b.stoppingLocked()
		last := b.editor.last
		b.mu.Unlock()
		if stopping {
			return
		}
		ctx, end := context.WithTimeoutCause(context.Background(), 50*time.Millisecond, errBreath)
		err := b.editor.w.Wait(ctx, last)
		end()
		if err != nil && !errors.Is(err, errBreath) {
			return
		}
	}
}

var errBreath = errors.New("time to look again")

// noise counts what was dropped, and says so in the log now and then: a peer that
// sends nonsense must not fill it.
type noise struct {
	n    int
	next time.Time
}

// dropLocked logs, at most once a second, that something was not passed on.
func (b *Bridge) dropLocked(from, why string, args ...any) {
	b.noise.n++
	now := time.Now()
	if now.Before(b.noise.next) {
		return
	}
	b.noise.next = now.Add(time.Second)
	b.log.Warn("dropped from the "+from+": "+why, append(args, "dropped", b.noise.n)...)
}
