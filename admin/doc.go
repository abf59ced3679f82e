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
//   - Belay's own interface under /v1: runs, cancels, receipts, events and the
//     latch, with problem details (RFC 9457) for errors and an OpenAPI 3.1
//     description at /openapi.json that is made from the code.
//
// Everything else is a door that is handed in: who asks and what they may do
// ([Authorizer]), how often ([Limiter]), what is remembered after a run was
// forgotten ([History]), who is told that a cancel was asked for
// ([Broadcaster]), what stops a call that has not arrived yet ([EarlyStops])
// and what keeps new calls out ([Latch]).
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
//   - Nothing that a door does wrong (an error, a panic) changes the answer to a
//     cancel that was carried out.
//   - Bodies, ids, reasons, keys, waits, pages, streams and everything that is
//     kept in memory have bounds. Reasons and ids are cleaned before they are
//     logged.
//   - The package has one goroutine for each API, which feeds the event streams;
//     [API.Close] waits for it.
package admin
