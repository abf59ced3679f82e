// Package rap speaks the Reactive Agent Protocol from both ends: it gives any Go
// program a conforming tool server whose calls can really be stopped, and it is
// the runtime that calls tool servers and stops them.
//
// # The protocol
//
// A runtime posts an [Invocation] to a tool server, which acknowledges it at
// once. The result comes later, as a POST of a [ToolResult] to the callback URL
// of the invocation; nothing is held open in between, and a tool may take days.
// Stop is a [CancelNotice]: one POST, best effort, never repeated, never waited
// for, whose answer says nothing. What the protocol does not say, whether work
// has stopped, Belay keeps itself: every call is a run of a [belay.Tree] with an
// outcome, a ladder and a receipt.
//
// # Messages
//
// Each message has a type, a Parse function and an Append method. Parse is strict and
// bounded: UTF-8, one JSON object, members of the right type, spelled as the
// protocol spells them, none of them twice, every size within a limit of this
// package. Members that nobody named are ignored. What Parse refuses wraps
// [ErrMalformed] (or [ErrTooLarge]) and has changed nothing. Append refuses what
// Parse would refuse, so that a program cannot send what its peer must reject.
//
// An invocation can be wrong in two ways, which the protocol answers
// differently: one to which no result could be delivered is malformed; one whose
// operation or arguments are no good is accepted, and ends in an error result
// ([ErrArguments]).
//
// # Ids
//
// Group and call ids are untrusted text: 1 to 256 bytes of UTF-8 without control
// characters, used as map keys and never as paths. See [CheckID].
//
// # The tool server
//
// [Handler] is an http.Handler that serves one [Toolset] to authenticated
// callers. A call is known by (caller, group id, call id), so that neither
// another thread nor another caller can reach it by its ids.
//
//   - A call is registered before its 200 is written, and a repeated invocation
//     is the same call.
//   - A Stop that comes before its invocation leaves a mark for 30 seconds; the
//     call is then never started.
//   - The context of a stopped call ends with a *belay.Cancellation as its cause.
//   - Every call ends in exactly one result, also a stopped one, which carries
//     what the tool had by then.
//   - Calls, remembered calls, bodies, queues and retries are all bounded.
//   - Every goroutine belongs to the Handler; Close stops all and waits.
//
// # The notifier
//
// [Notifier] is for runtimes that are written by others and only want to stop
// things properly: it tells all tool servers at the same time, two seconds each,
// never blocks its caller, and no server's failure touches another.
//
// # The runtime
//
// [Runtime] discovers tool servers, invokes their tools as runs, takes their
// callbacks at one unguessable URL per call, and stops them. A [Thread] is one
// conversation, a [Pending] one call, a [Subscription] what a call may become.
//
//   - A Stop settles the caller first, then withdraws what people are asked, then
//     tells every server at the same time, each once, with two seconds of its own.
//     Nothing of that waits for any of them.
//   - A stopped call is signalled when a server took the cancel, unreachable when
//     none did, acknowledged when its result comes all the same, and confirmed only
//     by the end of a process tree that this program started, or if it was never sent.
//   - A result ends its call once. Late ones and duplicates get 200 and change
//     nothing but a receipt; a stranger's get 404.
//   - After a Stop no answer to a question is posted.
//   - A callback URL holds 256 random bits and is good for one call: until its
//     result, and ten minutes longer to know a duplicate; of a subscription until its
//     last event, its cancel or the end of its thread, over a restart if there is a
//     [Store]. Only its digest is kept.
//   - A tool server's credentials go to the server's own host, and to the endpoint
//     that it names; redirects are never followed.
//   - One thread's messages are taken one at a time, and nobody's fill the memory.
//
// [Relay] joins both sides: it offers a runtime's tool server to other runtimes.
//
// The package imports the standard library, belay and jsonrpc only. Signatures
// for AWS are in package rap/sigv4, full JSON Schema in rap/schema.
//
// Numbers such as RAP-11 in comments name requirements of the project's RAP
// requirement sheet.
package rap
