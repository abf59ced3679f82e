package httpclient

import (
	"fmt"
	"sync"

	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
)

// deliver gives what came in one piece to the Receiver: a message, or a batch of
// them. k is the call on whose stream it came, nil for the session's.
func (c *Conn) deliver(frame []byte, k *call, status int) {
	if jsonrpc.IsBatch(frame) {
		parts, err := jsonrpc.SplitBatch(frame, 0)
		if err != nil {
			c.cfg.Log.Warn("the server sent a batch that cannot be read", "error", err)
		}
		for _, part := range parts {
			c.deliverOne(part, k, status)
		}
		return
	}
	c.deliverOne(frame, k, status)
}

func (c *Conn) deliverOne(frame []byte, k *call, status int) {
	m, _ := messages.Get().(*mcp.Message)
	if m == nil {
		m = new(mcp.Message)
	}
	defer func() {
		m.Frame = nil
		messages.Put(m)
	}()
	if err := m.Read(frame); err != nil {
		c.unreadable(m, k, err)
		return
	}
	if m.Kind != jsonrpc.Response {
		var about jsonrpc.ID
		if k != nil {
			about = k.id
		}
		c.to.Message(m, about, status)
		return
	}
	k = c.answered(m, k, status)
	if k == nil {
		c.cfg.Log.Debug("the server answered a request that is not in flight", "id", m.ID.String())
		return
	}
	if k.method == mcp.MethodInitialize && !m.IsError() {
		c.opened(m, k.session)
	}
	c.to.Message(m, k.id, status)
}

var messages sync.Pool // of *mcp.Message

// answered takes the call that a response answers out of the table; nil if there
// is none. A response without a readable id answers the call on whose stream it
// came, and so does an error that came with an HTTP status of its own, whatever
// its id: some servers put a text of theirs there.
func (c *Conn) answered(m *mcp.Message, on *call, status int) *call {
	k := on
	if on == nil || !m.ID.IsZero() && !m.ID.IsNull() && m.ID != on.id && (status/100 == 2 || !m.IsError()) {
		c.mu.Lock()
		k = c.calls[m.ID.Key()]
		c.mu.Unlock()
	}
	if k == nil {
		return nil
	}
	if settled, _ := c.take(k); !settled {
		return nil
	}
	return k
}

// unreadable fails the call whose response cannot be read, and only that.
func (c *Conn) unreadable(m *mcp.Message, k *call, err error) {
	c.cfg.Log.Warn("the server sent something that is no message", "error", err, "text", quote(m.Frame))
	if m.Kind != jsonrpc.Response {
		return
	}
	if k = c.find(m.ID, k); k != nil {
		c.lose(k, fmt.Errorf("%w: %w", ErrNotMCP, err))
	}
}

func (c *Conn) find(id jsonrpc.ID, on *call) *call {
	if on != nil && (id.IsZero() || id.IsNull()) {
		return on
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls[id.Key()]
}

// tooLong fails the call whose response was over the bound (MCP-G3).
func (c *Conn) tooLong(e *jsonrpc.TooLongError, k *call) {
	id, kind, ok := e.Salvage()
	c.cfg.Log.Warn("the server sent a message that is too long", "bytes", e.Size, "bound", e.Max, "id", id.String())
	if kind == jsonrpc.Notification || kind == jsonrpc.Request || !ok && kind != jsonrpc.Response {
		return
	}
	if k = c.find(id, k); k != nil {
		c.lose(k, fmt.Errorf("%w: %d bytes, at most %d are allowed", ErrTooLong, e.Size, e.Max))
	}
}

// Buffers for answers that are one message.
const (
	frameSize    = 4 << 10
	maxKeptFrame = 1 << 20
)

var frames = sync.Pool{New: func() any { b := make([]byte, 0, frameSize); return &b }}

func getFrame() *[]byte { return frames.Get().(*[]byte) } //nolint:forcetypeassert // the pool makes no other

func putFrame(b *[]byte) {
	if cap(*b) <= maxKeptFrame {
		*b = (*b)[:0]
		frames.Put(b)
	}
}
