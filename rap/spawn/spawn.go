package spawn

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/peers"
	"github.com/belayhq/belay/proc"
	"github.com/belayhq/belay/rap"
	"github.com/belayhq/belay/supervise"
)

// Options describe the command. Name and Command are required; the zero value of
// any other field means its default.
type Options struct {
	Name    string   // for the log
	Command []string // the program and its arguments
	Env     []string // nil: this program's own without the user's token ([proc.Environment])
	Dir     string
	Stderr  *os.File     // nil: this program's own
	Facts   *peers.Facts // nil: the built-in ones
	Cgroup  proc.CgroupMode
	Log     *slog.Logger // nil: nowhere

	StartWait time.Duration // until the port is known; default 30 s
	Grace     time.Duration // at the end, from SIGINT to SIGTERM; default 0.5 s
}

// ErrStart says that the command could not be made a tool server.
var ErrStart = errors.New("the tool server did not start")

// Server is a command that is started when it is needed. Safe for concurrent
// use; it must be ended with Close.
type Server struct {
	o   Options
	log *slog.Logger

	mu       sync.Mutex // guards the fields below
	current  *instance  // nil: none runs
	starting *start     // nil: nobody starts one
	closed   bool
	life     context.Context
	end      context.CancelCauseFunc
	wg       sync.WaitGroup // of starts and instances; Add under mu while !closed
}

var (
	_ rap.Process  = (*Server)(nil)
	_ rap.Instance = (*instance)(nil)
)

// start is one attempt.
type start struct {
	done chan struct{} // closed when in or err is set
	in   *instance
	err  error
}

// New returns a server of which nothing runs yet.
func New(o Options) *Server {
	if o.StartWait <= 0 {
		o.StartWait = 30 * time.Second
	}
	if o.Grace <= 0 {
		o.Grace = 500 * time.Millisecond
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{o: o, log: o.Log.With("server", o.Name)}
	s.life, s.end = context.WithCancelCause(context.Background())
	return s
}

// Start implements [rap.Process]. Errors wrap [ErrStart], [belay.ErrClosed], or
// are the cause of ctx.
func (s *Server) Start(ctx context.Context) (rap.Instance, error) {
	s.mu.Lock()
	if in := s.current; in != nil && !in.over() {
		s.mu.Unlock()
		return in, nil
	}
	if s.closed {
		s.mu.Unlock()
		return nil, fmt.Errorf("start %s: %w", s.o.Name, belay.ErrClosed)
	}
	at := s.starting
	if at == nil {
		at = &start{done: make(chan struct{})}
		s.starting = at
		s.wg.Go(func() { s.begin(at) })
	}
	s.mu.Unlock()
	select {
	case <-at.done:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if at.err != nil {
		return nil, at.err
	}
	return at.in, nil
}

// Current implements [rap.Process].
func (s *Server) Current() rap.Instance {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil || s.current.over() {
		return nil
	}
	return s.current
}

// begin starts one process for all who wait for it.
func (s *Server) begin(at *start) {
	in, err := s.run()
	s.mu.Lock()
	defer s.mu.Unlock()
	defer close(at.done)
	s.starting = nil
	at.in, at.err = in, err
	if in != nil {
		s.current = in
	}
}

// run starts a process tree and waits for its port.
func (s *Server) run() (*instance, error) {
	ctx, end := context.WithTimeoutCause(s.life, s.o.StartWait, fmt.Errorf("%w: %s has not said its port within %v", ErrStart, s.o.Name, s.o.StartWait))
	defer end()
	env := s.o.Env
	if env == nil {
		env = proc.Environment()
	}
	env = append(slices.DeleteFunc(slices.Clone(env), func(e string) bool { return strings.HasPrefix(e, embedded+"=") }), embedded+"=1")
	stderr := s.o.Stderr
	if stderr == nil {
		stderr = os.Stderr
	}
	tree, err := supervise.Start(ctx, proc.Config{
		Path: s.o.Command[0], Args: s.o.Command[1:], Env: env, Dir: s.o.Dir, Label: "rap-" + s.o.Name, Stderr: stderr, Cgroup: s.o.Cgroup,
	}, s.o.Facts)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStart, err)
	}
	in := &instance{server: s, tree: tree, gone: make(chan struct{})}
	port := make(chan result, 1)
	s.wg.Go(func() { in.read(port) })
	s.wg.Go(in.keep)
	var got result
	select {
	case got = <-port:
	case <-ctx.Done():
		got.err = context.Cause(ctx)
	}
	if got.err != nil {
		in.finish(context.WithoutCancel(ctx), 0)
		return nil, got.err
	}
	in.base = fmt.Sprintf("http://127.0.0.1:%d", got.port)
	s.log.Info("a tool server was started", "pid", tree.PID(), "port", got.port)
	return in, nil
}

// embedded is the variable by which the command knows that it is spawned.
const embedded = "RAP_EMBEDDED"

// result is the first line.
type result struct {
	port int
	err  error
}

// maxFirst bounds the first line, maxLine what is logged of others.
const (
	maxFirst = 4 << 10
	maxLine  = 1 << 10
)

// readPort reads the first line of a tool server (RAP-95).
func readPort(line []byte) (int, error) {
	var first struct {
		Port *int `json:"port"`
	}
	if len(line) > maxFirst {
		return 0, fmt.Errorf("%w: its first line has more than %d bytes; it has to be {\"port\": N}", ErrStart, maxFirst)
	}
	if err := json.Unmarshal(line, &first); err != nil || first.Port == nil || *first.Port < 1 || *first.Port > 65535 {
		return 0, fmt.Errorf("%w: its first line has to be {\"port\": N} with a port from 1 to 65535, not %.100q", ErrStart, line)
	}
	return *first.Port, nil
}

// instance is one process tree.
type instance struct {
	server *Server
	tree   *supervise.Tree
	base   string
	gone   chan struct{} // closed when every process has ended

	mu    sync.Mutex
	proof *belay.Evidence // what the end proves, as whoever ended it has seen it
}

// read takes the first line, and logs the others.
func (in *instance) read(port chan<- result) {
	lines := bufio.NewReaderSize(in.tree.Stdout(), maxFirst+1)
	first, err := lines.ReadSlice('\n')
	switch {
	case err == nil || errors.Is(err, io.EOF) && len(first) > 0:
		n, err := readPort(first)
		port <- result{n, err}
	case errors.Is(err, bufio.ErrBufferFull):
		_, err := readPort(first)
		port <- result{0, err}
	default:
		port <- result{0, fmt.Errorf("%w: it has ended before it said its port", ErrStart)}
	}
	for err == nil || errors.Is(err, bufio.ErrBufferFull) {
		var line []byte
		if line, err = lines.ReadSlice('\n'); len(line) > 0 {
			in.server.log.Debug("a tool server says", "line", strings.TrimSpace(string(line[:min(len(line), maxLine)])))
		}
	}
}

// keep waits for the end of every process.
func (in *instance) keep() {
	<-in.tree.Done()
	// What the leader leaves behind is not the server any more.
	in.finish(context.Background(), 0)
	in.server.log.Info("a tool server has ended")
	close(in.gone)
}

func (in *instance) over() bool {
	select {
	case <-in.tree.Done():
		return true
	default:
		return false
	}
}

// Base implements [rap.Instance].
func (in *instance) Base() string { return in.base }

// Done implements [rap.Instance].
func (in *instance) Done() <-chan struct{} { return in.gone }

// Evidence implements [rap.Instance].
func (in *instance) Evidence() belay.Evidence {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.proof != nil {
		return *in.proof
	}
	return belay.Evidence{Kind: belay.SeenSurvivors, Detail: "the end of the tool server's processes was not seen"}
}

func (in *instance) saw(e *belay.Evidence) *belay.Evidence {
	if e != nil {
		in.mu.Lock()
		defer in.mu.Unlock()
		if in.proof == nil || e.Kind == belay.SeenProcessGone {
			in.proof = e
		}
	}
	return e
}

// Interrupt implements [rap.Instance]: SIGINT to the group.
func (in *instance) Interrupt(ctx context.Context) (*belay.Evidence, error) {
	if err := in.tree.Interrupt(ctx, nil); err != nil {
		return nil, err
	}
	return in.await(ctx), nil
}

// await returns the evidence of an end that comes by itself.
func (in *instance) await(ctx context.Context) *belay.Evidence {
	select {
	case <-in.gone:
		e := in.Evidence()
		return &e
	case <-ctx.Done():
		return nil
	}
}

// Terminate implements [rap.Instance]: SIGTERM.
func (in *instance) Terminate(ctx context.Context) (*belay.Evidence, error) {
	e, err := in.tree.Terminate(ctx, supervise.Whole(), belay.DefaultGrace/2)
	return in.saw(e), err
}

// Kill implements [rap.Instance]: SIGKILL.
func (in *instance) Kill(ctx context.Context) (*belay.Evidence, error) {
	e, err := in.tree.Kill(ctx, supervise.Whole())
	return in.saw(e), err
}

// finish ends the tree for good: SIGINT, then, after grace, what proc has for the
// end of a tree.
func (in *instance) finish(ctx context.Context, grace time.Duration) {
	if grace > 0 && in.tree.Interrupt(ctx, nil) == nil {
		timer := time.NewTimer(grace)
		select {
		case <-in.tree.Gone():
		case <-timer.C:
		}
		timer.Stop()
	}
	e, err := in.tree.End(ctx)
	if err != nil {
		in.server.log.Warn("processes of a tool server are still alive", "error", err)
	}
	in.saw(e)
}

// Close ends the process tree, if there is one, refuses further starts, and waits
// as long as ctx allows.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	in := s.current
	s.mu.Unlock()
	s.end(fmt.Errorf("start %s: %w", s.o.Name, belay.ErrClosed))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if in != nil {
			in.finish(context.WithoutCancel(ctx), s.o.Grace)
		}
		s.wg.Wait()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
