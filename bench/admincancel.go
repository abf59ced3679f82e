package main

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// restCancel is one way to stop a run over REST: the path and body of a cancel
// that waits for the verdict, and what its answer must say and must not.
type restCancel struct {
	name   string
	path   func(run string) string
	body   func(run string) string
	says   []string
	denies string
}

// restWait is how long a cancel waits for its receipt: until it is there.
const restWait = "10"

var restDoors = []restCancel{
	{
		name: "POST /v1/runs/{id}/cancel",
		path: func(run string) string { return "/v1/runs/" + run + "/cancel" },
		body: func(string) string { return `{"reason":"bench","wait":` + restWait + `}` },
		says: []string{`"final":true`, `"affected":true`, `"stored":true`},
	},
	{
		name: "POST /orchestrate/cancel",
		path: func(string) string { return "/orchestrate/cancel" },
		body: func(run string) string {
			return `{"requestId":"` + run + `","reason":"bench","wait":` + restWait + `}`
		},
		says:   []string{`"status":"cancelled"`, `"affected":true`, `"verdict":"acknowledged"`},
		denies: `"stored":false`, // it is said only then
	},
}

// order sends one cancel, whose answer must hold the final receipt.
func (d *restCancel) order(c *rest, run string) (time.Duration, error) {
	body := d.body(run)
	start := time.Now()
	status, err := c.do("POST", d.path(run), body)
	took := time.Since(start)
	if err != nil {
		return took, err
	}
	ok := status == 200 && (d.denies == "" || !bytes.Contains(c.body, []byte(d.denies)))
	for _, word := range d.says {
		ok = ok && bytes.Contains(c.body, []byte(word))
	}
	if !ok {
		return took, fmt.Errorf("%s: status %d: %.600s", d.name, status, c.body)
	}
	return took, nil
}

// restCancels measures how many cancels a second, each with a receipt in the
// ledger, 16 connections get out of 2,000 calls in flight.
func (b *bench) restCancels() error {
	calls := 2000
	if b.quick {
		calls = 500
	}
	rate := map[string][]float64{}
	p50, p99 := map[string][]float64{}, map[string][]float64{}
	for range b.rounds {
		for _, door := range restDoors {
			times, took, err := b.cancelAll(&door, calls)
			if err != nil {
				return err
			}
			rate[door.name] = append(rate[door.name], float64(calls)/took.Seconds())
			p50[door.name] = append(p50[door.name], quantile(times, 0.5))
			p99[door.name] = append(p99[door.name], quantile(times, 0.99))
		}
	}
	for _, door := range restDoors {
		what := fmt.Sprintf("REST cancel of %d calls in flight, %s, %d connections", calls, door.name, restConnections)
		r := b.report.compare(what, "cancels/s", map[string][]float64{"belay": rate[door.name]})
		r.bar = ">= 1000"
		r.note = "each answer holds its final receipt, which the ledger has; as many receipts listed afterwards"
		r.judge(r.value("belay") >= 1000)
		b.report.compare(what+", p50", "ms", map[string][]float64{"belay": p50[door.name]})
		b.report.compare(what+", p99", "ms", map[string][]float64{"belay": p99[door.name]})
	}
	return nil
}

const restConnections = 16

// cancelAll stops so many calls of a fresh house, one by one by their run ids,
// and returns the milliseconds of each and the time of all. Without as many
// receipts afterwards there is no figure.
func (b *bench) cancelAll(door *restCancel, calls int) ([]float64, time.Duration, error) {
	h, err := b.inHouse(calls, unlimited())
	if err != nil {
		return nil, 0, err
	}
	defer h.close()
	conns := make([]*rest, restConnections)
	for n := range conns {
		if conns[n], err = openREST(h.service.url, h.boss); err != nil {
			return nil, 0, err
		}
		defer conns[n].close()
	}
	times := make([]float64, len(h.runs))
	errs := make([]error, len(conns))
	var next atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	for n, c := range conns {
		wg.Go(func() {
			for errs[n] == nil {
				i := int(next.Add(1)) - 1
				if i >= len(h.runs) {
					return
				}
				var took time.Duration
				took, errs[n] = door.order(c, h.runs[i])
				times[i] = milli(took)
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	if err := errors.Join(errs...); err != nil {
		return nil, 0, err
	}
	got, err := h.admin.receipts()
	if err == nil && got != len(h.runs) {
		err = fmt.Errorf("%d cancels left %d receipts", len(h.runs), got)
	}
	return times, took, err
}
