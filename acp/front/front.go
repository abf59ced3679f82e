package front

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/acp/bridge"
	"github.com/belayhq/belay/internal/config"
	"github.com/belayhq/belay/internal/peers"
	"github.com/belayhq/belay/local"
	"github.com/belayhq/belay/serve"
)

// Options are the settings of a [Front]. The zero value of a field that is not
// required means its default.
type Options struct {
	Tree  *belay.Tree // that holds the sessions' runs; required
	Belay string      // the path of Belay's own binary; required
	Log   *slog.Logger

	// Agent is the run of the agent itself, below which wrap processes attach that it
	// has in a configuration of its own. Zero: there are none.
	Agent belay.RunID

	// Server is this process's socket, by which wrap processes attach. Nil: a
	// command passes as it is, since no Stop would reach what is behind it.
	Server *local.Server

	// Mesh knows the processes in the directory of Server, for [Front.Calls]. Nil:
	// calls of wrap processes are not listed.
	Mesh *local.Mesh

	Wrap   []string      // flags of "belay wrap"
	Env    []string      // of wrap processes, NAME=VALUE, beside the ticket and the entry's own
	Policy config.Policy // of servers that are reached by HTTP
	Owner  string        // of their runs
	Facts  *peers.Facts  // about other people's programs; nil: the built-in ones

	// Scripts are given to every session, as a server beside the editor's own. Nil:
	// there are none.
	Scripts *serve.Definition
	Worker  []string // the command line of their workers; nil: see [serve.Options]
}

// Times and bounds.
const (
	maxServers  = 4 << 20 // bytes of one array
	maxEntries  = 256     // that are fronted, of one array
	maxSites    = 256     // paths of one session
	maxSessions = 10_000

	endGrace  = 2 * time.Second        // for the agent to end the servers of a session itself
	lastGrace = 200 * time.Millisecond // the same where the agent is gone
	endLimit  = 5 * time.Second        // for what is told to end
)

// errTime is the cause of a wait that was long enough.
var errTime = errors.New("that took too long")

// Front implements [bridge.Front]. Make one with [New] and end it with End. All
// methods are safe for concurrent use.
type Front struct {
	o  Options
	wg sync.WaitGroup // ends of sessions; Add under mu while !closed

	webAgent atomic.Bool         // the agent takes servers that are reached by HTTP
	asks     atomic.Pointer[Ask] // nil: nobody is asked

	vain atomic.Int32 // waits in a row for tool calls that the agent did not tell of

	listen sync.Mutex // held while the listener is made; before mu

	// mu guards the fields below, and those of sessions. It is held for moments.
	mu       sync.Mutex
	sessions map[belay.RunID]*session
	sites    map[string]*site // by path, without the slash
	base     string           // URL of the listener; "": there is none yet
	http     *http.Server
	served   chan struct{} // closed when http serves no more
	closed   bool
}

// session is one session of the editor.
type session struct {
	run   *belay.Run
	turn  *belay.Run // that runs; nil: none
	sites []*site
}

var _ bridge.Front = (*Front)(nil)

// New returns a front without sessions. It listens nowhere before a server asks
// for it.
func New(o Options) *Front {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Front{o: o, sessions: make(map[belay.RunID]*session), sites: make(map[string]*site)}
}

// Place implements [bridge.Front].
func (f *Front) Place(run, turn *belay.Run) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.sessions[run.ID()]; s != nil {
		s.turn = turn
	}
}

// sessionLocked finds or makes the state of a session.
func (f *Front) sessionLocked(run *belay.Run) (*session, error) {
	s := f.sessions[run.ID()]
	switch {
	case f.closed:
		return nil, fmt.Errorf("%w: Belay is ending", belay.ErrClosed)
	case s != nil:
		return s, nil
	case len(f.sessions) >= maxSessions:
		return nil, fmt.Errorf("%w: %d sessions have servers", belay.ErrTooMany, maxSessions)
	}
	s = &session{run: run}
	f.sessions[run.ID()] = s
	return s, nil
}

// Close implements [bridge.Front]. It does not wait: the servers' ladders take
// their time. A session that is not known, or was closed, changes nothing.
func (f *Front) Close(run *belay.Run) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.dropLocked(run.ID()); s != nil {
		f.wg.Go(func() { f.end(context.Background(), s, endGrace) })
	}
}

// dropLocked takes a session out: its paths lead nowhere from now on.
func (f *Front) dropLocked(id belay.RunID) *session {
	s := f.sessions[id]
	if s == nil || f.closed {
		return nil
	}
	delete(f.sessions, id)
	for _, site := range s.sites {
		delete(f.sites, site.path)
	}
	return s
}

// end ends what a session has: its servers here, and the wrap processes that the
// agent has not ended after grace.
func (f *Front) end(ctx context.Context, s *session, grace time.Duration) {
	why := belay.Cancellation{Stop: belay.NewStopID(), Cause: belay.CauseShutdown, Via: "acp", Reason: "the session with the agent was closed"}
	ctx, done := context.WithTimeoutCause(ctx, grace+endLimit, errTime)
	defer done()
	var sites sync.WaitGroup
	for _, site := range s.sites {
		sites.Go(func() {
			if err := site.lone.Close(ctx, why); err != nil {
				f.o.Log.Warn("an MCP server of a closed session has not ended", "server", site.name, "error", err)
			}
		})
	}
	if f.o.Server != nil {
		f.dismiss(ctx, s.run.ID(), why, grace)
	}
	sites.Wait()
}

func (f *Front) dismiss(ctx context.Context, run belay.RunID, why belay.Cancellation, grace time.Duration) {
	soon, done := context.WithTimeoutCause(ctx, grace, errTime)
	defer done()
	if f.o.Server.AwaitChildren(soon, run) == nil {
		return
	}
	f.o.Log.Info("the agent has not ended the MCP servers of a closed session; they are told to", "pids", f.o.Server.Children(run))
	f.o.Server.Dismiss(run, why)
	if err := f.o.Server.AwaitChildren(ctx, run); err != nil {
		f.o.Log.Warn("MCP servers of a closed session are still there", "pids", f.o.Server.Children(run), "error", err)
	}
}

// End closes every session, stops listening, and waits until all is over or ctx
// is; it then returns the cause. Nothing is rewritten any more. It may be called
// again.
func (f *Front) End(ctx context.Context) error {
	f.mu.Lock()
	for id := range f.sessions {
		if s := f.dropLocked(id); s != nil {
			f.wg.Go(func() { f.end(ctx, s, lastGrace) })
		}
	}
	f.closed = true
	server, served := f.http, f.served
	f.mu.Unlock()
	over := make(chan struct{})
	go func() { // ends with what it waits for
		defer close(over)
		f.wg.Wait()
		if server != nil {
			_ = server.Close()
			<-served
		}
	}()
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// site is one server that is reached by HTTP.
type site struct {
	path string // 130 random bits
	name string
	of   entry // that it was made for
	lone *serve.Lone
}
