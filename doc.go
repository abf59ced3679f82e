// Package belay is the domain of Belay: what a run is, how it is stopped, and
// what may be said about it afterwards.
//
// # The model
//
// A [Run] is one cancellable piece of work (a session, a prompt turn, a tool
// call, a task, a script, a process). Runs form a [Tree]; a run is registered
// before its work is dispatched, so that no work exists that cannot be named
// and stopped.
//
// A run has two axes on purpose. [Outcome] is what the caller was told: it is
// pending, then once and for ever one of completed, failed, cancelled,
// declined or lost; the first terminal outcome wins. [Work] is what the tool
// is really doing: waiting, running, stopping, then stopped or unconfirmed.
// A stopped caller is settled in microseconds while the work behind it may
// take the whole ladder to end.
//
// # Stopping
//
// [Tree.Cancel] stops a run and its whole subtree. Under one lock every run of
// the subtree gets its [Cancellation] and its outcome; then all contexts are
// ended with that cancellation as their cause and every [Stopper] is told, all
// concurrently. Each run then climbs its [Ladder]:
//
//	told at 0 -> grace -> interrupt, terminate -> kill_after -> kill -> confirm_after -> unconfirmed
//
// Evidence ends the ladder at once. Before force is used for the first time a
// stopper that implements [Gate] is asked; it may wait (another call is in
// flight on the same process) or refuse (the tool shows no sign of life). A
// person's second Stop takes the next step now; the same Stop arriving twice
// by two ways changes nothing, because a Stop has an identity ([StopID]). It
// also reaches runs whose ladder gave up, on them or on a run above, as long as
// they are remembered: force that was held back can then be used after all.
//
// # Asking
//
// [Run.Ask] puts a [Question] to people and waits: [Tree.Approvals] shows what is
// open to any door, [Tree.Decide] brings an answer. A question is decided once,
// by a person, by time, or by a Stop, which withdraws it and is no answer. A no
// is not a cancellation: the run goes on, and ends declined.
//
// # Honesty
//
// Every cancellation ends in a [Receipt]: a timeline of steps, each with its
// means and what was seen, and one [Verdict]. "Confirmed" is said only on
// Belay's own evidence, within a [Scope]. Evidence that comes after the ladder
// gave up still upgrades the receipt.
//
// # Guarantees
//
//   - Outcome changes once. A second settlement is counted as late and has no
//     other effect.
//   - No context made here is ever ended without a *Cancellation as its cause.
//   - A run is never registered under a run that is cancelled or over.
//   - The ids of a tree's runs rise in the order of registration.
//   - A question is decided once, and none outlives its run.
//   - No list, however long or selective, holds up the tree: it is made in parts
//     of some tens of microseconds. Only a Stop takes all it matches in one moment.
//   - Every goroutine belongs to a Tree; [Tree.Close] refuses new runs, stops
//     what is left and waits.
//   - Ended runs are kept for a time and up to a count, labels, names and
//     reasons are bounded, slow watchers lose events (and are told how many)
//     instead of slowing the tree.
//
// The package imports the standard library only, and nothing in it knows a
// protocol.
package belay
