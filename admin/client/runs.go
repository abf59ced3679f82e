package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/belayhq/belay"
)

var _ belay.Control = (*Client)(nil)

// pageSize is the most runs that a server gives at once.
const pageSize = 1000

// fewIDs is up to how many runs are asked for one by one rather than picked
// from the list of all.
const fewIDs = 32

// ErrIncomplete says that the server could not ask everybody who holds runs:
// what came is true, but there may be more. It wraps [belay.ErrUnreachable].
var ErrIncomplete = fmt.Errorf("%w: the server could not ask everybody who holds runs; some may be missing", belay.ErrUnreachable)

// Query selects runs as the server does; each field that is set narrows it.
type Query struct {
	Owner     string
	Server    string
	Kinds     []belay.Kind      // any of these
	Labels    map[string]string // all of these
	States    []string          // any of active (default), ended, all, a state of work or an outcome
	RequestID string            // the text of the protocol's id
	Under     belay.RunID       // this run and what lies below it
	OlderThan time.Duration     // since the run began; 0: any
	NewerThan time.Duration     // since the run began; 0: any
	Before    belay.RunID       // only runs with a smaller id, which are older
	Page      int               // how many to ask for at once; default and most 1000
}

func (q *Query) values() url.Values {
	v := filterValues(q.Owner, q.Server, q.Kinds, q.Labels)
	if len(q.States) > 0 {
		v["state"] = q.States
	}
	set := func(key, value string) {
		if value != "" {
			v.Set(key, value)
		}
	}
	set("request_id", q.RequestID)
	set("under", q.Under.String())
	set("cursor", q.Before.String())
	set("older_than", seconds(q.OlderThan))
	set("newer_than", seconds(q.NewerThan))
	v.Set("limit", strconv.Itoa(pageOf(q.Page)))
	return v
}

func pageOf(size int) int {
	if size <= 0 || size > pageSize {
		return pageSize
	}
	return size
}

func filterValues(owner, server string, kinds []belay.Kind, labels map[string]string) url.Values {
	v := url.Values{}
	if owner != "" {
		v.Set("owner", owner)
	}
	if server != "" {
		v.Set("server", server)
	}
	for _, k := range kinds {
		v.Add("kind", string(k))
	}
	for key, value := range labels {
		v.Add("label", key+"="+value)
	}
	return v
}

// seconds is a duration as the server reads it; empty for none.
func seconds(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64)
}

// Runs gives runs newest first, a page at a time, until the loop is left. An
// error is the last thing that it gives, but for [ErrIncomplete], after which
// more may come.
func (c *Client) Runs(ctx context.Context, q Query) iter.Seq2[belay.Info, error] {
	return walk(ctx, c, "/v1/runs", q.values(), func(p *page) []belay.Info { return p.Runs })
}

// page is a part of a list: one of the two.
type page struct {
	Runs       []belay.Info     `json:"runs"`
	Receipts   []*belay.Receipt `json:"receipts"`
	Next       string           `json:"next"`
	Incomplete bool             `json:"incomplete"`
}

// walk gives what the pages of a list hold, one after the other.
func walk[T any](ctx context.Context, c *Client, path string, v url.Values, members func(*page) []T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		query := maps.Clone(v) // the sequence may be ranged over again
		for said, more := false, true; more; {
			var p page
			if err := c.do(ctx, call{method: http.MethodGet, path: path, query: query}, &p); err != nil {
				yield(none, err)
				return
			}
			for _, one := range members(&p) {
				if !yield(one, nil) {
					return
				}
			}
			if p.Incomplete && !said {
				if said = true; !yield(none, ErrIncomplete) {
					return
				}
			}
			more = next(query, p.Next)
		}
	}
}

// next moves a query on to the page behind a cursor. A cursor that does not go
// down would be a loop without an end.
func next(v url.Values, cursor string) bool {
	before := v.Get("cursor")
	if cursor == "" || before != "" && cursor >= before {
		return false
	}
	v.Set("cursor", cursor)
	return true
}

// List implements [belay.Control]: all pages of it. Runs that have ended are
// those that the server remembers, which may be many.
func (c *Client) List(ctx context.Context, f belay.Filter) ([]belay.Info, error) {
	var list []belay.Info
	var err error
	switch {
	case !f.Under.IsZero():
		list, err = c.under(ctx, f.Under)
	case len(f.IDs) > 0 && len(f.IDs) <= fewIDs:
		list, err = c.each(ctx, f.IDs)
	default:
		list, err = c.all(ctx, &f)
	}
	keep := f
	keep.Under, keep.Limit = belay.RunID{}, 0
	list = slices.DeleteFunc(list, func(i belay.Info) bool { return !keep.Match(&i) })
	slices.SortStableFunc(list, func(x, y belay.Info) int { return x.Started.Compare(y.Started) })
	if f.Limit > 0 && len(list) > f.Limit {
		list = list[:f.Limit]
	}
	return list, err
}

func (c *Client) all(ctx context.Context, f *belay.Filter) (list []belay.Info, err error) {
	q := Query{Owner: f.Owner, Server: f.Server, Kinds: f.Kinds, Labels: f.Labels}
	if f.Ended || len(f.IDs) > 0 {
		q.States = []string{"all"}
	}
	for i, failed := range c.Runs(ctx, q) {
		if failed != nil {
			err = failed
			continue
		}
		list = append(list, i)
	}
	slices.Reverse(list)
	return list, err
}

// under is a run and what lies below it; none if nobody knows it.
func (c *Client) under(ctx context.Context, id belay.RunID) ([]belay.Info, error) {
	d, below, err := c.Subtree(ctx, id)
	switch {
	case errors.Is(err, belay.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return append([]belay.Info{d.Info}, below...), nil
}

func (c *Client) each(ctx context.Context, ids []belay.RunID) (list []belay.Info, err error) {
	for n, id := range ids {
		if slices.Contains(ids[:n], id) {
			continue
		}
		d, err := c.Get(ctx, id)
		switch {
		case errors.Is(err, belay.ErrNotFound):
		case err != nil:
			return list, err
		default:
			list = append(list, d.Info)
		}
	}
	return list, nil
}

// Get implements [belay.Control].
func (c *Client) Get(ctx context.Context, id belay.RunID) (belay.Detail, error) {
	d, _, err := c.Subtree(ctx, id)
	return d, err
}

// Subtree returns a run with its receipt, and the runs below it, oldest first: of
// more than 1,000 the newest.
// An unknown run, and one that the caller may not see, is [belay.ErrNotFound].
func (c *Client) Subtree(ctx context.Context, id belay.RunID) (belay.Detail, []belay.Info, error) {
	t, err := c.tree(ctx, id)
	return t.Run, t.Below, err
}

// runTree is the answer about one run.
type runTree struct {
	Run    belay.Detail `json:"run"`
	Below  []belay.Info `json:"below"`
	Stored *bool        `json:"stored"` // whether the final receipt is on disk; nil: nothing had to be
}

func (c *Client) tree(ctx context.Context, id belay.RunID) (t runTree, err error) {
	if id.IsZero() {
		return t, fmt.Errorf("%w: the id is empty", belay.ErrNotFound)
	}
	err = c.do(ctx, call{method: http.MethodGet, path: "/v1/runs/" + id.String()}, &t)
	return t, err
}
