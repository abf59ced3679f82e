package gateway

import (
	"context"
	"errors"
	"fmt"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
)

// wire carries messages to one server: pipes, or HTTP (see web.go). None of its
// methods but tell waits for the server.
type wire interface {
	// request sends the request of a call, which has its id of ours.
	request(c *call, params []mcp.HeaderParam, frame []byte, edits ...jsonrpc.Edit) error

	// send sends anything else, in the order in which it is called.
	send(frame []byte, edits ...jsonrpc.Edit) error

	// urge sends a request of ours that must not wait behind others. wait returns
	// when it was written; nil: only its answer tells.
	urge(frame []byte) (wait func(ctx context.Context) error, err error)

	// withdraw takes the request of a call back, if not a byte of it was
	// written, and reports whether it could (MCP-G16).
	withdraw(c *call) bool

	// tell delivers the Stop of a call on its own way to the server, and
	// returns when it is delivered (MCP-G19, MCP-G20). Evidence is returned if
	// the server never got the request.
	tell(ctx context.Context, c *call, reason string) (*belay.Evidence, error)

	// forget lets go of what waits for the answer to a call that is over for
	// everybody.
	forget(c *call)

	// hangUp ends the traffic at once. What is queued is lost.
	hangUp()
}

// errGone says that there is nobody to be told.
var errGone = fmt.Errorf("%w: the server's process has ended", belay.ErrUnreachable)

// pipe is the wire to a server that reads lines: a process, or one inside this
// process.
type pipe struct{ in *jsonrpc.Writer }

func (p pipe) request(c *call, _ []mcp.HeaderParam, frame []byte, edits ...jsonrpc.Edit) (err error) {
	c.seq, err = p.in.SendFrame(frame, edits...)
	return err
}

func (p pipe) send(frame []byte, edits ...jsonrpc.Edit) error {
	_, err := p.in.SendFrame(frame, edits...)
	return err
}

func (p pipe) urge(frame []byte) (func(context.Context) error, error) {
	seq, err := p.in.SendUrgentFrame(0, frame)
	return func(ctx context.Context) error { return p.in.Wait(ctx, seq) }, err
}

func (p pipe) withdraw(c *call) bool { return p.in.Withdraw(c.seq) }

func (p pipe) tell(ctx context.Context, c *call, reason string) (*belay.Evidence, error) {
	told, err := p.in.SendUrgent(c.seq, func(dst []byte) []byte {
		return mcp.AppendCancelled(dst, c.upID, reason, c.era)
	})
	if err == nil {
		err = p.in.Wait(ctx, told)
	}
	if err != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("%w: %w", errGone, err)
	}
	return nil, nil
}

func (p pipe) forget(*call) {}

func (p pipe) hangUp() { p.in.CloseNow() }

// unforced says why nothing can be forced on a server that is no process of
// ours.
func (c *Config) unforced() string {
	if c.URL != "" {
		return "the server was told; " + c.beyondForce()
	}
	return "the tool was told; " + c.beyondForce()
}

// beyondForce is why nobody here can use force.
func (c *Config) beyondForce() string {
	if c.URL != "" {
		return "it is remote, and nobody here can use force on it"
	}
	return "it runs inside Belay, where nothing is forced"
}

// lines is the outlet of a caller that reads lines: all of its messages go
// there, in the order in which they came.
type lines struct{ out *jsonrpc.Writer }

func (l lines) Send(frame []byte, edits ...jsonrpc.Edit) error {
	_, err := l.out.SendFrame(frame, edits...)
	return err
}

func (l lines) Answer(_ int, frame []byte, edits ...jsonrpc.Edit) error {
	return l.Send(frame, edits...)
}

func (l lines) Drop() {}

// sendLocked queues a message for the caller without waiting. A caller that
// leaves 32 MiB unread has stopped being one.
func (s *Session) sendLocked(to mcp.Outlet, frame []byte) {
	s.unreadLocked(to.Send(frame))
}

// settleLocked is sendLocked for the response to a request.
func (s *Session) settleLocked(to mcp.Outlet, frame []byte) {
	s.unreadLocked(to.Answer(0, frame))
}

func (s *Session) unreadLocked(err error) {
	if errors.Is(err, jsonrpc.ErrQueueFull) && s.lines != nil {
		s.failLocked(fmt.Errorf("the caller does not read its answers: %w", err))
	}
}

// forward passes a message of the server on to the caller. While a caller on a
// pipe does not read, the server's pump waits here, and so in the end the
// server. An outlet of one request ends itself instead: others must not wait.
func (s *Session) forward(to mcp.Outlet, frame []byte, edits ...jsonrpc.Edit) {
	if err := s.pass(to, frame, edits...); err != nil {
		s.log.Debug("a message to the caller was dropped", "error", err)
	}
}

// pass is forward that says if the message will not arrive.
func (s *Session) pass(to mcp.Outlet, frame []byte, edits ...jsonrpc.Edit) error {
	for {
		err := to.Send(frame, edits...)
		if !errors.Is(err, jsonrpc.ErrQueueFull) || s.lines == nil || !s.pause(childPoll) {
			return err
		}
	}
}

// forwardAnswer is forward for the response to a request.
func (s *Session) forwardAnswer(to mcp.Outlet, status int, frame []byte, edits ...jsonrpc.Edit) {
	for {
		err := to.Answer(status, frame, edits...)
		if !errors.Is(err, jsonrpc.ErrQueueFull) || s.lines == nil || !s.pause(childPoll) {
			return
		}
	}
}

// outlet is where what concerns a call goes; of a nil call, the session's own.
func (s *Session) outlet(c *call) mcp.Outlet {
	if c != nil && c.to != nil {
		return c.to
	}
	return s.home
}
