// Package httpserver is the transport towards callers over HTTP: Streamable
// HTTP of the legacy revisions (2025-03-26, 2025-06-18, 2025-11-25) with
// sessions and streams that can be resumed, the stateless one of 2026-07-28,
// and HTTP+SSE of 2024-11-05. It knows HTTP, streams, headers and the ids of
// sessions. What a call is, which server it goes to and what stopping it takes
// is the business of the [Backend].
//
// # The model
//
// An exchange is one HTTP request with its response. Everything that one
// response has to carry is a stream: the answer to a POST's request and what
// belongs to it, or what belongs to no request at all. The session with the
// server puts messages into streams (each is an mcp.Outlet) and never waits.
// The goroutine of the exchange takes them out and writes them: when the
// answer is the first thing it is one plain JSON body, else there is an event
// stream, at the latest after HeaderWait (MCP-G5). There are no other
// goroutines, save that what is written on a quiet stream is written by one that
// the exchange's own waits for.
//
// What an exchange that breaks off means depends on the era (MCP-G15):
//
//   - 2026-07-28: a Stop of its call, always, until all of the answer was
//     written (MCP-54, A3).
//   - 2025-03-26 to 2025-11-25: what [Config.Disconnect] says. With [Detach] the
//     call goes on and its messages wait, bounded in bytes and time, for a GET
//     with Last-Event-ID that resumes exactly that stream (MCP-31, MCP-33).
//   - 2024-11-05: the loss of the one stream is the end of the session.
//
// Who sent a request is found out for each ([Config.Identify]); nothing is
// remembered of credentials. When those of a stream's request expire, the stream
// ends, if its caller can come back to it: a GET stream, an event stream of
// which it has an event id, a subscription, the one of 2024-11-05. That is a
// connection that broke off, as above. A response without such an id goes on to
// its end: it is all that its caller has of the call, and a call that was
// allowed to begin is not taken away by a clock. Sessions outlive credentials,
// and belong to their principal.
//
// A connection of which the caller closed its half counts as broken off: over
// HTTP/1 the two cannot be told apart without writing.
//
// # Guarantees
//
//   - Every POST is ended: with the answer, with an empty event stream when its
//     caller cancelled it (MCP-G24), or with an error when the server went away
//     (MCP-G28).
//   - A message goes out on one stream only (MCP-36); a resume repeats messages
//     of the named stream only. A resume that has nothing to give is 405, never
//     an empty stream (MCP-G24).
//   - A cancel notification is answered 202 in every shape and era, except to an
//     ended session or a caller that may not be here (MCP-G10).
//   - A session is found by its id, 130 random bits, and by nobody but the
//     principal that opened it (MCP-G12): to others it is as one that never was.
//   - What headers say of a request beside the protocol (X-Request-Id, trace
//     context, Belay-Parent) is bounded and printable; what is not, is dropped.
//   - Headers that repeat parts of the body are checked against it before the
//     server sees the message (MCP-60, MCP-G37). Every refusal has a JSON-RPC
//     error in its body.
//   - A reader that is slow costs its own stream only: what waits for it is
//     bounded, it is cut off at the bound, and a write that the peer does not
//     take in WriteWait ends the exchange.
//   - Bodies, batches, sessions, streams that wait for a resume and what they
//     keep are bounded. A [Handler] that was closed has no goroutine and no
//     timer left.
package httpserver
