// Package aggregate joins several MCP servers into one, for clients that want
// one URL. It is a backend like that of a single server: the transport towards
// callers (mcp/httpserver) does not know the difference, and each member is
// itself the backend of a configured server, so that enforcement, receipts and
// policies are those of the member.
//
// # The model
//
// A [Backend] opens sessions, a session talks to members. What a caller of the
// legacy eras opens has a session of its own in every member, opened when it
// sends initialize. The callers of 2026-07-28 have no handshake: the session of
// a principal asks each member for that principal's shared session, call by
// call.
//
// Tools and prompts are called server__name; everything else of them stays as
// it is. Resources and resource templates keep their URIs, and go to the server
// that listed them; tasks to the server that made them. A request goes one of
// three ways:
//
//   - To one member. What belongs to it passes straight through, both ways, and
//     so do its cancel and its abandoned exchange.
//   - To several (lists, log levels, discovery, subscriptions), each under an id
//     of ours. The answers are merged; a member that fails or takes longer than
//     10 s is left out with a line in the log.
//   - To none: initialize, server/discover and ping are answered here.
//
// Messages are rewritten by edits of single values (MCP-G2): names, cursors,
// and the ids of what members ask the caller, which all begin at b-1.
//
// Members of another era, and such that cannot be reached, are left out and
// named in the log and in the instructions (DESIGN 12). One that comes later, or
// comes again, is taken in when something is asked of it, and the caller is told
// that lists have changed.
//
// # Guarantees
//
//   - A Stop reaches the member at work and no other; a list that is stopped is
//     stopped everywhere. After its own cancel the caller gets nothing more for
//     that id (MCP-G24).
//   - A member that fails, hangs or dies costs its own part of the answers only;
//     lists fail when no member at all answered, they do not become empty.
//   - Every request is answered or dropped exactly once, Close included.
//   - No two requests of members reach the caller under one id, and each answer
//     goes to the member that asked (MCP-G9).
//   - Cursors, names, URIs and task ids from callers are untrusted; all that is
//     remembered of them is bounded.
//   - Nothing is sent to a member while a lock is held, nor from within an
//     Outlet: members call outlets with theirs held.
//
// # What it does not do
//
// Members keep the protocol version that they agreed on, also where the lowest
// of all is named to the caller. Methods that are not known here go to the one
// member there is, or are refused where there are several.
package aggregate
