package client

import (
	"context"
	"fmt"
	"io"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/belayhq/belay"
)

// ReceiptQuery selects receipts; each field that is set narrows it.
type ReceiptQuery struct {
	Owner  string
	Server string
	Kinds  []belay.Kind      // any of these
	Labels map[string]string // all of these
	Stop   belay.StopID      // those of one act
	Since  time.Time         // stopped at this moment or later; looked at here, not by the server
}

// Receipts gives the receipts of stopped runs, those of the newest runs first, a
// page at a time, until the loop is left. An error is the last thing that it
// gives, but for [ErrIncomplete], after which more may come.
func (c *Client) Receipts(ctx context.Context, q ReceiptQuery) iter.Seq2[*belay.Receipt, error] {
	values := filterValues(q.Owner, q.Server, q.Kinds, q.Labels)
	values.Set("limit", strconv.Itoa(receiptPage))
	if !q.Stop.IsZero() {
		values.Set("stop", q.Stop.String())
	}
	early := func(r *belay.Receipt) bool {
		return r == nil || r.Cancellation != nil && r.Cancellation.At.Before(q.Since)
	}
	return walk(ctx, c, "/v1/receipts", values, func(p *page) []*belay.Receipt { return slices.DeleteFunc(p.Receipts, early) })
}

// receiptPage is how many receipts are asked for at once: they may hold partial
// results and lists of processes, which runs do not.
const receiptPage = 200

// Receipt returns the receipt of a run that was stopped. A run without one is
// [belay.ErrNotFound].
func (c *Client) Receipt(ctx context.Context, run belay.RunID) (*belay.Receipt, error) {
	var r belay.Receipt
	if run.IsZero() {
		return nil, fmt.Errorf("%w: the id is empty", belay.ErrNotFound)
	}
	if err := c.do(ctx, call{method: http.MethodGet, path: "/v1/receipts/" + run.String()}, &r); err != nil {
		return nil, err
	}
	return &r, nil
}

// Format is the form of an export.
type Format string

// The formats.
const (
	CSV   Format = "csv"    // one line for each receipt, with heads
	Lines Format = "ndjson" // one JSON object for each line
)

// Export writes the receipts that the server's ledger holds to w as they come,
// which is any amount; q.Stop and q.Since are not possible. Without a ledger it
// is [belay.ErrUnsupported]. After an error w holds a part.
func (c *Client) Export(ctx context.Context, w io.Writer, f Format, q ReceiptQuery) error {
	if !q.Since.IsZero() || !q.Stop.IsZero() {
		return bad("an export cannot be limited to a time or to one Stop")
	}
	values := filterValues(q.Owner, q.Server, q.Kinds, q.Labels)
	values.Set("format", string(f))
	header := http.Header{"Accept": {"text/csv, application/x-ndjson, application/problem+json"}}
	resp, err := c.open(ctx, call{method: http.MethodGet, path: "/v1/receipts", query: values, header: header})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	in := &source{in: resp.Body}
	if _, err = io.Copy(w, in); in.err != nil {
		return c.unreached(ctx, in.err)
	}
	return err
}

// source keeps the error of reading apart from that of writing.
type source struct {
	in  io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.in.Read(p)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}
