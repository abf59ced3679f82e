package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/belayhq/belay"
)

// Bounds of one call.
const (
	maxAnswer  = 64 << 20         // a page of a thousand runs with all their labels is well below
	maxTries   = 16               // of a request that is refused for its rate
	maxPause   = time.Minute      // a server that wants a longer one gets no second try
	leastPause = time.Second / 10 // between two tries
)

// call is one request.
type call struct {
	method string
	path   string
	query  url.Values
	body   any // nil: none
	header http.Header
}

// do sends a request and decodes the answer into out.
func (c *Client) do(ctx context.Context, r call, out any) error {
	resp, err := c.open(ctx, r) //nolint:bodyclose // drain closes it
	if err != nil {
		return err
	}
	defer drain(resp.Body)
	if kind := resp.Header.Get("Content-Type"); !strings.HasPrefix(kind, "application/json") {
		return fmt.Errorf("%s %w: it answered %s with %.64q and not with JSON; is it a Belay server?", c.named, belay.ErrUnreachable, r.path, kind)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return c.unreached(ctx, err)
	case len(body) > maxAnswer:
		return fmt.Errorf("%s: the answer to %s is larger than %d MiB; ask for less at once", c.named, r.path, maxAnswer>>20)
	}
	if err := json.Unmarshal(body, out); err != nil {
		return fmt.Errorf("%s: the answer to %s could not be read: %w", c.named, r.path, err)
	}
	return nil
}

// open sends a request and returns the answer to it if it is a good one; the
// caller closes its body. One that was refused for its rate, of which nothing was
// carried out, is sent again when the server says so.
func (c *Client) open(ctx context.Context, r call) (*http.Response, error) {
	var body []byte
	if r.body != nil {
		var err error
		if body, err = json.Marshal(r.body); err != nil {
			return nil, bad("%v", err)
		}
	}
	for try := 1; ; try++ {
		resp, err := c.send(ctx, r, body)
		if err != nil {
			return nil, err
		}
		if resp.StatusCode < 300 {
			return resp, nil
		}
		text, _ := io.ReadAll(io.LimitReader(resp.Body, maxProblem)) // what arrived will do
		drain(resp.Body)
		problem := problemIn(resp.StatusCode, resp.Header, text)
		if resp.StatusCode != http.StatusTooManyRequests || try == maxTries {
			return nil, problem
		}
		if !pause(ctx, problem.RetryAfter) {
			return nil, problem
		}
	}
}

// pause waits, and returns false if the context ends before, or at once if it is
// known that it will.
func pause(ctx context.Context, d time.Duration) bool {
	d = max(d, leastPause)
	if end, ok := ctx.Deadline(); d > maxPause || ok && time.Until(end) < d {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (c *Client) send(ctx context.Context, r call, body []byte) (*http.Response, error) {
	u := *c.base
	u = *u.JoinPath(r.path)
	u.RawQuery = r.query.Encode()
	req, err := http.NewRequestWithContext(ctx, r.method, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, bad("%v", err)
	}
	maps.Copy(req.Header, r.header)
	if r.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if req.Header.Get("Accept") == "" {
		req.Header.Set("Accept", "application/json, application/problem+json")
	}
	req.Header.Set("User-Agent", c.agent)
	token, err := c.token(ctx)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: the token for %s could not be had: %w", ErrUnauthorized, c.named, err)
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return nil, fmt.Errorf("%w: the token for %s holds blanks or characters that no token has", ErrUnauthorized, c.named)
	case token != "":
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if resp != nil {
			drain(resp.Body)
		}
		return nil, c.unreached(ctx, err)
	}
	return resp, nil
}

// drain reads what little may be left, so that the connection can be used
// again, and closes it.
func drain(body io.ReadCloser) {
	_, _ = io.CopyN(io.Discard, body, 64<<10)
	_ = body.Close()
}
