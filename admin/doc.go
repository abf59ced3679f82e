// Package admin is the REST door of Belay: it shows runs, stops them and says
// what came of it, over any [belay.Control].
//
// # The model
//
// An [API] is one http.Handler with two halves on the same Control:
//
//   - The Orchestrate family: POST …/cancel and GET …/status/{request_id} under
//     /orchestrate, /cancellation and /v1/cancellation. Its bodies are those of
//     the page that described it first, byte for byte, with additions behind
//     the known keys only. It is written by hand, because the bytes count.
//   - Belay's own interface under /v1: runs, cancels, receipts, events,
//     approvals, the latch, and runs that other runtimes register, with problem
//     details (RFC 9457) for errors and an OpenAPI 3.1 description at
//     /openapi.json that is made from the code. What it says of every operation,
//     answer and header is compared with real answers by a test.
//
// Everything else is a door that is handed in: who asks and what they may do
// ([Authorizer]), how often ([Limiter]), what is remembered after a run was
// forgotten ([History]), who is told that a cancel was asked for
// ([Broadcaster]), what stops a call that has not arrived yet ([EarlyStops]),
// what keeps new calls out ([Latch]), what waits for a person
// ([belay.Approvals], and [belay.Previewer] where it is one), the leases of other runtimes ([lease.Registry]), and where
// receipts are stored, exported from and erased ([Options]).
//
// # A name becomes a run, then the run is stopped
//
// A caller names a run by its run id or by the text of the protocol's id. The
// name is looked up among the runs within the caller's reach and no others: a
// run outside it is not considered, not counted and not listed, so that nobody
// can tell a run they may not see from one that does not exist. Only the run id
// goes into the second step, where the reach is checked again. A name that fits
// several runs stops none of them.
//
// # Operations of /v1
//
//	GET    /v1/whoami                   who one is, and what one may do
//	GET    /v1/runs                     a page of runs, newest first
//	POST   /v1/runs                     register a run of another runtime
//	GET    /v1/runs/{id}                one run, its receipt and its subtree
//	POST   /v1/runs/{id}/cancel         stop it and all below it
//	POST   /v1/runs/{id}/heartbeat      keep a registered run alive; hear of a Stop
//	POST   /v1/runs/{id}/report         say how a registered run ended
//	POST   /v1/cancel                   stop what is selected
//	GET    /v1/receipts                 a page of receipts, or all of them as CSV or NDJSON
//	GET    /v1/receipts/{id}            one receipt
//	GET    /v1/events                   server-sent events of runs, receipts, approvals
//	GET    /v1/approvals                what waits for a person
//	POST   /v1/approvals/{id}           approve, decline or dismiss
//	POST   /v1/approvals/{id}/preview   what would happen, before that
//	GET    /v1/latch, POST, DELETE      see, engage, lift the stop-all latch
//	DELETE /v1/principals/{name}        erase a principal from what is remembered
//
// The same filters select runs for a list and for a Stop. One that a
// [belay.Filter] cannot say (a state, an age, a protocol's id) is resolved to run
// ids first, and these are stopped.
//
// # From inside a run
//
// A principal that is an [Insider] speaks from within a run's process tree: an
// agent with its user's token. It may stop single runs at or below that run, and
// registers new ones only there; approvals, the latch, erasure, the Orchestrate
// family, the JSON-RPC doors and Stops by filter are closed to it. Receipts name
// it as "ann (inside run_…)".
//
// The engaged latch refuses registrations with 503 and the type
// urn:belay:error:latched, with who engaged it and why; calls by other doors are
// refused by whoever dispatches them.
//
// # Guarantees
//
//   - A request that fails any check changes nothing and leaves no trace but a
//     log line. The checks come in the order of ORC-32: switched on, route and
//     method, who asks, may they, how often, media type, size, body, look-up.
//   - An accepted cancel is carried out even if its client goes away; the
//     client's connection decides about waiting for the verdict and nothing else.
//   - "cancelled" is said of runs that were found and stopped, now or before;
//     "queued" never claims more than the fields beside it.
//   - The same request repeated stops nothing twice, escalates nothing unless
//     told to, and with an Idempotency-Key never reaches a later run.
//   - A final receipt that an answer shows was stored before, if there is where
//     ([Options.Commit]); if storing failed the answer says stored: false, and is
//     given all the same.
//   - A run that was registered is ended, kept alive and reported on by its own
//     principal only; to all others its lease looks like none.
//   - Half an export never looks like a whole one: the connection is broken.
//   - Nothing that a door does wrong (an error, a panic) changes the answer to a
//     cancel that was carried out.
//   - Bodies, ids, reasons, keys, waits, pages, streams and everything that is
//     kept in memory have bounds. Reasons and ids are cleaned before they are
//     logged.
//   - The package has one goroutine for each API, which feeds the event streams;
//     [API.Close] waits for it.
package admin
