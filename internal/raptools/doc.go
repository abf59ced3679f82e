// Package raptools makes the tools of one RAP tool server those of an MCP server
// that lives inside Belay: the gateway speaks to it through pipes in memory, so that
// any MCP caller, of either era, can call them and stop them.
//
// # The model
//
// A [Toolset] is one server of a [rap.Runtime]. [Toolset.Serve] is one MCP session
// and one RAP thread: the tools are discovered when they are first wanted (RAP-50),
// and the end of the session closes the thread (RAP-87).
//
// A tools/call becomes a call of the runtime, a run below that of the MCP call. A
// Stop of either ends it: that of the MCP call reaches the run below it through
// the tree, without a message through the pipe. What is seen of the servers then
// is noted on both receipts.
//
//   - A result becomes a tool result: texts and images one to one, isError where
//     the text begins with "Error:" (RAP-66). One that comes after the Stop is
//     still sent, since the gateway makes evidence and a partial result of it.
//   - user_choice becomes an elicitation where the caller takes them, else a question
//     to whoever sees the approvals (RAP-82).
//   - oauth becomes a URL elicitation where the caller takes those, else a log message
//     (RAP-80). The URL is kept nowhere.
//   - Events of subscriptions and views become log messages; cancel_subscription is a
//     tool beside the server's (RAP-77).
//
// What people are asked is withdrawn with the end of the call, at once.
//
// # Guarantees
//
//   - A caller gets one answer for a request, and none after its own cancel.
//   - Nothing here waits for a tool server but the goroutine of one request.
//   - Every goroutine has ended when Serve returns.
package raptools
