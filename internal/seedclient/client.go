package seedclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
)

// ErrNotFound is the page's one error: there is no such run.
var ErrNotFound = errors.New("run not found")

// A Refusal is any other answer that is not 200. The page does not describe
// them.
type Refusal struct {
	Status int
	Body   string
}

// Error implements error.
func (r *Refusal) Error() string { return fmt.Sprintf("%d %s", r.Status, r.Body) }

// Client asks one gateway. Safe for concurrent use.
type Client struct {
	Base   string       // scheme, host and port
	Family string       // what the routes begin with; empty: /orchestrate
	Token  string       // of the Authorization header; empty: none
	HTTP   *http.Client // nil: the default one
}

// Cancelled is the answer to a cancel.
type Cancelled struct {
	Status    string // "cancelled" or "queued"
	RequestID string
	Reason    *string
	Raw       []byte // as it came
}

// Run is the answer to a status.
type Run struct {
	Name         *string
	RegisteredAt float64 // seconds since the epoch
	Cancelled    bool
	CancelledAt  *float64
	CancelReason *string
	Raw          []byte // as it came
}

// Cancel asks for the cancellation of a run; reason may be nil.
func (c *Client) Cancel(ctx context.Context, requestID string, reason *string) (Cancelled, error) {
	body, err := json.Marshal(map[string]any{"requestId": requestID, "reason": reason})
	if err != nil {
		return Cancelled{}, err
	}
	got := Cancelled{}
	o, err := c.send(ctx, http.MethodPost, "/cancel", body)
	if err != nil {
		return got, err
	}
	got.Raw = o.raw
	got.Status, got.RequestID, got.Reason = o.text("status"), o.text("requestId"), o.textOrNull("reason")
	if got.Status != "cancelled" && got.Status != "queued" {
		o.wrong("status", "neither cancelled nor queued")
	}
	if got.RequestID != requestID {
		o.wrong("requestId", "not what was sent")
	}
	if (got.Reason == nil) != (reason == nil) || reason != nil && got.Reason != nil && *got.Reason != *reason {
		o.wrong("reason", "not what was sent")
	}
	return got, o.err()
}

// Status asks how a run stands; an unknown one is [ErrNotFound].
func (c *Client) Status(ctx context.Context, requestID string) (Run, error) {
	got := Run{}
	o, err := c.send(ctx, http.MethodGet, "/status/"+url.PathEscape(requestID), nil)
	if refused, ok := errors.AsType[*Refusal](err); ok && refused.Status == http.StatusNotFound {
		var e map[string]any
		if json.Unmarshal([]byte(refused.Body), &e) == nil && len(e) == 1 && e["detail"] == "Run not found" {
			return got, ErrNotFound
		}
	}
	if err != nil {
		return got, err
	}
	got.Raw = o.raw
	got.Name, got.RegisteredAt, got.Cancelled = o.textOrNull("name"), o.float("registered_at"), o.truth("cancelled")
	if _, there := o.keys["cancelled_at"]; there != got.Cancelled {
		o.wrong("cancelled_at", "it is there only if the run has been cancelled")
	}
	if got.Cancelled {
		at := o.float("cancelled_at")
		got.CancelledAt = &at
	}
	if _, there := o.keys["cancel_reason"]; there || got.Cancelled {
		got.CancelReason = o.textOrNull("cancel_reason")
	}
	return got, o.err()
}

// maxAnswer is more than any answer of the page has.
const maxAnswer = 1 << 20

// send returns the object that a 200 carries.
func (c *Client) send(ctx context.Context, method, path string, body []byte) (*object, error) {
	family := c.Family
	if family == "" {
		family = "/orchestrate"
	}
	req, err := http.NewRequestWithContext(ctx, method, c.Base+family+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.Token)
	}
	client := c.HTTP
	if client == nil {
		client = http.DefaultClient
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, &Refusal{resp.StatusCode, string(raw)}
	}
	if kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, fmt.Errorf("the answer is %q, not application/json", resp.Header.Get("Content-Type"))
	}
	return parse(raw)
}
