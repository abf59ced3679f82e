package mcp

import (
	"github.com/belayhq/belay/jsonrpc"
)

// Outlet takes what a caller is told: everything, on a connection that has one
// stream (stdio, HTTP+SSE), or what belongs to one request (the response to a
// POST). It copies what it keeps, never waits for the peer, and never calls
// back into whoever sends: senders hold locks. Safe for concurrent use.
type Outlet interface {
	// Send queues a notification or a request of the server. An error says that
	// the message will not arrive; one that matches jsonrpc.ErrQueueFull says
	// that the peer does not read.
	Send(frame []byte, edits ...jsonrpc.Edit) error

	// Answer queues the response to the request that the outlet was made for;
	// nothing follows it there. status is the HTTP status with which the server
	// sent it, 0 if there was none.
	Answer(status int, frame []byte, edits ...jsonrpc.Edit) error

	// Drop says that the request will get no answer, because its caller
	// cancelled it (MCP-G24); nothing follows. An outlet that is not made for
	// one request ignores it.
	Drop()
}

// Arrival is one message from a caller with what its transport knows of it.
type Arrival struct {
	*Message

	// To takes what belongs to this request; nil: the session's own outlet.
	To Outlet

	// Exchange numbers the HTTP exchange that brought the request, uniquely in
	// its session; 0 where there is none. It names the call when the exchange
	// is abandoned.
	Exchange uint64

	// ByExchange says that the call is known by its exchange alone, because ids
	// of different clients meet in one session (modern HTTP, MCP-G7).
	ByExchange bool

	// Params are headers that belong to the message and are passed on with it
	// where the server is reached by HTTP (Mcp-Param-*, MCP-61).
	Params []HeaderParam

	// Labels are the caller's own names of the request, as headers gave them
	// (request_id). They are only read. Nil: none.
	Labels map[string]string

	// Parent is the text of the id of the run below which the caller wants the
	// request to hang, as a header named it; "": none.
	Parent string

	// Traceparent and Tracestate are the W3C trace context of the exchange, as
	// its headers had it: not checked yet. What the request itself says in _meta
	// goes before them.
	Traceparent, Tracestate string
}

// HeaderParam is one header that belongs to a message.
type HeaderParam struct{ Name, Value string }
