// Package lease holds runs that Belay did not see start: turns, calls and tasks
// of other people's runtimes, which register them, keep them alive and report
// how they ended. To everybody else such a run is one like any other: it is
// listed, stopped, and may be the parent of runs that Belay does see.
//
// # The model
//
// A runtime registers a run ([Registry.Register]) and gets a lease on it: the
// right to speak for the run, and the duty to say, before the time of the lease
// is over, that it is still there ([Registry.Heartbeat]). It ends the run with a
// report ([Registry.Report]). Only the principal that registered a run may do
// either; to all others the lease does not exist. There is no secret: the run's
// id tells which run is meant, and the principal who may speak for it.
//
// # A Stop reaches the runtime
//
// When the run, or one above it, is stopped, the registry makes an [Order]: which
// run, by which act, why, and which step of the ladder (told, terminate, kill;
// the later ones when the runtime is silent, or a person presses again). The
// order is delivered in three ways, of which any one counts:
//
//   - an event stream of the owner, which shows the run's cancelled event and
//     the later steps; whoever writes streams calls [Registry.Delivered];
//   - the answer to the next heartbeat;
//   - a POST to the webhook that was named at registration, tried again while
//     the time of the step lasts. See [Hooks] for where it may go.
//
// A run whose order nobody fetched is "unreachable", and the receipt says what
// the webhook answered; one whose order was fetched and not answered is
// "signalled". A runtime that uses neither stream nor webhook learns of a Stop
// with its next heartbeat, so it does well to send one every few seconds.
//
// # What a report proves
//
// A runtime's word is another machine's word: evidence of scope remote, and at
// most "acknowledged", whatever it says that it saw (DESIGN 11, 4). It is
// written down as the nearest kind that says no more than this (a result, an
// error reply, a task reported as cancelled), with the runtime's own word in the
// detail. "Still active" and survivors do not end a run; nor does evidence which
// lists survivors.
//
// # A lease that runs out
//
// Its run is lost: the outcome says so, because nobody knows how it ended. Then
// the run is stopped with cause disconnect, since what happened is that the one
// who did the work went silent; a deadline, which bounds the work itself, is
// another thing. The order is delivered as for any Stop, for a runtime may hang
// and come back. Runs below it are stopped with cause parent. A report that
// comes late does not change the outcome, but raises the receipt.
//
// # Bounds
//
// Leases are bounded for each principal and in total, a lease's time, an
// order's deliveries at once, a webhook's answer in size and time. Leases that
// have ended are kept for ten minutes, for late reports, within the same bound.
// The registry has one goroutine; [Registry.Close] waits for it and for every
// delivery.
package lease
