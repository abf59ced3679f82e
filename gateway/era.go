package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
	"github.com/belayhq/belay/mcp/httpclient"
)

// ErrEra says that the server does not speak the protocol era of the caller.
var ErrEra = errors.New("the server does not speak this protocol era")

// probeWait is how long a server may take to answer the question which era it
// speaks, once it is up; silence means the legacy one (MCP-69).
const probeWait = 10 * time.Second

// speaksModern asks a server on a pipe, before a session of modern callers is
// opened on it, whether it speaks that era (MCP-69, MCP-G4). One that is reached
// by HTTP says so itself with every answer.
func (s *Session) speaksModern(ctx context.Context, u *upstream) error {
	switch {
	case !s.cfg.Modern:
		return nil
	case s.cfg.URL != "" && s.cfg.Transport == httpclient.SSE:
		return fmt.Errorf("%w: server %q is reached by HTTP+SSE, which is of 2024-11-05", ErrEra, s.cfg.Name)
	case s.cfg.URL != "":
		return nil
	}
	ctx, end := context.WithTimeoutCause(ctx, probeWait, ErrEra)
	defer end()
	m, err := u.discover(ctx)
	switch {
	case errors.Is(err, ErrEra):
		return fmt.Errorf("%w: server %q did not answer within %v", ErrEra, s.cfg.Name, probeWait)
	case err != nil:
		return err
	case !m.SpeaksModern():
		return fmt.Errorf("%w: server %q does not know %s", ErrEra, s.cfg.Name, mcp.Revision26)
	}
	return nil
}

// discover asks the server what it is, as a modern caller would.
func (u *upstream) discover(ctx context.Context) (*mcp.Message, error) {
	s := u.s
	params := mcp.ModernParams()
	m, err := u.ask(ctx, mcp.MethodDiscover, params)
	if err != nil || m.IsError() {
		return m, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stood = true
	s.hand.Discovered(params, m)
	s.learnAcksLocked()
	return m, nil
}

// discoverSoon is discover for a server that is reached by HTTP: nobody waits
// for it. What it does not answer it does not have.
func (s *Session) discoverSoon(u *upstream) {
	ctx, end := context.WithTimeoutCause(s.life, probeWait, ErrEra)
	defer end()
	if _, err := u.discover(ctx); err != nil {
		s.log.Debug("the server did not say what it is", "error", err)
	}
}

// ask sends a request of Belay's own and returns the answer, which the caller
// of ask owns.
func (u *upstream) ask(ctx context.Context, method string, params []byte) (*mcp.Message, error) {
	return u.askWith(ctx, func(id jsonrpc.ID) []byte { return jsonrpc.AppendRequest(nil, id, method, params) })
}

func (u *upstream) askWith(ctx context.Context, request func(jsonrpc.ID) []byte) (*mcp.Message, error) {
	s := u.s
	id := u.ids.Next()
	answer := make(chan []byte, 1)
	s.mu.Lock()
	u.replay[id.Key()] = answer
	s.mu.Unlock()
	u.send(request(id))
	select {
	case frame := <-answer:
		m := &mcp.Message{}
		return m, m.Read(frame)
	case <-u.gone:
		return nil, fmt.Errorf("%w (%s)", errNoSession, u.exit())
	case <-ctx.Done():
		s.mu.Lock()
		delete(u.replay, id.Key())
		u.forgotten.add(id.Key()) // it may still be answered
		s.mu.Unlock()
		return nil, context.Cause(ctx)
	}
}

// legacyData is the data of the error for a modern caller whose server is not
// (MCP-58, MCP-G4).
var legacyData = []byte(`{"supported":["2025-11-25","2025-06-18","2025-03-26","2024-11-05"],"requested":"` + mcp.Revision26 + `"}`)

// explainWait is how long a refused handshake waits for the reason.
const explainWait = 2 * time.Second

// explainLocked finds out why a server refused initialize: one that speaks only
// the modern era may call it an unknown method or miss its _meta there, from
// which no caller could tell what to do. That answer is given in words that
// name the versions (MCP-G4), every other as it came. It is false if the
// session is ending.
func (s *Session) explainLocked(u *upstream, c *call, m *mcp.Message, status int) bool {
	to, frame := s.outlet(c), jsonrpc.AppendSplice(nil, m.Frame, jsonrpc.Edit{At: m.IDAt, New: []byte(c.id.Raw())})
	return s.goLocked(func() {
		ctx, end := context.WithTimeoutCause(s.life, explainWait, ErrEra)
		defer end()
		if m, err := u.ask(ctx, mcp.MethodDiscover, mcp.ModernParams()); err == nil && m.SpeaksModern() {
			s.log.Warn("the server does not speak the protocol era of its caller", "speaks", mcp.Revision26)
			status = 0 // with a 4xx many would go looking for an older transport
			frame = jsonrpc.AppendError(nil, c.id, codeInvalidParams,
				fmt.Sprintf("Unsupported protocol version: server %q speaks %s, without initialize", s.cfg.Name, mcp.Revision26), modernData)
		}
		s.forwardAnswer(to, status, frame)
	})
}

// codeInvalidParams is what a legacy server answers to a version it does not
// speak; modernData names those that it does.
const codeInvalidParams = -32602

var modernData = []byte(`{"supported":["` + mcp.Revision26 + `"]}`)

// knowsNoModern reports whether a modern request was refused in the way of a
// server that has never heard of the era: by an HTTP status for bad requests,
// wrong paths or wrong methods, without a JSON-RPC message (MCP-70).
func knowsNoModern(err error) bool {
	refused, ok := errors.AsType[*httpclient.StatusError](err)
	if !ok {
		return false
	}
	switch refused.Status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed:
		return true
	}
	return false
}
