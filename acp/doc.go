// Package acp is the Agent Client Protocol, as far as stopping needs to know it,
// and a library for authors of agents and of editors in which the end of a Go
// context really stops the other side's work.
//
// # The dialect
//
// A single request is cancelled by a notification, of which there are two forms:
// the stabilised one ($/cancel_request with requestId) and the first one
// ($/cancelRequest with id). [ParseCancel] reads both, [AppendCancel] writes one,
// and [Forms] decides which, from what is known of the peer. A turn is stopped by
// session/cancel. [ReadHello] reads what a peer says of itself in initialize.
//
// # The library
//
// A [Conn] is one end of a connection, of either [Role], over any [Transport]:
// lines on two pipes ([NewStdio]), a pipe in memory ([NewPipe]), or whatever moves
// whole messages. It calls the other side ([Conn.Call]) and serves its requests
// (a [Handler]), each of which is a run in a [belay.Tree]. [Agent] and [Client]
// know in addition what a session and a turn are, in versions 1 and 2; what has no
// method there goes by [Conn.Call] and Options.Handler, as raw JSON.
//
// Stopping goes through contexts alone, in both directions:
//
//	the ctx of Call ends     -> one cancel is sent; Call waits for the true answer
//	the ctx of Prompt ends   -> one session/cancel is sent, open dialogs are withdrawn
//	a cancel is read         -> the handler's ctx ends, its cause says who and why
//	the handler calls others -> with its ctx: they are told in the same instant,
//	                            each by the id and in the form of its own connection
//	the handler returns      -> its children are answered, then it is
//	it does not return       -> the peer is answered after AnswerAfter all the same,
//	                            and the run says that the work is unconfirmed
//
// # Guarantees
//
//   - Each request gets exactly one answer: what the handler returned, or that it
//     was cancelled; whatever crosses on the way.
//   - A handler's ctx ends with a *belay.Cancellation as its cause: peer, deadline,
//     parent, disconnect, shutdown, or who stopped its run. A cancel from inside
//     looks the same on the wire as one from outside.
//   - Cancels take effect in the reader, before any queue. No handler, no slow
//     reader at the other end and no flood holds one up.
//   - A turn that was stopped never ends with an error. In version 1 its answer is
//     the stop reason cancelled, in version 2 an idle state that says so. After it
//     nothing more is sent for the turn.
//   - A permission counts only while the work that it is for lives: a late yes goes
//     nowhere, at both ends.
//   - A peer that declared that it does not handle cancels is never sent one, unless
//     the user said so; nobody is ever sent one before initialize was answered, and
//     initialize itself is never cancelled.
//   - A cancel is read in either form, whatever was declared. A malformed one is
//     counted and never taken for a cancel of something else; one that comes before
//     its request keeps that from starting; one that names a request that is over,
//     or one of the receiver's own, does nothing.
//   - One cancel is one notification in one form.
//   - What a [CancelError] says of the other side's work is what was seen: confirmed
//     only if the request was never sent.
//   - Everything that is remembered has a bound, and every goroutine an owner:
//     [Conn.Close] waits, and says which handlers have not returned.
//
// The names ACP-1 and so on in comments are those of the project's ACP requirement
// sheet.
package acp
