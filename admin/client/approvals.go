package client

import (
	"context"
	"fmt"
	"net/http"

	"github.com/belayhq/belay"
)

var _ belay.Approvals = (*Client)(nil)

// Approvals implements [belay.Approvals]: the open questions, oldest first. The
// filter's Limit, IDs and Ended mean nothing here.
func (c *Client) Approvals(ctx context.Context, f belay.Filter) ([]belay.Approval, error) {
	q := filterValues(f.Owner, f.Server, f.Kinds, f.Labels)
	if !f.Under.IsZero() {
		q.Set("under", f.Under.String())
	}
	var list struct {
		Approvals []belay.Approval `json:"approvals"`
	}
	err := c.do(ctx, call{method: http.MethodGet, path: "/v1/approvals", query: q}, &list)
	return list.Approvals, err
}

// Decide implements [belay.Approvals]. Of the decision only the choice and the
// reason go to the server, which knows by itself who decides. Of a question that
// was answered before, the first decision stands, and the approval is empty
// beside [belay.ErrDecided].
func (c *Client) Decide(ctx context.Context, id belay.ApprovalID, d belay.Decision) (belay.Approval, error) {
	word, ok := map[belay.Choice]string{
		belay.ChoiceApproved: "approve", belay.ChoiceDeclined: "decline", belay.ChoiceDismissed: "dismiss",
	}[d.Choice]
	if !ok {
		return belay.Approval{}, bad("choice %.32q (want %s, %s or %s)", d.Choice, belay.ChoiceApproved, belay.ChoiceDeclined, belay.ChoiceDismissed)
	}
	if id.IsZero() {
		return belay.Approval{}, fmt.Errorf("%w: the id of the question is empty", belay.ErrNotFound)
	}
	body := struct {
		Decision string `json:"decision"`
		Reason   string `json:"reason,omitempty"`
	}{word, cutRunes(belay.CleanReason(d.Reason), 1000)}
	var a belay.Approval
	err := c.do(ctx, call{method: http.MethodPost, path: "/v1/approvals/" + id.String(), body: body}, &a)
	return a, err
}
