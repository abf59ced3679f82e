// Package httpclient is the transport towards servers over HTTP, in every
// revision of the protocol. Raw frames go in and raw frames come out; payloads
// are never decoded (MCP-G2).
//
// # The model
//
// A [Conn] is one caller's way to one server. Each request that is given to
// [Conn.Send] is a POST of its own with one goroutine, which reads the answer,
// be it JSON or a stream of events, and hands everything to the [Receiver].
// Which era a message belongs to is read in the message itself (MCP-71):
//
//   - A modern request carries what it needs in its headers, and is cancelled by
//     closing its POST and by nothing else (MCP-53).
//   - A legacy session begins with initialize. Its id and the negotiated version
//     go along with all that follows; once it is initialized, a GET asks for the
//     stream of the session. A POST's stream that breaks is resumed if it gave an
//     event id (MCP-33).
//   - A server of 2024-11-05 names its endpoint on one shared stream, on which
//     all answers come.
//
// Notifications and responses have one queue, so that they keep their order
// among each other. Nothing else waits for anything else, but requests wait for
// notifications/initialized to arrive if it was sent before them, and, for a
// short time, for the stream of the session: what a server asks there while
// nobody reads it is lost.
//
// # Cancelling
//
// [Conn.Cancel] takes the way of its era and session (MCP-G20), as soon as the
// request has been written and never before (MCP-G19), past everything that is
// queued. A request of which not one byte of the body was handed over never
// starts, and Cancel says so. A notification that went out right behind its
// request is repeated until the server has begun to answer, because a busy server
// may read the two in the other order and ignore the first.
//
// # Guarantees
//
//   - Each request that Send accepted and that was not cancelled or forgotten
//     ends in exactly one response or one [Receiver.Lost].
//   - Nothing here times out by itself but the making of connections; a peer that
//     is gone is noticed by keep-alives.
//   - Everything is bounded: requests in flight, the length of messages, queues,
//     and how often a stream is resumed in vain.
//   - Redirects are not followed. What a server says in place of a message is
//     quoted in errors, escaped and cut.
//   - [Conn.Close] waits for every goroutine.
package httpclient
