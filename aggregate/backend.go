package aggregate

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
	"github.com/belayhq/belay/mcp/httpserver"
)

// Member is one server of the aggregate.
type Member struct {
	Name    string             // stands in front of its tools; unique, and without "__"
	Backend httpserver.Backend // the server's own, of a comparable type; another value is another definition
}

// Config are the settings of a [Backend]. Members is required; the zero value of
// any other field means its default.
type Config struct {
	// Members lists the servers, in the order in which their lists are joined. It
	// is called often and concurrently, has to be cheap, and may return others
	// each time. Of several with one name the first counts, and no more than 256
	// in all.
	Members func() []Member

	Name    string       // of the joined server, in its serverInfo; default belay
	Version string       // likewise; default dev
	Log     *slog.Logger // nil: nothing

	// PassCancels says that nobody here acts on a cancel of the caller (ORC-64):
	// those of calls go to the member that has them, which passes them on; those of
	// what is answered here, lists for example, change nothing. A modern caller's
	// closed exchange goes the same way.
	PassCancels bool

	// ListWait is how long a member may take for its part of a list; 0: 10 s.
	ListWait time.Duration
	// OpenWait is how long initialize waits for members; those that are not there
	// by then come later. 0: 10 s.
	OpenWait time.Duration
}

// Bounds of a Backend.
const (
	maxMembers = 256
	maxShared  = 1000        // principals at once
	sharedIdle = time.Minute // before a principal's session may make room
)

func (c Config) withDefaults() Config {
	if c.Name == "" {
		c.Name = "belay"
	}
	if c.Version == "" {
		c.Version = "dev"
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.ListWait == 0 {
		c.ListWait = 10 * time.Second
	}
	if c.OpenWait == 0 {
		c.OpenWait = 10 * time.Second
	}
	return c
}

// Backend is one server that is made of several. It must be ended with Close.
type Backend struct {
	cfg Config

	mu       sync.Mutex // guards the fields below; no session's lock is taken with it held
	sessions map[*session]struct{}
	shared   map[string]*session // by principal
	closed   bool
}

var _ httpserver.Backend = (*Backend)(nil)

// New returns a Backend. Nothing is opened before a caller wants something.
func New(cfg Config) *Backend {
	return &Backend{cfg: cfg.withDefaults(), sessions: map[*session]struct{}{}, shared: map[string]*session{}}
}

// members lists the members that count, in their order.
func (b *Backend) members() []Member {
	all := b.cfg.Members()
	list := make([]Member, 0, len(all))
	seen := make(map[string]bool, len(all))
	for _, m := range all {
		if m.Name == "" || m.Backend == nil || seen[m.Name] || len(list) == maxMembers {
			continue
		}
		seen[m.Name] = true
		list = append(list, m)
	}
	return list
}

// Open implements [httpserver.Backend]. Members are opened when the caller
// sends initialize.
func (b *Backend) Open(_ context.Context, who httpserver.Caller, out mcp.Outlet) (httpserver.Session, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, belay.ErrClosed
	}
	who.Part = true // to the members
	s := newSession(b, who, out, mcp.Legacy)
	b.sessions[s] = struct{}{}
	return s, nil
}

// Shared implements [httpserver.Backend]. The session holds nothing open.
func (b *Backend) Shared(_ context.Context, who httpserver.Caller) (httpserver.Session, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, belay.ErrClosed
	}
	s := b.shared[who.Principal]
	if s == nil {
		if len(b.shared) >= maxShared && !b.makeRoomLocked() {
			return nil, httpserver.ErrBusy
		}
		s = newSession(b, who, nowhere{}, mcp.Modern)
		b.shared[who.Principal] = s
		b.sessions[s] = struct{}{}
	}
	s.used.Store(time.Now().UnixNano())
	return s, nil
}

// makeRoomLocked forgets a shared session that nobody uses. It is not closed:
// it holds nothing, and an exchange may just have got it.
func (b *Backend) makeRoomLocked() bool {
	for who, s := range b.shared {
		if time.Since(time.Unix(0, s.used.Load())) > sharedIdle && s.open.Load() == 0 {
			delete(b.shared, who)
			delete(b.sessions, s)
			return true
		}
	}
	return false
}

func (b *Backend) forget(s *session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.sessions, s)
}

// Changed says that Members has others now: open sessions take them up at once,
// and tell their callers. Without it they do so when the next list is asked for.
// It does not wait.
func (b *Backend) Changed() {
	b.mu.Lock()
	all := slices.Collect(maps.Keys(b.sessions))
	b.mu.Unlock()
	for _, s := range all {
		s.refresh()
	}
}

// Close ends every session with c and refuses new ones. It may be called again;
// ctx bounds only the waiting.
func (b *Backend) Close(ctx context.Context, c belay.Cancellation) error {
	b.mu.Lock()
	b.closed = true
	all := slices.Collect(maps.Keys(b.sessions))
	b.mu.Unlock()
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, s := range all {
		wg.Go(func() { errs[i] = s.Close(ctx, c) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// nowhere takes what belongs to no request of a modern caller (MCP-74).
type nowhere struct{}

// Send implements [mcp.Outlet].
func (nowhere) Send([]byte, ...jsonrpc.Edit) error { return nil }

// Answer implements [mcp.Outlet].
func (nowhere) Answer(int, []byte, ...jsonrpc.Edit) error { return nil }

// Drop implements [mcp.Outlet].
func (nowhere) Drop() {}
