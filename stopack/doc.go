// Package stopack lets a server made with the official Go SDK say when the
// handler of a cancelled request has really returned. It is the server side of
// the stop-ack extension (docs/stop-ack.md); a client that asks for acks, as
// Belay does, then knows that work has stopped without having to kill it.
//
//	server := mcp.NewServer(impl, nil)
//	acks := stopack.New()
//	if err := acks.Install(server); err != nil {
//		return err
//	}
//	return server.Run(ctx, acks.Transport(&mcp.StdioTransport{}))
//
// # The model
//
// A client that wants an ack puts a token into the _meta of its request. A
// middleware watches the handler: when it returns, the [Acks] keep how it
// returned for a minute. The client learns it in one of two ways. It asks, with
// a request of its own that is answered when the handler has returned; that
// works in both eras and on every transport, also where cancelling means closing
// the stream. Or, on a transport wrapped by [Acks.Transport] and in the legacy
// era only, it is told by a notification. An HTTP handler makes its transports
// itself, so there it is asking.
//
// # What an ack means
//
// That the handler function has returned. A handler that leaves goroutines or
// processes behind must wait for them, else its ack is a lie.
//
// # Guarantees
//
//   - A notification is sent only for a request that carried a token, and only
//     if it was cancelled.
//   - A token is answered only to the principal that used it; to anybody else,
//     and when it is forgotten, it is unknown.
//   - At most 10,000 requests are watched and 4,096 remembered; beyond that the
//     oldest are forgotten, and requests run as without this package.
//   - No goroutine is started.
package stopack
