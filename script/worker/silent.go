package worker

import (
	"context"
	"errors"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// silent keeps what the SDK would answer to a cancelled call, where its script came to
// nothing more: a client that cancelled expects no answer, and one that counts what
// came too late would count it (AT-37).
type silent struct{ mcp.Transport }

// Connect implements mcp.Transport.
func (t silent) Connect(ctx context.Context) (mcp.Connection, error) {
	c, err := t.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return silentConn{c}, nil
}

type silentConn struct{ mcp.Connection }

// Write implements mcp.Connection.
func (c silentConn) Write(ctx context.Context, m jsonrpc.Message) error {
	if r, ok := m.(*jsonrpc.Response); ok && errors.Is(r.Error, errCancelled) {
		return nil
	}
	return c.Connection.Write(ctx, m)
}
