package gateway

import (
	"context"
	"io"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
)

// inside is the wire to a server in this process: two pipes in memory.
type inside struct {
	pipe
	end context.CancelCauseFunc
}

func (w inside) hangUp() {
	w.pipe.hangUp()
	w.end(&belay.Cancellation{Cause: belay.CauseShutdown, Via: "belay", Reason: "the session is over"})
}

// host starts a server inside this process.
func (u *upstream) host() error {
	s := u.s
	toServer, fromUs := io.Pipe()
	toUs, fromServer := io.Pipe()
	ctx, end := context.WithCancelCause(context.Background())
	u.wire = inside{pipe{jsonrpc.NewWriter(fromUs, jsonrpc.WriterOptions{})}, end}
	s.mu.Lock()
	defer s.mu.Unlock()
	started := s.goLocked(func() {
		defer close(u.gone)
		u.read(toUs)
		_ = toUs.Close()
		u.ended()
	})
	if !started {
		u.wire.hangUp()
		return belay.ErrClosed
	}
	s.goLocked(func() {
		err := s.cfg.Serve(ctx, toServer, fromServer)
		if err != nil && ctx.Err() == nil {
			s.log.Warn("the server inside Belay ended with an error", "error", err)
		}
		_ = toServer.CloseWithError(io.ErrClosedPipe)
		_ = fromServer.Close()
	})
	s.all = append(s.all, u)
	return nil
}
