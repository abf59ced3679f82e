// Package gateway carries MCP messages between one caller and one tool server,
// registers every request as a run, and makes a Stop real.
//
// # The model
//
// A [Session] stands for one caller's connection to one server, or for all
// callers of one principal where the protocol knows no connections (Config.Modern).
// What a caller sends comes in as lines (Feed) or message by message (Deliver);
// what it is told goes to outlets: one for everything, or one for each request.
//
// Behind the session stand one or more upstreams: processes of the server, each
// with its own message pumps, or conversations with a server that is no process
// of ours, reached by HTTP or inside this process. How an upstream is spoken to
// is its wire; only one with a process has something that can be forced.
// Messages pass as the bytes they were; only ids, progress tokens, the ids in
// cancels and what Belay asks for in _meta are changed (MCP-G2).
//
// Each request of the caller becomes a call: a [belay.Run] below the session's
// run, whose [belay.Stopper] is the call itself. Upstream it has an id that
// Belay made and never uses again (MCP-G6), so that a late cancel or answer
// cannot hit another call.
//
// # How a call is stopped
//
//	caller's cancel, operator, deadline, disconnect
//	  -> the run's outcome is cancelled; the caller is settled
//	  -> Tell: the frame is withdrawn, if not a byte of it was written; else
//	     notifications/cancelled goes ahead of what is queued (MCP-G19)
//	  -> grace -> MayForce: the rules of restraint (see enforce.go)
//	  -> Terminate, Kill: of the process that serves the call, or of the
//	     processes that were born during it
//	  -> a fresh process is put into the same session (see replay.go)
//
// Where the operator has said how a tool's work elsewhere is stopped, those
// hooks are the force (hooks.go). A server may prove by an acknowledgement that
// its handler has returned (ack.go).
//
// # Processes for calls
//
// With [IsolationCall] each tools/call leases a process from its session and gives
// it back when it has ended cleanly; one whose call was stopped is ended, which is
// the proof, and another takes its place (lease.go). What the callers of a process
// are told that ended by itself is for its owner to say (epitaph.go). How many calls
// of a tool a principal has at once can be bounded (places.go).
//
// # Work beyond one request
//
// A request that became a task goes on as a run of its own after its answer
// (tasks.go); it is stopped by tasks/cancel, and then like a call. Its id is bound
// to the principal who got it (taskregistry.go). A call whose server asks for
// input goes on with the retry, as the same run (rounds.go).
//
// # Questions of scripts
//
// A script worker of Belay's own (Config.Asks) asks Belay for approval, not the
// caller: the question becomes one of the call's run, which every door to approvals
// shows, and beside that the caller is asked, in the way of its era; the first answer
// wins. A modern caller is then between two legs while its call goes on, and gets
// what there is with the next one (scriptask.go).
//
// # What is decided before a call starts
//
// In this order: a call about another principal's task, or below a run that is not
// the caller's own and in flight, is refused; then the [Gate] may refuse it; then a
// Stop that came before it stops it, and so does one that has stopped the run above
// it: it is registered, has a receipt, and never reaches the server (gate.go,
// below.go). What callers call their calls becomes labels (names.go, trace.go).
//
// # Guarantees
//
//   - A caller gets at most one answer for an id, and after its own cancel none.
//   - What was stopped before it started never reaches the server, and whoever
//     stopped it has a receipt.
//   - A call that hangs below another run than the session's is stopped with either.
//   - Force never ends a process on which another call is in flight; it waits,
//     and says for whom.
//   - A task that works counts as such a call; nobody else's request about a
//     principal's task reaches the server.
//   - The retry of a call that was stopped between two input rounds never reaches
//     the server.
//   - A question of a stopped call is taken back everywhere, and no answer to it
//     reaches the script.
//   - Processes that an earlier call left behind outlive a forced restart.
//   - A process never serves two sessions, so that what one principal has left in it
//     never meets another.
//   - Whoever stops reading or floods delays nobody but himself; every queue,
//     table and list has a bound.
//   - Close ends every process and goroutine of the session.
//
// Locks: Session.mu is taken before any lock of belay, jsonrpc or proc, and is
// never held while one of them waits.
package gateway
