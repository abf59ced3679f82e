// Package metrics counts what happens to runs, and serves the counts to
// Prometheus.
//
// # Model
//
// [New] watches a [belay.Control] and counts its events. Counting is done by a
// goroutine of its own: who makes a call, stops one or tells a server never
// waits for a counter. What no event shows is pulled when somebody looks
// ([Options]: the ledger, sessions, the latch, traces), or pushed by those who
// see it ([Metrics.TombstoneHit], [Metrics.ForcedRestart], [Metrics.Refused]).
// [Metrics.Handler] is the page; who may see it is for others to say.
//
// # Guarantees
//
//   - Label values are bounded. Kind, work, outcome, cause, verdict, step and
//     evidence are closed sets, and what is not in them is "other". Names of
//     servers are those that [Options.Known] accepts, or the first hundred; the
//     rest is "other". Names of tools, owners, ids and reasons are never labels.
//   - A watcher that is too slow loses events. They are counted
//     (belay_events_missed_total), and then the Control is asked how things
//     stand: what is in flight is right again, runs whose end was missed are
//     counted by what they ended as, and a run that began and ended within the
//     gap is in no counter. Because a loss shows only with the next event, the
//     Control is asked from time to time as well.
//   - A verdict is counted once for each run, when it first becomes final.
//     Evidence that comes later is counted apart, and changes no counter back.
//   - A nil *Metrics counts nothing, so that callers need not ask.
package metrics
