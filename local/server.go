package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/belayhq/belay"
)

// Bounds of a server.
const (
	maxRequests = 64   // connections that want an answer
	maxLasting  = 1024 // watchers and attached children: each session of an editor has one for each of its servers
)

// drainTime is how long Close lets answers finish that are on their way: a
// process that ends because it was stopped must still say so.
const drainTime = time.Second

// Attacher is what a [belay.Control] needs beside it so that other processes
// can hang their runs below its own; [*belay.Tree] has it.
type Attacher interface {
	Attach(id belay.RunID, fn func(belay.CancelRequest)) (detach func(), err error)
}

// Options are the settings of a [Server].
type Options struct {
	Dir     string        // the runtime directory; required, see [Dir]
	Control belay.Control // the runs to serve; required; tickets work if it is an [Attacher] too
	Fronts  string        // what this process stands in front of, for people
	Version string        // of the program, for people

	// InTree names the runs (by their text ids) inside whose process trees
	// the process pid lies. Nil: none. It is called for each connection
	// and must be quick.
	InTree func(pid int) []string

	// Parent is where this process's own runs hang, if it was given a ticket.
	Parent *Parent

	// Place says below which runs a call of an attached child may hang, the most
	// fitting first; see [Parent.Place]. ticket is the run that the child is
	// attached to, below which the call hangs if none of them is there any more.
	// Nil: always that one. It is called concurrently; meanwhile nothing else of that
	// child is answered, which waits for a quarter of a second at most.
	Place func(ticket belay.RunID, call Asked) []belay.RunID

	// Approvals are what waits for a person here; nil: nothing is shown or answered.
	Approvals belay.Approvals
	// Barred says of a process that it may answer none of it, beside those that lie
	// inside a run's process tree. Nil: of none.
	Barred func(pid int) bool

	Log *slog.Logger // nil: nothing is logged
}

// Server is this process as others see it. Make one with [Listen].
type Server struct {
	opts     Options
	control  belay.Control
	attacher Attacher // nil: no tickets
	listener *net.UnixListener
	path     string
	key      ticketKey
	hello    hello
	log      *slog.Logger
	wg       sync.WaitGroup

	ctx  context.Context // ends when Close begins; ends watches and attachments
	end  context.CancelCauseFunc
	hard context.Context // ends when Close has waited long enough; ends everything
	cut  context.CancelCauseFunc

	mu       sync.Mutex // guards the fields below
	requests int
	lasting  int
	closed   bool
	children map[*attachment]struct{}
}

var errServerClosed = fmt.Errorf("%w: the Belay process is ending", belay.ErrClosed)

// Listen makes the runtime directory if need be, binds this process's socket
// in it and serves until Close. It fails with an error that wraps
// [belay.ErrForbidden] for a directory that is not private, and
// [belay.ErrBadRequest] for one that cannot be used at all. ctx limits the
// set-up only.
func Listen(ctx context.Context, o Options) (*Server, error) {
	if err := MakeDir(o.Dir); err != nil {
		return nil, err
	}
	l, path, err := listenAt(ctx, o.Dir)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		_ = l.Close()
		_ = os.Remove(path)
		return nil, err
	}
	s := &Server{
		opts: o, control: o.Control, listener: l, path: path, key: newTicketKey(), log: o.Log,
		hello: hello{
			Belay: protocolVersion, Pid: os.Getpid(), Started: startTime(os.Getpid()),
			Version: o.Version, Command: boundedCommand(os.Args), Fronts: belay.CleanReason(o.Fronts),
		},
	}
	s.attacher, _ = o.Control.(Attacher)
	s.children = make(map[*attachment]struct{})
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.ctx, s.end = context.WithCancelCause(context.Background())
	s.hard, s.cut = context.WithCancelCause(context.Background())
	s.wg.Go(s.accept)
	return s, nil
}

// boundedCommand keeps a command line short enough for a greeting.
func boundedCommand(args []string) []string {
	const limit = 1024
	var kept []string
	total := 0
	for _, a := range args {
		if total += len(a); total > limit {
			return append(kept, "…")
		}
		kept = append(kept, a)
	}
	return kept
}

// Path is the socket's path.
func (s *Server) Path() string { return s.path }

// Ticket is the value of [EnvParent] for a process that is started on behalf
// of run: it allows attaching below that run, nothing else, as long as this
// server lives. It holds a secret; do not log it.
func (s *Server) Ticket(run belay.RunID) string { return s.key.mint(run, s.path) }

// Close takes the socket away, ends watches and attachments, lets answers
// that are being given finish for a second, and waits. It may be called more
// than once.
func (s *Server) Close() error {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	s.mu.Unlock()
	if first {
		_ = os.Remove(s.path)
		_ = s.listener.Close()
		s.end(errServerClosed)
		late := time.AfterFunc(drainTime, func() { s.cut(errServerClosed) })
		defer late.Stop()
	}
	s.wg.Wait()
	s.cut(errServerClosed)
	return nil
}

func (s *Server) accept() {
	for {
		c, err := s.listener.AcceptUnix()
		switch {
		case err == nil:
			s.start(c)
		case errors.Is(err, net.ErrClosed):
			return
		default:
			// Out of descriptors, most likely: others will become free.
			s.log.Warn("local socket: accept", "error", err)
			select {
			case <-s.ctx.Done():
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
}

// start serves one connection in a goroutine of its own, or refuses it.
func (s *Server) start(c *net.UnixConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		_ = c.Close()
	case s.requests >= maxRequests:
		s.wg.Go(func() {
			s.refuse(c, fmt.Errorf("%w: %d connections to pid %d are open", belay.ErrTooMany, maxRequests, s.hello.Pid))
		})
	default:
		s.requests++
		s.wg.Go(func() { s.serve(c) })
	}
}

func (s *Server) refuse(c *net.UnixConn, why error) {
	h := hello{Belay: protocolVersion, Pid: s.hello.Pid, Error: faultOf(why)}
	_ = newWire(c).send(h)
	_ = c.Close()
}

// last turns a connection that asked a question into a lasting one, which
// counts elsewhere. done gives the place back.
func (s *Server) last() (done func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lasting >= maxLasting {
		return nil, fmt.Errorf("%w: %d watchers and children are connected to pid %d", belay.ErrTooMany, maxLasting, s.hello.Pid)
	}
	s.lasting++
	s.requests--
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.lasting--
		s.requests++
	}, nil
}

// serve is one connection from its greeting to its end.
func (s *Server) serve(c *net.UnixConn) {
	defer func() {
		_ = c.Close()
		s.mu.Lock()
		s.requests--
		s.mu.Unlock()
	}()
	p, err := checkPeer(c)
	if err != nil {
		s.log.Warn("local socket: refused a connection", "error", err)
		s.refuse(c, err)
		return
	}
	defer context.AfterFunc(s.hard, func() { _ = c.Close() })()
	// Before the greeting: nobody asks anything without it, so that a peer
	// which does not live to see it has asked for nothing.
	if s.opts.InTree != nil && p.pid > 0 {
		p.inside, p.gone = s.opts.InTree(p.pid), !alive(p.pid)
	}
	w := newWire(c)
	if w.send(s.hello) != nil {
		return
	}
	var req request
	mute := context.AfterFunc(s.ctx, func() { _ = c.Close() })
	err = w.receive(&req, maxRequest, requestTime)
	if mute(); err != nil {
		if errors.Is(err, belay.ErrBadRequest) {
			_ = w.send(answer{Error: faultOf(err)})
			_ = w.send(answer{Done: true})
		}
		return
	}
	s.answer(w, p, &req)
}

// answer carries the request out. The context ends when the asker hangs up,
// which ends waiting and watching, and nothing else.
func (s *Server) answer(w *wire, p peer, req *request) {
	ctx, end := context.WithCancelCause(s.hard)
	gone := make(chan struct{})
	asks := make(chan *where)
	go func() { // ends with the connection, at the latest when this function closes it
		defer close(gone)
		if req.Op == opAttach {
			hear(ctx, w, asks)
		} else {
			var none answer
			_ = w.receive(&none, maxRequest, 0)
		}
		end(errHungUp)
	}()
	beats := make(chan struct{})
	go func() {
		defer close(beats)
		if req.Op != opAttach { // those last for hours, and end with the process
			beat(ctx, w, end)
		}
	}()
	defer func() {
		end(errHungUp)
		_ = w.conn.Close()
		<-gone
		<-beats
	}()
	err := s.dispatch(ctx, w, p, req, asks)
	if err != nil && w.send(answer{Error: faultOf(err)}) != nil {
		return
	}
	_ = w.send(answer{Done: true})
}

// beat shows that the process lives while an answer takes its time, until ctx
// ends or nobody takes it.
func beat(ctx context.Context, w *wire, end context.CancelCauseFunc) {
	t := time.NewTicker(beatEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if err := w.send(answer{Beat: true}); err != nil {
			end(errHungUp)
			return
		}
	}
}

var errHungUp = errors.New("the asker hung up")

func (s *Server) dispatch(ctx context.Context, w *wire, p peer, req *request, asks <-chan *where) error {
	switch req.Op {
	case opHello:
		return nil
	case opList:
		return s.list(ctx, w, req.Filter)
	case opGet:
		d, err := s.control.Get(ctx, req.Run)
		if err != nil {
			return err
		}
		return w.send(answer{Detail: &d})
	case opCancel:
		if req.Cancel == nil {
			return fmt.Errorf("%w: cancel without its parameters", belay.ErrBadRequest)
		}
		return s.cancel(ctx, w, p, *req.Cancel)
	case opWatch:
		return s.watch(ctx, w, req.Filter)
	case opAttach:
		return s.attach(ctx, w, p, req.Ticket, asks)
	case opApprovals:
		return s.approvals(ctx, w, req.Filter)
	case opDecide:
		return s.decide(ctx, w, p, req)
	case opPreview:
		return s.preview(ctx, w, p, req.Approval)
	}
	return fmt.Errorf("%w: this Belay (version %q) does not know the operation %.32q", belay.ErrBadRequest, s.hello.Version, req.Op)
}
