// Package mcp is the dialect: what the Model Context Protocol says in raw
// JSON-RPC messages, as far as stopping needs to know it.
//
// # The model
//
// There are two eras. A legacy peer (2024-11-05 to 2025-11-25) opens with an
// initialize request and keeps a session; a modern one (2026-07-28) has no
// handshake and puts its protocol version into the _meta of every request. The
// era is a property of each message or session, never of a peer's name.
//
// A [Message] is a frame with its envelope and the few places that a gateway
// must read or rewrite: the tool's name, the progress token, the id that a
// cancel refers to, the era. Everything else stays the bytes it was (MCP-G2).
//
// A [Handshake] remembers what a caller and a server told each other when a
// session began, so that a process which had to be replaced can be put into
// the same state, and so that a change in what the server is gets noticed.
//
// # Guarantees
//
//   - Reading a message allocates only what is kept of it, and never changes it.
//   - A cancel that is malformed is reported as such and never as a cancel of
//     something else (MCP-22).
//   - A reason that is passed on or shown is bounded and free of control
//     characters (MCP-G21).
//
// Nothing here does input or output, and nothing here knows processes.
package mcp
