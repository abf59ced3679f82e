package httpserver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/mcp"
)

// Backend opens conversations with one server. Its methods are called
// concurrently. Their errors become what the caller reads: an [*EraError] is
// answered with −32022 and the versions that are served (MCP-58, MCP-G4),
// [ErrBusy] with HTTP 503, everything else with HTTP 502, always with a
// JSON-RPC error in the body.
type Backend interface {
	// Open begins a legacy caller's session. out takes what belongs to no request
	// of the caller: it ends up on the caller's GET stream, and on a 2024-11-05
	// connection it is the one stream, which takes answers as well. ctx is that
	// of the opening request; the session outlives it.
	Open(ctx context.Context, who Caller, out mcp.Outlet) (Session, error)

	// Shared returns the session that all modern callers of this principal have
	// in common. It is called for every exchange and has to be cheap. The session
	// belongs to the backend, which closes it; a Handler never does.
	Shared(ctx context.Context, who Caller) (Session, error)
}

// Session is one conversation with a server. All methods may be called
// concurrently.
type Session interface {
	// Deliver takes one message of the caller and never waits for the server.
	// a.Message and its frame are valid only during the call; a.To and the
	// strings in a.Params may be kept. A request is answered or dropped exactly
	// once, on its outlet.
	Deliver(a mcp.Arrival)

	// Abandon says that the caller of this exchange went away, which is a Stop
	// of its call. Nothing happens if that call has ended.
	Abandon(exchange uint64, c belay.Cancellation)

	// Ended is closed when the session is over and everything that was in flight
	// has been answered.
	Ended() <-chan struct{}

	// Err says why the session ended; nil before and after a Close.
	Err() error

	// Close stops all calls and ends the session. It answers what was in flight
	// before it returns.
	Close(ctx context.Context, c belay.Cancellation) error
}

// Caller is what is known of a caller when its conversation begins.
type Caller struct {
	Principal string // who it is, as Config.Identify found out
	Remote    string // its address, for logs
	Agent     string // its User-Agent, bounded, for logs

	// Revision is the protocol version that the caller named: in initialize, or
	// in the _meta of a modern request. Empty on a 2024-11-05 connection, which
	// is opened before anything is said.
	Revision string

	// Part says that the conversation is a part of another one, which is the one
	// that the caller knows: a backend made of several sets it for those.
	Part bool

	expires  time.Time // of the identity that this request came with
	unproven bool      // likewise
}

// Errors that a [Backend] returns and that get an answer of their own.
var (
	// ErrEra says that the server does not speak the caller's era.
	ErrEra = errors.New("the server does not speak this protocol era")
	// ErrBusy says that there is no room for one more session.
	ErrBusy = errors.New("no room for one more session")
)

// EraError is an [ErrEra] that names what the server speaks.
type EraError struct {
	Supported []string // protocol versions, in the order of preference
}

// Error names the versions.
func (e *EraError) Error() string {
	return fmt.Sprintf("%v: it speaks %s", ErrEra, strings.Join(e.Supported, ", "))
}

// Is makes the error match [ErrEra].
func (e *EraError) Is(target error) bool { return target == ErrEra }
