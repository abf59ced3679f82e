package gateway

import (
	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
)

// Gate decides whether a call may start. It is asked only about calls that do
// work (tools/call, prompts/get, resources/read, completion/complete), never
// about lists, handshakes and pings, so that a session stays usable while nothing
// may run. Its methods are called with locks held: they must be quick, must not
// wait, and must not call into the session or the tree. Safe for concurrent use.
type Gate interface {
	// Admit is asked before a call of the owner starts. An error refuses it: the
	// caller gets the error's text with the code that [belay.JSONRPCCode] gives.
	// It is asked twice for each call: before it is registered, so that what is
	// refused is no run; and once more when it is, so that who first shuts the
	// gate and then stops what the tree knows has missed nothing. A call that is
	// refused only then is a run that failed.
	Admit(owner string) error

	// Early takes the Stop of the owner that came before the call with this
	// JSON-RPC id (ORC-79), if there is one. id is the text of the id: 7 for the
	// number 7 and for the string "7". The call is then registered and cancelled
	// with what is returned, so that there is a receipt; it never reaches the
	// server, and its caller is answered like one whose call somebody else
	// stopped (ORC-57).
	Early(owner, id string) (belay.Cancellation, bool)
}

// works reports whether a request of this method does work that somebody may
// want to stop, or not to start.
func works(method string) bool {
	switch method {
	case mcp.MethodCallTool, mcp.MethodGetPrompt, mcp.MethodReadResource, mcp.MethodComplete:
		return true
	}
	return false
}

// idText is the text of an id as it is named over REST: the value of a string,
// a number as it is written.
func idText(id jsonrpc.ID) string {
	if text, ok := id.Text(); ok {
		return text
	}
	return id.Raw()
}

// admittedLocked reports whether a call may start; if not, it was answered.
func (s *Session) admittedLocked(c *call) bool {
	if s.cfg.Gate == nil || !works(c.method) {
		return true
	}
	err := s.cfg.Gate.Admit(s.cfg.Owner)
	if err == nil {
		return true
	}
	s.log.Info("a call was not let in", "call", c.title(), "error", err)
	if c.run != nil {
		c.failLocked(belay.JSONRPCCode(err), err.Error())
		return false
	}
	s.replyLocked(c, jsonrpc.AppendError(nil, c.id, belay.JSONRPCCode(err), err.Error(), nil))
	return false
}

// Counter counts what happens in sessions. Safe for concurrent use.
type Counter interface {
	// EarlyStop: the caller's own cancel came before its call, which was not
	// started (MCP-G17).
	EarlyStop(server string)
	// ForcedRestart: a process of the server is ended by force and made anew.
	ForcedRestart(server string)
}

// stopBefore is why a call is stopped before it starts.
type stopBefore struct {
	byCaller bool   // its own cancel came first (MCP-G17): it is not answered
	reason   string // of that
	cause    *belay.Cancellation
}

func (b *stopBefore) is() bool { return b.byCaller || b.cause != nil }

// stoppedBeforeLocked looks whether a Stop of the call came before the call. A
// handshake is never cancelled, not even before it came (MCP-7).
func (s *Session) stoppedBeforeLocked(c *call, a *mcp.Arrival) (b stopBefore) {
	if mcp.Handshaking(c.method) {
		return b
	}
	if !a.ByExchange {
		b.reason, b.byCaller = s.stones.Take(c.key)
	}
	if b.byCaller && s.cfg.Counter != nil {
		s.cfg.Counter.EarlyStop(s.cfg.Name)
	}
	if !b.byCaller {
		b.cause = s.earlyLocked(c)
	}
	return b
}

// earlyLocked is the Stop that came before the call, by the gate or of the run
// above it in another process; nil: none.
func (s *Session) earlyLocked(c *call) *belay.Cancellation {
	if cause := c.stopElsewhere(); cause != nil {
		return cause
	}
	if s.cfg.Gate == nil || !works(c.method) {
		return nil
	}
	if cause, ok := s.cfg.Gate.Early(s.cfg.Owner, idText(c.id)); ok {
		return &cause
	}
	return nil
}

// stopBeforeLocked stops a registered call that was not dispatched.
func (s *Session) stopBeforeLocked(c *call, b *stopBefore) {
	if b.byCaller {
		s.cancelEarlyLocked(c, b.reason)
		return
	}
	s.mu.Unlock() // Cancel calls onCancel, which takes the lock
	defer s.mu.Lock()
	c.run.Cancel(*b.cause)
	s.log.Info("a call was stopped before it started", "run", c.run.ID(), "call", c.title(), "cause", b.cause.Cause, "reason", b.cause.Reason)
}
