package client

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/belayhq/belay"
)

// LatchState is how the stop-all latch stands, and who turned it last.
type LatchState struct {
	Engaged bool      `json:"engaged"`
	By      string    `json:"by,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	At      time.Time `json:"at,omitzero"`
}

// Latch says whether new calls are refused. A server without a latch is
// [belay.ErrUnsupported].
func (c *Client) Latch(ctx context.Context) (LatchState, error) {
	var s LatchState
	err := c.do(ctx, call{method: http.MethodGet, path: "/v1/latch"}, &s)
	return s, err
}

// Engaging says how the latch is to be engaged.
type Engaging struct {
	Reason string
	Keep   bool          // refuse new calls, but let the runs in flight go on
	Force  bool          // kill at once instead of asking first
	Wait   time.Duration // for final verdicts: zero not at all, negative until they are final
}

// Engaged is what came of it.
type Engaged struct {
	Latch   LatchState
	Stop    belay.StopID         // zero with Keep
	Final   bool                 // no verdict below can change any more
	Results []belay.CancelResult // of the runs that were in flight; nil with Keep
}

// ErrLatchNotStored says that the latch is engaged, but that the server could not
// write that down. It stands beside the results.
var ErrLatchNotStored = errors.New("the latch is engaged, but could not be written down, and a restart of the server lifts it; engage it again when what its log says is mended")

// EngageLatch refuses new calls and stops every run that is in flight. each, if
// it is not nil, gets results as [Client.Stop] gives them. Engaged already, it
// stops what there is and keeps who engaged it first. On an error while waiting
// the state and the results are those that were seen last.
func (c *Client) EngageLatch(ctx context.Context, e Engaging, each func(belay.CancelResult)) (Engaged, error) {
	begun := time.Now()
	body := struct {
		Reason string  `json:"reason,omitempty"`
		Keep   bool    `json:"keep,omitempty"`
		Force  bool    `json:"force,omitempty"`
		Wait   float64 `json:"wait,omitempty"`
	}{cutRunes(belay.CleanReason(e.Reason), 1000), e.Keep, e.Force, 0}
	if e.Wait != 0 && !e.Keep {
		body.Wait = firstWait.Seconds()
	}
	var answer struct {
		Latch   LatchState `json:"latch"`
		Stored  *bool      `json:"stored"`
		Stopped *outcome   `json:"stopped"`
	}
	if err := c.do(ctx, call{method: http.MethodPost, path: "/v1/latch", body: body}, &answer); err != nil {
		return Engaged{}, err
	}
	out := Engaged{Latch: answer.Latch, Final: true}
	var kept error
	if answer.Stored != nil && !*answer.Stored {
		kept = ErrLatchNotStored
	}
	if answer.Stopped == nil {
		return out, kept
	}
	out.Stop, out.Results = answer.Stopped.Stop, answer.Stopped.Results
	err := c.await(ctx, begun, e.Wait, answer.Stopped, each)
	out.Final = settled(out.Results)
	return out, errors.Join(kept, err)
}

// LiftLatch lets new calls in again. It starts nothing of what was stopped.
func (c *Client) LiftLatch(ctx context.Context, reason string) (LatchState, error) {
	var s LatchState
	q := url.Values{}
	if reason = cutRunes(belay.CleanReason(reason), 1000); reason != "" {
		q.Set("reason", reason)
	}
	err := c.do(ctx, call{method: http.MethodDelete, path: "/v1/latch", query: q}, &s)
	return s, err
}
