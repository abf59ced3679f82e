package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/belayhq/belay"
)

// Registration describes work that Belay did not start, so that it becomes a run
// like the others: seen, found and stopped by the same doors. Kind and Name are
// required.
type Registration struct {
	Kind      belay.Kind
	Name      string            // for people
	Server    string            // who does the work, for people and for filters
	RequestID string            // how the runtime's own protocol names it
	Labels    map[string]string // by which it is found and stopped
	Parent    belay.RunID       // the run above: its Stop is this one's too
	Deadline  time.Time         // stopped then; zero: none
	Lease     time.Duration     // how long the run is believed in without a heartbeat: 5 s to 1 h, default 60 s
	Webhook   string            // a URL that is told of Stops; empty: heartbeats and events tell

	// Key makes a registration that is sent twice one run. Default: a random
	// one for each call of Register.
	Key string
}

// registration is the body.
type registration struct {
	Kind      belay.Kind        `json:"kind"`
	Name      string            `json:"name"`
	Server    string            `json:"server,omitempty"`
	RequestID string            `json:"request_id,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	Parent    belay.RunID       `json:"parent,omitzero"`
	Deadline  time.Time         `json:"deadline,omitzero"`
	Lease     float64           `json:"lease,omitempty"`
	Webhook   string            `json:"webhook,omitempty"`
}

// term is a lease as the server writes it.
type term struct {
	Seconds float64   `json:"seconds"`
	Until   time.Time `json:"until"`
}

func (t term) length() time.Duration { return time.Duration(t.Seconds * float64(time.Second)) }

// Lease is a registered run of ours, to be kept alive by [Lease.Hold] (or
// [Lease.Heartbeat]) and ended by [Lease.Report] or [Lease.Finish]. Safe for
// concurrent use; the two functions are set before Hold.
type Lease struct {
	// OnOrder is told of each step of a Stop once: told, then terminate and
	// kill when the work does not end. It is called by Hold's goroutine and must
	// not block. Nil: the end of the context is all that is needed.
	OnOrder func(Order)

	// OnLost is told that the server does not count on this run any more: it was
	// forgotten, or its lease ran out while the server could not be reached. It
	// can be stopped by nobody from then on. Called by Hold's goroutine.
	OnLost func(error)

	client *Client
	run    belay.RunID
	owner  string
	length time.Duration
}

// Register makes a run of work that Belay did not start. A parent that was
// stopped already is [belay.ErrCancelled]: do not begin. Engaged, the stop-all
// latch refuses with [belay.ErrForbidden] or an [*Error] whose Code is "latched".
// The same registration with the same Key is the same run.
func (c *Client) Register(ctx context.Context, r Registration) (*Lease, error) {
	if r.Key == "" {
		r.Key = rand.Text()
	}
	var answer struct {
		Run   belay.Info `json:"run"`
		Lease term       `json:"lease"`
	}
	err := c.do(ctx, call{
		method: http.MethodPost, path: "/v1/runs", header: http.Header{"Idempotency-Key": {r.Key}},
		body: registration{r.Kind, r.Name, r.Server, r.RequestID, r.Labels, r.Parent, r.Deadline, r.Lease.Seconds(), r.Webhook},
	}, &answer)
	if err != nil {
		return nil, err
	}
	return &Lease{client: c, run: answer.Run.ID, owner: answer.Run.Owner, length: answer.Lease.length()}, nil
}

// Run is the run's id: the parent of what hangs below it, in BELAY_PARENT's
// place for callers over HTTP (the header Belay-Parent).
func (l *Lease) Run() belay.RunID { return l.run }

// Order is one step of a Stop.
type Order struct {
	Run    belay.RunID  `json:"run"`
	Stop   belay.StopID `json:"stop"`
	Step   belay.Means  `json:"step"` // told, terminate or kill
	Cause  belay.Cause  `json:"cause"`
	Reason string       `json:"reason"`
	At     time.Time    `json:"at"`
}

// Beat is the answer to a heartbeat.
type Beat struct {
	Run   belay.Info
	Until time.Time // the lease runs out then, by the server's clock
	Order *Order    // once the run is being stopped
}

// Heartbeat keeps the run for another term, and says whether it is being
// stopped. [belay.ErrEnded] and [belay.ErrNotFound]: there is nothing to keep.
func (l *Lease) Heartbeat(ctx context.Context) (Beat, error) {
	var answer struct {
		Run   belay.Info `json:"run"`
		Lease term       `json:"lease"`
		Order *Order     `json:"order"`
	}
	err := l.client.do(ctx, call{method: http.MethodPost, path: l.path("heartbeat")}, &answer)
	return Beat{answer.Run, answer.Lease.Until, answer.Order}, err
}

func (l *Lease) path(verb string) string { return "/v1/runs/" + l.run.String() + "/" + verb }

// Report is how the work ended.
type Report struct {
	Outcome  belay.Outcome // completed, failed, cancelled or declined
	Evidence *Proof        // that it has ended, or has not
	Partial  string        // what it had when it was stopped, for the receipt
}

// Proof is what the runtime saw of its own work.
type Proof struct {
	Kind      belay.EvidenceKind `json:"kind"`
	Detail    string             `json:"detail,omitempty"`
	Survivors []Survivor         `json:"survivors,omitempty"`
	Remote    []string           `json:"remote,omitempty"` // connections that the dead work held
}

// Survivor is a process of the work that is still alive.
type Survivor struct {
	PID     int    `json:"pid"`
	Command string `json:"command"`
}

// Reported is what the server made of a report.
type Reported struct {
	Run     belay.Info     `json:"run"`
	Receipt *belay.Receipt `json:"receipt"` // nil if the run was not stopped
	Late    bool           `json:"late"`    // a Stop or a lost lease came first: the outcome is not the reported one
	Stored  *bool          `json:"stored"`  // whether the receipt is on disk; nil: nothing had to be
}

// Report says how the work ended; heartbeats have no meaning afterwards. Reported
// before, it is [belay.ErrEnded].
func (l *Lease) Report(ctx context.Context, r Report) (Reported, error) {
	body := struct {
		Outcome  belay.Outcome `json:"outcome"`
		Evidence *Proof        `json:"evidence,omitempty"`
		Partial  string        `json:"partial,omitempty"`
	}{r.Outcome, r.Evidence, r.Partial}
	var out Reported
	err := l.client.do(ctx, call{method: http.MethodPost, path: l.path("report"), body: body}, &out)
	return out, err
}

// finishLimit bounds the report of Finish, which goes out although the work's
// own context has often ended by then.
const finishLimit = 10 * time.Second

// Finish is Report for work that has returned: err nil is completed, an end by a
// Stop is cancelled with the proof that the handler has returned,
// [belay.ErrDeclined] is declined, and any other error is failed. ctx is that of Hold; that it has ended does not matter.
func (l *Lease) Finish(ctx context.Context, err error) (Reported, error) {
	r := Report{Outcome: belay.Completed, Evidence: &Proof{Kind: belay.SeenHandlerReturned}}
	switch {
	case belay.CancellationOf(ctx) != nil:
		r.Outcome = belay.Cancelled
	case errors.Is(err, belay.ErrDeclined):
		r.Outcome = belay.Declined
	case err != nil:
		r.Outcome = belay.Failed
	}
	limited, end := context.WithTimeoutCause(context.WithoutCancel(ctx), finishLimit,
		fmt.Errorf("%w: the report took longer than %s", belay.ErrUnreachable, finishLimit))
	defer end()
	return l.Report(limited, r)
}

// settledForUs reports whether an error of a heartbeat means that there is
// nothing to keep any more.
func settledForUs(err error) bool {
	return errors.Is(err, belay.ErrEnded) || errors.Is(err, belay.ErrNotFound)
}
