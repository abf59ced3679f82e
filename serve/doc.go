// Package serve is the hub: it gives each configured server an HTTP endpoint,
// opens gateway sessions behind it, and changes servers while calls are in
// flight. It is where the transport towards callers (mcp/httpserver) and the
// gateway meet.
//
// # The model
//
//	/mcp/NAME            Streamable HTTP, in all its revisions
//	/mcp/NAME/sse        2024-11-05 callers, with /mcp/NAME/message
//	/mcp                 all servers as one, with tools named NAME__TOOL
//	/healthz             what is served, as JSON
//	/readyz              whether calls should be sent here
//	anything else        whoever called [Hub.Handle]
//
// A [Definition] says what one server is. Applied, it becomes an endpoint: an
// HTTP handler and a backend that opens sessions, both for this one definition
// for ever. A legacy caller has a session, and so a process, of its own. The
// callers of 2026-07-28 have none: those of one principal share one, which is
// opened for the first call and ends when it has been idle (DESIGN 11, 2).
//
// [Hub.Apply] compares definitions. Equal ones keep everything. A changed or
// removed one gets no new session: its endpoint leaves. Requests that carry a
// session of a leaving endpoint still reach it; a session without a call in
// flight ends, which its caller learns by a 404 (MCP-39), and starts anew at
// the endpoint that has taken the name. What is not over after drain is stopped.
//
// [Listen] and [Hub.Server] are the way in: loopback, where nobody needs to say who
// they are; other addresses, where [Options.Identify] finds it out; unix sockets,
// where the kernel says it. One guard stands in front of every path.
//
// # Guarantees
//
//   - Definitions that cannot be served change nothing at all, and the error
//     says why.
//   - No call in flight is dropped by Apply before drain is over; a call stopped
//     then, or by Close, is answered with the reason.
//   - Two principals never share a session.
//   - A request with a Host or Origin that is not served reaches nobody.
//   - An address that other machines reach is bound only where somebody
//     authenticates; a socket's file is this user's from its first moment on.
//   - A peer that is gone without a word is noticed within half a minute, and
//     delays nobody meanwhile.
//   - Close stops accepting, stops everything with one cancellation, and waits
//     for every session and goroutine, as long as its context allows.
//   - /healthz and /readyz need no credentials, and show names and states; no
//     command, address or environment.
//
// Locks: Hub.mu before endpoint.mu; neither is held while a session is opened,
// closed or spoken to.
package serve
