package gateway

import (
	"context"
	"errors"

	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
)

// enterSession puts a fresh process into the state in which the caller left
// the session (MCP-G36, DESIGN 11, 3): the handshake, log level and
// subscriptions are sent again. It counts only if the server says the same of
// itself as before; other tools are announced to the caller.
func (u *upstream) enterSession() error {
	s := u.s
	ctx, end := context.WithTimeoutCause(s.life, s.cfg.StartWait, errSlowStart)
	defer end()
	s.mu.Lock()
	u.fresh = true
	worker := u.worker
	s.mu.Unlock()
	for _, ask := range s.hand.Script() {
		if worker && ask.Method == mcp.MethodListTools {
			continue // the primary process has the lists; this one costs a call that waits its time
		}
		if ask.Notify {
			u.send(jsonrpc.AppendNotification(nil, ask.Method, ask.Params))
			s.mu.Lock()
			u.initialized = u.initialized || ask.Method == mcp.NoticeInitialized
			s.mu.Unlock()
			continue
		}
		if err := u.replayOne(ctx, ask); err != nil {
			s.mu.Lock()
			u.dead, u.expected = true, true
			s.mu.Unlock()
			s.goTracked(func() {
				u.close()
				s.mu.Lock()
				defer s.mu.Unlock()
				s.dropLocked(u)
			})
			return err
		}
	}
	return nil
}

var errSlowStart = errors.New("the server took too long to start")

// goTracked is goLocked for callers without the lock.
func (s *Session) goTracked(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.goLocked(f)
}

func (u *upstream) replayOne(ctx context.Context, ask mcp.Ask) error {
	s := u.s
	m, err := u.ask(ctx, ask.Method, ask.Params)
	if err != nil {
		return err
	}
	switch ask.Method {
	case mcp.MethodInitialize, mcp.MethodDiscover:
		return s.hand.Same(m)
	case mcp.MethodListTools:
		if !s.hand.SameTools(m) {
			s.log.Warn("the server has other tools after its restart; the caller is told")
			s.forward(s.home, jsonrpc.AppendNotification(nil, mcp.NoticeTools, nil))
		}
	}
	return nil
}
