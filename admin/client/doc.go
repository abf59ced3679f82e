// Package client talks to a Belay server by its REST interface (/v1).
//
// # The model
//
// A [Client] is a [belay.Control] for the runs of another machine, or of this
// one: whoever lists, watches and stops runs by a Control need not know where
// they are. What a server has besides (receipts, the stop-all latch,
// approvals, the caller's own name and permissions) are methods of it.
//
// The author of an agent runtime needs one call more: [Client.Hold] does a turn,
// or any other piece of work that Belay did not start, as a run like the others.
// Its context ends when somebody stops it, with who and why as the cause:
//
//	c, err := client.New(client.Options{Server: "http://127.0.0.1:7474", Token: token})
//	turn := client.Registration{Kind: belay.KindTurn, Name: "fix the tests"}
//	err = c.Hold(ctx, turn, func(ctx context.Context, run *client.Lease) error {
//		return think(ctx) // name run.Run() as the parent of what it calls
//	})
//
// [Client.Register] and the methods of [Lease] are its parts, for runtimes whose
// work does not fit into a function.
//
// # Guarantees
//
//   - A server's refusal is an [*Error] that wraps the sentinel of package belay
//     which it means ([belay.ErrNotFound], [belay.ErrForbidden], …) and holds the
//     server's own words; a server that does not answer is
//     [belay.ErrUnreachable].
//   - A token goes to the configured server and nowhere else: redirects to
//     another origin are an error, and no error or log holds one.
//   - 429 is retried after the server's Retry-After as long as the context
//     allows: of a request that is refused so nothing was carried out. Nothing
//     else is sent twice.
//   - Nothing that a server sends is read without a bound.
//   - A broken event stream goes on behind the last event that was seen; what
//     could not be had any more is counted or said.
//   - The end of a context ends waiting, never a Stop that the server has
//     accepted.
//
// The package imports the standard library and package belay only, so that
// other programs can import it without anything else of Belay.
package client
