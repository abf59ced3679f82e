package httpserver

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/belayhq/belay/mcp"
)

// Policy says what a dropped connection of a legacy caller means (MCP-G15).
// Everybody else's disconnect is always a Stop.
type Policy uint8

// The policies.
const (
	Detach      Policy = iota // the call goes on; its result waits for a resume
	Cancel                    // a Stop of the call
	CancelAfter               // a Stop, unless the caller resumes in time
)

// Config are the settings of a [Handler]. Zero values mean the defaults.
type Config struct {
	// Backend opens sessions. Required.
	Backend Backend

	// Path is where the handler is mounted, for example "/mcp/files"; the paths
	// /sse and /message below it serve 2024-11-05 callers. Empty: the prefix was
	// stripped, and the path is empty or "/".
	Path string

	// Identify finds out who sent a request; nil: everybody is "local", unproven. It is
	// asked for every request, after the checks of Host and Origin and before the
	// body is read, has to be cheap, and is called concurrently. An error is
	// answered with 401, or as it says itself if it is a [Refuser].
	Identify func(*http.Request) (Identity, error)

	// AllowedHosts are values of the Host header that are served beside the
	// names of this machine's loopback, which always are when the connection
	// came in over loopback: "name" for any port, "name:port", or "*". Empty, and
	// the connection came in over another address or over TLS: any host. See
	// [Guard].
	AllowedHosts []string

	// AllowedOrigins are values of the Origin header that are served beside
	// loopback names, hosts that the rules above allow by name, and away from
	// plain loopback the very host that is asked: "https://name:port" or "*". A
	// request without Origin comes from no browser and is fine (MCP-43).
	AllowedOrigins []string

	// Disconnect says what a dropped connection of a legacy caller means;
	// CancelAfter is the time for [CancelAfter], 0: 30 s.
	Disconnect  Policy
	CancelAfter time.Duration

	// Supported are the protocol versions that are named to a modern caller who
	// asks for another one; nil: [mcp.Revision26] alone. The server may speak
	// others as well, but must not be promised to.
	Supported []string

	ResumeFor   time.Duration // how long a stream can be resumed; 0: 5 min
	ResumeBytes int           // what one session keeps for resumes; 0: 4 MiB
	QueueBytes  int           // what waits for one slow reader; 0: 4 MiB. One message always may
	MaxBody     int           // bytes of a request's body; 0: 16 MiB
	MaxBatch    int           // messages in a batch; 0: 1000
	MaxSessions int           // legacy sessions at once; 0: 10,000
	SessionIdle time.Duration // a session without streams and calls ends then; 0: 1 h
	HeaderWait  time.Duration // the answer's headers go out at the latest then; 0: 2 s
	KeepAlive   time.Duration // between comments on a quiet stream; 0: 15 s
	BodyWait    time.Duration // a body has to be here by then; 0: 30 s
	WriteWait   time.Duration // the peer takes a write by then or is gone; 0: 30 s

	// Log gets what is worth knowing; nil: nothing. Reasons and names that came
	// from a peer are bounded and cleaned.
	Log *slog.Logger
}

// local is everybody's principal where nobody is asked.
const local = "local"

func (c Config) withDefaults() Config {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Supported == nil {
		c.Supported = []string{mcp.Revision26}
	}
	def(&c.ResumeFor, 5*time.Minute)
	def(&c.CancelAfter, 30*time.Second)
	def(&c.SessionIdle, time.Hour)
	def(&c.HeaderWait, 2*time.Second)
	def(&c.KeepAlive, 15*time.Second)
	def(&c.BodyWait, 30*time.Second)
	def(&c.WriteWait, 30*time.Second)
	def(&c.ResumeBytes, 4<<20)
	def(&c.QueueBytes, 4<<20)
	def(&c.MaxBody, 16<<20)
	def(&c.MaxBatch, 1000)
	def(&c.MaxSessions, 10_000)
	return c
}

func def[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// The legacy revisions.
const (
	revision24  = "2024-11-05"
	revision25a = "2025-03-26"
	revision25b = "2025-06-18"
	revision25c = "2025-11-25"
)
