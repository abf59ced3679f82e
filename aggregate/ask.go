package aggregate

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
	"github.com/belayhq/belay/mcp/httpserver"
)

// target is one member of a request that goes to several, with what is different
// in it for that member.
type target struct {
	name  string
	edits []jsonrpc.Edit
}

// reply is what came of it.
type reply struct {
	name string
	m    *mcp.Message // the answer, a result
	err  error        // there is none
}

// refusal is an error response of a member.
type refusal struct {
	code int
	text string
}

func (e *refusal) Error() string { return fmt.Sprintf("it answered %d: %s", e.code, e.text) }

var errDropped = errors.New("it dropped the request")

// askAll sends a request to several members at once and waits for all of them,
// as long as ctx allows. Replies are in the order of targets. What members say
// meanwhile goes to out.
func (s *session) askAll(ctx context.Context, frame []byte, targets []target, out mcp.Outlet) []reply {
	replies := make([]reply, len(targets))
	var wg sync.WaitGroup
	for i, t := range targets {
		wg.Go(func() {
			r := &replies[i]
			r.name = t.name
			on, err := s.reach(ctx, t.name)
			if err == nil {
				r.m, err = s.askOn(ctx, t.name, on, frame, out, t.edits...)
			}
			r.err = err
		})
	}
	wg.Wait()
	return replies
}

// askOn sends a copy of a request to one member, under an id and an exchange of
// ours, and waits for the result. When ctx ends first, the member is told.
// Everything but a result is an error, a [*refusal] if the member sent one.
func (s *session) askOn(ctx context.Context, name string, on httpserver.Session, frame []byte, out mcp.Outlet, edits ...jsonrpc.Edit) (*mcp.Message, error) {
	m, err := edited(frame, func(m *mcp.Message) []jsonrpc.Edit {
		return append([]jsonrpc.Edit{{At: m.IDAt, New: []byte(s.ids.Next().Raw())}}, edits...)
	})
	if err != nil {
		return nil, err
	}
	w := &waiter{s: s, name: name, on: on, out: out, got: make(chan []byte, 1)}
	exchange := nextExchange()
	on.Deliver(mcp.Arrival{Message: m, To: w, Exchange: exchange, ByExchange: true})
	select {
	case answer, ok := <-w.got:
		return readResult(answer, ok)
	case <-ctx.Done():
		w.close()
		on.Abandon(exchange, *cancellation(ctx))
		return nil, context.Cause(ctx)
	case <-on.Ended():
	}
	select { // it was answered before the end, or never will be
	case answer, ok := <-w.got:
		return readResult(answer, ok)
	default:
		return nil, errAway
	}
}

func readResult(answer []byte, ok bool) (*mcp.Message, error) {
	if !ok {
		return nil, errDropped
	}
	m := &mcp.Message{}
	if err := m.Read(answer); err != nil {
		return nil, err
	}
	if m.IsError() {
		code, _ := m.ErrorCode()
		if code == mcp.CodeVersionUnknown {
			at, _, _ := jsonrpc.Path(m.Frame, m.Error, "data", "supported")
			return nil, &httpserver.EraError{Supported: versions(m.Frame, at)}
		}
		at, _, _ := jsonrpc.Member(m.Frame, m.Error, "message")
		return nil, &refusal{code, textAt(m.Frame, at, maxReason)}
	}
	return m, nil
}

// versions reads an array of protocol versions.
func versions(frame []byte, s jsonrpc.Span) []string {
	var list []string
	for e := range jsonrpc.Elements(frame, s) {
		if text := textAt(frame, e, 64); text != "" && len(list) < 32 {
			list = append(list, text)
		}
	}
	return list
}

// maxReason bounds what is repeated of a member's error.
const maxReason = 1 << 10

// textAt is the JSON string at s, "" if there is none or it is too long.
func textAt(frame []byte, s jsonrpc.Span, limit int) string {
	if !s.Ok() {
		return ""
	}
	text, err := jsonrpc.ReadString(frame, s, limit)
	if err != nil {
		return ""
	}
	return text
}

// edited is a message of its own: frame with the edits that change gives for it.
func edited(frame []byte, change func(*mcp.Message) []jsonrpc.Edit) (*mcp.Message, error) {
	m := &mcp.Message{}
	if err := m.Read(frame); err != nil {
		return nil, err
	}
	out := &mcp.Message{}
	return out, out.Read(jsonrpc.AppendSplice(make([]byte, 0, len(frame)+64), frame, change(m)...))
}

// waiter is the outlet of a request of ours.
type waiter struct {
	s    *session
	name string
	on   httpserver.Session
	out  mcp.Outlet // takes what the member says meanwhile; nil: the session's own
	got  chan []byte

	mu   sync.Mutex
	done bool
}

var _ mcp.Outlet = (*waiter)(nil)

// close takes no more; false if something was taken before.
func (w *waiter) close() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	done := w.done
	w.done = true
	return !done
}

// Send implements [mcp.Outlet]. Progress is of one of several, and means nothing
// to the caller.
func (w *waiter) Send(frame []byte, edits ...jsonrpc.Edit) error {
	var e jsonrpc.Envelope
	if jsonrpc.Parse(frame, &e) == nil && e.Method == mcp.NoticeProgress {
		return nil
	}
	out := w.out
	if out == nil {
		out = w.s.home
	}
	return w.s.said(w.name, w.on, nil, out, frame, edits)
}

// Answer implements [mcp.Outlet].
func (w *waiter) Answer(_ int, frame []byte, edits ...jsonrpc.Edit) error {
	if !w.close() {
		return errOver
	}
	w.got <- jsonrpc.AppendSplice(make([]byte, 0, len(frame)+64), frame, edits...) // capacity 1, one answer
	return nil
}

// Drop implements [mcp.Outlet].
func (w *waiter) Drop() {
	if w.close() {
		close(w.got)
	}
}
