// Package rapdoor offers MCP servers behind the gateway to runtimes of the
// Reactive Agent Protocol, each as a toolset of its own.
//
// # The model
//
//	/rap/NAME/.well-known/rap-toolset   what the server's tools/list says, asked anew each time
//	/rap/NAME/invoke                    a call
//	/rap/NAME/cancel_tool_call, …       see package rap
//
// A [Door] has a rap.Handler for each server that was asked for. Behind it, the
// calls of one principal share one session with the server (DESIGN 11, 2), opened
// for the first of them like any other caller's: policies, enforcement, isolation
// and timeouts are those of the server, and calls run side by side.
//
// A call is two runs: the runtime's, named by (thread_id, tool_call_id), and below
// it the MCP call, which knows the server's own request. A Stop of the first stops
// the second, by the ladder of its server; so a cancel of the runtime becomes the
// server's own request id cancelled, or its process dead. What is proven of the
// second is proven of the first, and no more.
//
// # Guarantees
//
//   - Two principals share neither a session nor a call.
//   - A tool whose name or schema the protocol has no place for is left out, and
//     named in the log; a server without any other tool has no manifest.
//   - To dismiss a question is never a yes, and its URL takes no answer any more when
//     the call was stopped, or the question answered by another door.
//   - Progress that a server reports is the partial result of a call that is
//     stopped without a better one.
//   - Sessions are bounded, and end when nobody has called for some minutes. Close
//     stops everything and waits.
//
// What a server asks the person behind a call (elicitation by a form) becomes the
// protocol's user_choice, field by field, as far as it can be picked from choices
// (ask.go); whatever else a server asks its caller (sampling, roots, a text to be
// written) is refused: a runtime has no answer to it. What it reports of its progress
// is a view of the call's thread (view.go).
package rapdoor
