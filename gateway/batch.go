package gateway

import (
	"github.com/belayhq/belay/jsonrpc"
)

// batch gathers the answers to one batch of the 2025-03-26 revision (MCP-40,
// MCP-G38): its calls run singly, their answers leave as one array when the
// last is there. The answer to a call that an operator stopped does not wait
// for the others; a call that the caller cancelled has none. Guarded by
// Session.mu.
type batch struct {
	pending int
	open    bool // elements are still being read
	answers [][]byte
}

func (b *batch) add(frame []byte) { b.answers = append(b.answers, frame) }

// receiveBatch takes a batch: its elements in order, so that a cancel inside
// one counts after the requests before it.
func (s *Session) receiveBatch(line []byte) {
	elements, err := jsonrpc.SplitBatch(line, 0)
	if err != nil {
		s.log.Warn("the caller sent a bad batch; it was refused", "error", err)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.settleLocked(s.home, jsonrpc.AppendError(nil, jsonrpc.NullID(), jsonrpc.Code(err), err.Error(), nil))
		return
	}
	b := &batch{open: true}
	for _, frame := range elements {
		s.receiveOne(frame, b)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b.open = false
	s.flushBatchLocked(b)
}

// replyLocked delivers the answer to a call, alone or with its batch.
func (s *Session) replyLocked(c *call, frame []byte) {
	b := c.batch
	if c.heldBack(frame) {
		return
	}
	if b == nil {
		s.settleLocked(s.outlet(c), frame)
		return
	}
	c.batch = nil
	b.add(frame)
	b.pending--
	s.flushBatchLocked(b)
}

// leaveBatchLocked takes a call out of its batch without an answer there.
func (s *Session) leaveBatchLocked(c *call) {
	if b := c.batch; b != nil {
		c.batch = nil
		b.pending--
		s.flushBatchLocked(b)
	}
}

func (s *Session) flushBatchLocked(b *batch) {
	if b.open || b.pending > 0 || len(b.answers) == 0 {
		return
	}
	s.settleLocked(s.home, jsonrpc.AppendBatch(nil, b.answers...))
	b.answers = nil
}
