package admin

import (
	"bytes"
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/belayhq/belay"
)

// compact is v as JSON without HTML escaping and without a line's end (ORC-29).
func compact(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		// Only types of this package come here, and all of them have a form.
		panic("admin: an answer cannot be written: " + err.Error())
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// send writes a JSON answer of the Orchestrate family. That the client has gone
// changes nothing for anybody, so the error of the last write is not looked at.
func send(w http.ResponseWriter, status int, v any) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(compact(v))
}

// refusal is the error form of the Orchestrate family (ORC-33): detail is a
// text or a list of findings.
type refusal struct {
	Detail any `json:"detail"`
}

func refuse(w http.ResponseWriter, status int, detail any) {
	send(w, status, refusal{detail})
}

// retryAfter is the value of a Retry-After header: whole seconds, never 0.
func retryAfter(d time.Duration) string {
	return strconv.Itoa(max(1, int(math.Ceil(d.Seconds()))))
}

// unixTime is a time as the seed writes it: seconds since 1970 with microseconds
// as fraction, never in exponent form (ORC-16). There is always a fraction, so
// that a reader which tells integers from floats sees a float.
type unixTime time.Time

// MarshalJSON implements json.Marshaler.
func (t unixTime) MarshalJSON() ([]byte, error) {
	us := time.Time(t).UnixMicro()
	sign := ""
	if us < 0 {
		sign, us = "-", -us
	}
	fraction := strings.TrimRight(strconv.FormatInt(us%1_000_000+1_000_000, 10)[1:], "0")
	if fraction == "" {
		fraction = "0"
	}
	return []byte(sign + strconv.FormatInt(us/1_000_000, 10) + "." + fraction), nil
}

// cancelAnswer is the answer to a cancel: the seed's keys in the seed's order,
// then Belay's (ORC-3, ORC-38).
type cancelAnswer struct {
	Status    string         `json:"status"`
	RequestID string         `json:"requestId"`
	Reason    *string        `json:"reason"`
	Run       *belay.RunID   `json:"run"`
	Affected  bool           `json:"affected"`
	Pending   bool           `json:"pending"`
	Work      *belay.Work    `json:"work"`
	Verdict   *belay.Verdict `json:"verdict"`
	Stored    *bool          `json:"stored,omitempty"` // only false: the final verdict may be gone after a crash
}

// endedAnswer is the answer to a cancel of a run that ended by itself (ORC-40).
type endedAnswer struct {
	Status    string        `json:"status"`
	RequestID string        `json:"requestId"`
	Reason    *string       `json:"reason"`
	Run       belay.RunID   `json:"run"`
	Affected  bool          `json:"affected"`
	Pending   bool          `json:"pending"`
	Outcome   belay.Outcome `json:"outcome"`
}

const (
	statusCancelled = "cancelled"
	statusQueued    = "queued"
)

// ambiguity is the answer when a name fits several runs (ORC-74).
type ambiguity struct {
	Detail     string      `json:"detail"`
	Candidates []candidate `json:"candidates"`
	More       int         `json:"more"`
}

type candidate struct {
	Run          belay.RunID `json:"run"`
	Name         string      `json:"name"`
	RegisteredAt unixTime    `json:"registered_at"`
}

// maxCandidates bounds an [ambiguity].
const maxCandidates = 100

// ambiguous lists the runs, which are sorted newest first.
func ambiguous(runs []belay.Info) ambiguity {
	a := ambiguity{Detail: "Request id is ambiguous", Candidates: []candidate{}}
	for _, i := range runs[:min(len(runs), maxCandidates)] {
		a.Candidates = append(a.Candidates, candidate{i.ID, i.Name, unixTime(i.Started)})
	}
	a.More = len(runs) - len(a.Candidates)
	return a
}

// statusAnswer is the answer to a status: the seed's five keys, then Belay's
// (ORC-13, ORC-51). It holds no arguments, results or callbacks (ORC-51).
type statusAnswer struct {
	Name         *string   `json:"name"`
	RegisteredAt unixTime  `json:"registered_at"`
	Cancelled    bool      `json:"cancelled"`
	CancelledAt  *unixTime `json:"cancelled_at,omitempty"`
	// CancelReason points at nil for null: both keys are absent before a cancel
	// and present after it (ORC-18).
	CancelReason **string `json:"cancel_reason,omitempty"`

	Run        belay.RunID     `json:"run"`
	RequestID  json.RawMessage `json:"request_id"` // in its own JSON type; null without one
	Protocol   *string         `json:"protocol"`
	Kind       belay.Kind      `json:"kind"`
	Parent     *belay.RunID    `json:"parent"`
	Outcome    belay.Outcome   `json:"outcome"`
	Work       belay.Work      `json:"work"`
	Verdict    *belay.Verdict  `json:"verdict"`
	Cause      belay.Cause     `json:"cause,omitempty"`
	FinishedAt *unixTime       `json:"finished_at,omitempty"`
	LateResult *bool           `json:"late_result,omitempty"`
	Owner      string          `json:"owner,omitempty"` // only with ExposeOwner (ORC-52)
}

// statusOf puts a run into the form of the seed.
func (a *API) statusOf(d *belay.Detail) *statusAnswer {
	s := &statusAnswer{
		RegisteredAt: unixTime(d.Started), Run: d.ID, RequestID: requestIDJSON(&d.Info),
		Kind: d.Kind, Outcome: d.Outcome, Work: d.Work, Verdict: finalVerdict(d.Receipt),
	}
	if d.Name != "" {
		s.Name = &d.Name
	}
	if !d.Parent.IsZero() {
		s.Parent = &d.Parent
	}
	if p := a.o.Protocol(&d.Info); p != "" {
		s.Protocol = &p
	}
	if !d.Ended.IsZero() {
		at := unixTime(d.Ended)
		s.FinishedAt = &at
	}
	if a.o.ExposeOwner {
		s.Owner = d.Owner
	}
	if c := d.Cancellation; c != nil {
		at, late := unixTime(c.At), d.Receipt != nil && d.Receipt.Late > 0
		var reason *string
		if c.Reason != "" {
			reason = &c.Reason
		}
		s.Cancelled, s.CancelledAt, s.CancelReason = true, &at, &reason
		s.Cause, s.LateResult = c.Cause, &late
	}
	return s
}

// finalVerdict is the verdict of a receipt, nil while it may still change.
func finalVerdict(r *belay.Receipt) *belay.Verdict {
	if r == nil || !r.Final || r.Verdict == "" {
		return nil
	}
	v := r.Verdict
	return &v
}
