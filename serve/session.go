package serve

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/gateway"
	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
	"github.com/belayhq/belay/mcp/httpserver"
)

// opened is what the gateway opens.
type opened interface {
	Deliver(a mcp.Arrival)
	Abandon(exchange uint64, c belay.Cancellation)
	Ended() <-chan struct{}
	Err() error
	Close(ctx context.Context, c belay.Cancellation) error
	Run() *belay.Run
	InFlight() int
	Tell(id string, frame []byte) bool
}

var (
	_ opened             = (*gateway.Session)(nil)
	_ httpserver.Session = (*held)(nil)
	_ httpserver.Backend = (*endpoint)(nil)
)

// held is a session of the gateway with somebody who closes it when it cannot
// go on: whoever sees Ended may count on everything being answered.
type held struct {
	opened
	e      *endpoint
	owner  string        // of its run
	modern bool          // callers of 2026-07-28 share it
	part   bool          // of a session at /mcp
	shared *shared       // nil for a legacy caller's; guarded by e.mu
	used   atomic.Int64  // unix nanoseconds of the last use, for shared ones
	over   chan struct{} // closed by keep when all is over
	err    error         // why it ended by itself; set before over is closed
	closed atomic.Bool   // somebody wanted the end
}

func (s *held) use()                 { s.used.Store(time.Now().UnixNano()) }
func (s *held) quiet() time.Duration { return time.Since(time.Unix(0, s.used.Load())) }

// Ended implements [httpserver.Session].
func (s *held) Ended() <-chan struct{} { return s.over }

// Err implements [httpserver.Session].
func (s *held) Err() error {
	select {
	case <-s.over:
		return s.err
	default:
		return nil
	}
}

// Close implements [httpserver.Session].
func (s *held) Close(ctx context.Context, c belay.Cancellation) error {
	s.closed.Store(true)
	if err := s.opened.Close(ctx, c); err != nil {
		return err
	}
	<-s.over
	return nil
}

// keepLimit bounds the end of a session that ended by itself.
const keepLimit = 10 * time.Second

// keep waits for the end of the session and completes it. A shared one ends when
// nothing has passed for the idle time; 0 means never.
func (s *held) keep(idle time.Duration) {
	defer close(s.over)
	var timer *time.Timer
	var rest <-chan time.Time
	if idle > 0 {
		timer = time.NewTimer(idle)
		defer timer.Stop()
		rest = timer.C
	}
	end := belay.Cancellation{Cause: belay.CauseShutdown, Via: "belay", Reason: "the session cannot go on"}
	for waiting := true; waiting; {
		select {
		case <-s.opened.Ended():
			if !s.closed.Load() {
				s.err = s.opened.Err()
			}
			waiting = false
		case <-rest:
			if quiet := s.quiet(); quiet < idle {
				timer.Reset(idle - quiet)
				continue
			}
			if !s.e.giveUpIdle(s, idle) {
				timer.Reset(idle)
				continue
			}
			s.closed.Store(true)
			end.Reason = "nothing was asked of the session for " + idle.String()
			waiting = false
		}
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), keepLimit, &end)
	defer cancel()
	if err := s.opened.Close(ctx, end); err != nil {
		s.e.o.Log.Error("a session has not ended", "server", s.e.def.Name, "error", err)
	}
	s.e.remove(s)
}

// nowhere takes what belongs to no request of a modern caller (MCP-74).
type nowhere struct{}

func (nowhere) Send([]byte, ...jsonrpc.Edit) error        { return nil }
func (nowhere) Answer(int, []byte, ...jsonrpc.Edit) error { return nil }
func (nowhere) Drop()                                     {}
