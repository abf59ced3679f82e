package ledger

import (
	"log/slog"
	"time"
)

// MaxRevisions is how many states of one receipt are kept; further ones only if
// their verdict is better.
const MaxRevisions = 16

// Options says how a ledger is kept. Zero values mean the defaults.
type Options struct {
	// Batch is how long records gather before they are committed, unless somebody
	// waits for one or there is a receipt among them; default 100 ms. A transaction
	// costs as much as a hundred rows and a sync, which calls that come meanwhile
	// notice.
	Batch time.Duration
	Queue int // runs that may wait to be written; default 16,384

	KeepFor time.Duration // since a run's end; default 7 days (ORC-53); negative: no bound
	// KeepOf is KeepFor for the runs of some principals (DESIGN 11, 15); a time
	// that is negative: no bound. It is not changed after Open.
	KeepOf    map[string]time.Duration
	KeepRuns  int   // default 1,000,000 (ORC-53); negative: no bound
	KeepBytes int64 // of the file; default 1 GiB; negative: no bound

	Partials bool // store what stopped tools had so far
	Commands bool // store command lines of survivors and of processes that were spared

	Log *slog.Logger // nil: silent
}

func (o Options) withDefaults() Options {
	if o.Batch <= 0 {
		o.Batch = 100 * time.Millisecond
	}
	if o.Queue <= 0 {
		o.Queue = 16_384
	}
	if o.KeepFor == 0 {
		o.KeepFor = 7 * 24 * time.Hour
	}
	if o.KeepRuns == 0 {
		o.KeepRuns = 1_000_000
	}
	if o.KeepBytes == 0 {
		o.KeepBytes = 1 << 30
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Stats are counts since the ledger was opened, for metrics.
type Stats struct {
	Written  uint64 // records committed; several of one run count each
	Batches  uint64 // transactions
	Failed   uint64 // transactions that could not be committed
	Dropped  uint64 // records dropped because the queue was full or the file is damaged
	Refused  uint64 // records that the file refused: a taken id, an erased principal
	Missed   uint64 // events that the tree could not hand over in time
	Resyncs  uint64 // times the tree was asked for what was missed
	Unseen   uint64 // runs that became lost because their end was not seen
	Lost     uint64 // runs that were in flight when the process before this one died
	Trimmed  uint64 // runs deleted by retention
	Queued   int    // runs that wait to be written now
	Trouble  error  // why writing fails at the moment; nil: it does not
	Bytes    int64  // size of the file and its log
	LastSync time.Time
}
