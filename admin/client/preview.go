package client

import (
	"context"
	"fmt"
	"net/http"

	"github.com/belayhq/belay"
)

var _ belay.Previewer = (*Client)(nil)

// Preview implements [belay.Previewer]. A server that is too old to show previews says
// [belay.ErrNotFound].
func (c *Client) Preview(ctx context.Context, id belay.ApprovalID) (string, error) {
	if id.IsZero() {
		return "", fmt.Errorf("%w: the id of the question is empty", belay.ErrNotFound)
	}
	var seen struct {
		Text string `json:"text"`
	}
	err := c.do(ctx, call{method: http.MethodPost, path: "/v1/approvals/" + id.String() + "/preview"}, &seen)
	return seen.Text, err
}
