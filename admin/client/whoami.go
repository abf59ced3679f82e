package client

import (
	"context"
	"net/http"
	"slices"

	"github.com/belayhq/belay"
)

// Identity is who the server takes us for.
type Identity struct {
	Name        string        `json:"name"`
	Permissions []string      `json:"permissions"`
	Inside      []belay.RunID `json:"inside"` // the runs within which this process lies: it may not stop others
}

// May reports whether the permission is among them.
func (i *Identity) May(permission string) bool { return slices.Contains(i.Permissions, permission) }

// WhoAmI asks the server who we are to it, and what we may do.
func (c *Client) WhoAmI(ctx context.Context) (Identity, error) {
	var i Identity
	err := c.do(ctx, call{method: http.MethodGet, path: "/v1/whoami"}, &i)
	return i, err
}
