package stopack

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// tellLimit bounds the writing of a notification.
const tellLimit = 5 * time.Second

var errTell = errors.New("the client does not read")

// Transport wraps a transport of one connection (stdio, a pipe) so that clients
// are told without asking. Acks with a wrapped transport declare that they tell,
// so use others for servers that are reached over HTTP.
func (a *Acks) Transport(t mcp.Transport) mcp.Transport {
	a.mu.Lock()
	a.notify = true
	a.mu.Unlock()
	return transport{a, t}
}

type transport struct {
	acks *Acks
	mcp.Transport
}

// Connect implements mcp.Transport.
func (t transport) Connect(ctx context.Context) (mcp.Connection, error) {
	c, err := t.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &conn{Connection: c, acks: t.acks}, nil
}

// conn sees the requests before their handlers do.
type conn struct {
	mcp.Connection
	acks *Acks
}

// wire is where the notification for one request goes.
type wire struct {
	conn *conn
	id   jsonrpc.ID
}

// Read implements mcp.Connection.
func (c *conn) Read(ctx context.Context) (jsonrpc.Message, error) {
	m, err := c.Connection.Read(ctx)
	if r, ok := m.(*jsonrpc.Request); ok && err == nil && r.IsCall() {
		c.note(r)
	}
	return m, err
}

// note remembers the way back for a request with a token, in the legacy era.
func (c *conn) note(r *jsonrpc.Request) {
	var p struct {
		Meta struct {
			Ask struct {
				Token string `json:"token"`
			} `json:"io.github.belayhq/stop-ack"`
			Version json.RawMessage `json:"io.modelcontextprotocol/protocolVersion"`
		} `json:"_meta"`
	}
	if json.Unmarshal(r.Params, &p) != nil || p.Meta.Ask.Token == "" || len(p.Meta.Ask.Token) > maxToken || p.Meta.Version != nil {
		return
	}
	c.acks.mu.Lock()
	defer c.acks.mu.Unlock()
	if _, twice := c.acks.wires[p.Meta.Ask.Token]; !twice && len(c.acks.wires) < maxLive {
		c.acks.wires[p.Meta.Ask.Token] = wire{c, r.ID}
	}
}

// Close implements mcp.Connection.
func (c *conn) Close() error {
	c.acks.mu.Lock()
	for token, w := range c.acks.wires {
		if w.conn == c {
			delete(c.acks.wires, token)
		}
	}
	c.acks.mu.Unlock()
	return c.Connection.Close()
}

// ack is what a notification says of a handler.
type ack struct {
	Outcome outcome `json:"outcome"`
	Partial string  `json:"partial,omitempty"`
	Ended   string  `json:"ended,omitempty"`
}

// tell sends the notification. Nobody waits for it: an error is the client's loss.
func (to wire) tell(ctx context.Context, token string, how ack) {
	params, err := json.Marshal(struct {
		Token string `json:"token"`
		ack
		RequestID any `json:"requestId"`
	}{token, how, to.id.Raw()})
	if err != nil {
		return
	}
	limited, end := context.WithTimeoutCause(context.WithoutCancel(ctx), tellLimit, errTell)
	defer end()
	_ = to.conn.Write(limited, &jsonrpc.Request{Method: notice, Params: params})
}
