package metrics

import (
	"log/slog"
	"time"

	"github.com/belayhq/belay"
)

// maxServers is how many servers get a label value of their own when nobody
// says which are known.
const maxServers = 100

// Options are the settings of [New]. Control is required; the zero value of
// any other field means its default.
type Options struct {
	Control belay.Control // whose runs are counted
	Log     *slog.Logger  // nil: nothing is logged
	Version string        // for belay_build_info

	// Known says which servers get a label value of their own: those of the
	// configuration. It is never called concurrently and must not block. A name
	// that it accepts is accepted for good; about others it is asked again after
	// Recheck. Nil: the first hundred names that come by.
	Known func(server string) bool

	// Each is asked whenever somebody looks; nil leaves its metrics out. They
	// may be called concurrently and must not block.
	Sessions func() int         // sessions with callers that are open now
	Latched  func() bool        // whether new calls are refused
	Ledger   func() LedgerStats // how the ledger fares
	Traces   func() TraceStats  // how the export of spans fares

	// Recheck is how often the Control is asked whether the counts of what is in
	// flight are still right. Default 15 s.
	Recheck time.Duration
}

func (o Options) withDefaults() Options {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Recheck <= 0 {
		o.Recheck = 15 * time.Second
	}
	return o
}

// LedgerStats is what a ledger says of itself. All but Queued, Bytes and
// Trouble only rise.
type LedgerStats struct {
	Written  uint64 // records committed
	Batches  uint64 // transactions committed
	Failed   uint64 // transactions that could not be committed
	Dropped  uint64 // records dropped: the queue was full or the file damaged
	Refused  uint64 // records that the file refused
	Missed   uint64 // events that the ledger did not get in time
	Resyncs  uint64 // times it asked for what it had missed
	Lost     uint64 // runs whose end nobody saw
	Trimmed  uint64 // runs deleted by retention
	Queued   int    // records that wait
	Bytes    int64  // size of the file and its log
	Trouble  bool   // writing fails at the moment
	LastSync time.Time
}

// TraceStats is what an exporter of spans says of itself. All but Queued only
// rise.
type TraceStats struct {
	Exported uint64 // spans that the receiver took
	Dropped  uint64 // spans that were given up: the queue was full, or the receiver refused them
	Missed   uint64 // events of runs that the tracer did not get in time
	Queued   int    // spans that wait
}
