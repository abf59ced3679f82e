package node

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/belayhq/belay"
)

var errClosed = errors.New("the server is closed")

// logStops writes a line for each Stop whose verdict is final: what operators
// look for when they ask what became of it.
func (s *Server) logStops() {
	ctx, end := context.WithCancelCause(context.Background())
	s.endStops = end
	events := belay.Follow(ctx, s.tree, belay.Filter{Ended: true}, nil) // begins here, so that no Stop is missed
	s.following.Go(func() {
		for e, err := range events {
			if err == nil && e.Type == belay.EventFinal && e.Receipt != nil && e.Run.Kind != belay.KindSession {
				s.logStop(ctx, &e)
			}
		}
	})
}

// logStop says how one Stop ended. A name that a peer chose is bounded and
// cleaned already; command lines of survivors stay in the receipt (DESIGN 11, 15).
func (s *Server) logStop(ctx context.Context, e *belay.Event) {
	r := e.Receipt
	level := slog.LevelInfo
	if len(r.Survivors) > 0 || !r.OK() {
		level = slog.LevelWarn
	}
	attrs := []slog.Attr{
		slog.String("run", e.Run.ID.String()), slog.String("server", e.Run.Server), slog.String("call", e.Run.Name),
		slog.String("verdict", string(r.Verdict)), slog.Int("survivors", len(r.Survivors)),
	}
	if c := r.Cancellation; c != nil {
		attrs = append(attrs, slog.String("cause", string(c.Cause)), slog.String("via", c.Via), slog.String("reason", c.Reason),
			slog.Duration("took", e.At.Sub(c.At).Round(time.Millisecond)))
	}
	s.log.LogAttrs(ctx, level, "a stopped run has its verdict", attrs...)
}
