// Package worker serves scripts as an MCP server on a pair of streams, so that the
// gateway's isolation and ladder hold for them as for any stdio tool (AT-36).
//
// A worker is a process of Belay's own binary. It holds some tools (package script)
// and runs any number of their calls, each in a machine of its own; under
// isolation: call the gateway gives it one at a time. A call that is cancelled
// hands back its partial result at once (stop-ack, "running"), and is acknowledged
// when its machine runs nothing any more. [Worker.Interrupt], for SIGTERM, ends the
// grace of stopped calls. What no interrupt reaches, the gateway's SIGKILL ends.
//
// Progress: reports become progress notifications with the report as the message.
// Approval: by a request of Belay's own, where the call says that its client takes it
// (the gateway does: ask.go); else by a form elicitation whose one field is the
// button, where the client has that capability; otherwise nobody is asked, and the
// answer is "dismissed". A call that ends without approval says so in the _meta of its
// result.
package worker
