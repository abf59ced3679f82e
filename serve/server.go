package serve

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Limits of the HTTP server. There is none on writing: a stream lives as long as
// its call.
const (
	headerWait = 10 * time.Second
	headerMax  = 64 << 10
	idleWait   = 2 * time.Minute
)

// h2Streams is how many requests one HTTP/2 connection may have in flight. Many
// clients queue what is over it, so that a cancel would wait for the calls that
// it is to stop.
const h2Streams = 2_000

// Server is an HTTP server for the hub, with limits on what a caller may leave
// undone. Each of conn may put something into the context of a connection's
// requests, who is at its other end for example; they are called in their order,
// before the TLS handshake, on the goroutine that accepts.
func (h *Hub) Server(conn ...func(ctx context.Context, c net.Conn) context.Context) *http.Server {
	return NewServer(h, h.o.Log, conn...)
}

// NewServer is [Hub.Server] for any handler.
func NewServer(handler http.Handler, log *slog.Logger, conn ...func(ctx context.Context, c net.Conn) context.Context) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerWait,
		MaxHeaderBytes:    headerMax,
		IdleTimeout:       idleWait,
		ConnState:         newCrowd().state,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			for _, f := range conn {
				ctx = f(ctx, c) //nolint:fatcontext // each adds its own
			}
			return ctx
		},
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: h2Streams,
			SendPingTimeout:      quietPeer, // TLS connections are noticed by that, too, wherever the kernel does not ask
			PingTimeout:          deadPeer - quietPeer,
			WriteByteTimeout:     deadPeer,
		},
	}
}
