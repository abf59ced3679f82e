package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/admin"
)

// anybody may do everything.
type anybody struct{}

// Principal implements [admin.Authorizer].
func (a anybody) Principal(*http.Request) (admin.Principal, error) { return a, nil }

// Name implements [admin.Principal].
func (anybody) Name() string { return "anybody" }

// May implements [admin.Principal].
func (anybody) May(string) bool { return true }

// crowd is a tree with n calls in flight of 1,000 owners. A thousandth of them
// wait, each has labels of its own, and a tenth each is of one team.
func crowd(n int) (*belay.Tree, error) {
	tree := belay.NewTree(belay.Options{})
	for i := range n {
		_, err := tree.Register(belay.Spec{
			Kind: belay.KindCall, Name: "echo", Server: "peer", Owner: "user" + strconv.Itoa(i%1000), Address: strconv.Itoa(i), Queued: i%1000 == 17,
			Labels: map[string]string{"trace_id": fmt.Sprintf("%032x", i), "request_id": "r" + strconv.Itoa(i), "team": "t" + strconv.Itoa(i%10)},
		})
		if err != nil {
			return nil, err
		}
	}
	return tree, nil
}

// listing measures pages of GET /v1/runs out of 100,000 runs in flight, by the
// handler alone: what a connection adds is the same for every request.
func (b *bench) listing() error {
	const runs = 100_000
	tree, err := crowd(runs)
	if err != nil {
		return err
	}
	api, err := admin.New(admin.Options{Control: tree, Authorizer: anybody{}})
	if err != nil {
		return err
	}
	defer api.Close()
	middle, err := tree.List(context.Background(), belay.Filter{Owner: "user500"})
	if err != nil {
		return err
	}
	pages := []struct {
		name, query string
		want        int
	}{
		{"the first", "", 100},
		{"in the middle, by its cursor", "cursor=" + middle[len(middle)/2].ID.String(), 100},
		{"of one owner", "owner=user7", 100},
		{"of nobody", "owner=nobody", 0},
		{"with a label that a tenth has", "label=team%3Dt3", 100},
		{"with a label that one has", "label=trace_id%3D" + fmt.Sprintf("%032x", 1), 1},
		{"with a label that none has", "label=trace_id%3Dx", 0},
		{"in a state that a thousandth is in", "state=waiting", 100},
		{"in a state that none is in", "state=stopping", 0},
		{"that has ended, of which there is none", "state=ended", 0},
		{"older than an hour, which none is", "older_than=3600", 0},
	}
	for _, p := range pages {
		values, worst, err := b.page(api, p.query, p.want)
		if err != nil {
			return fmt.Errorf("the page %s: %w", p.name, err)
		}
		r := b.report.compare("a page of 100 out of 100,000 runs in flight, "+p.name, "ms", map[string][]float64{"belay": values})
		r.bar = "< 20, the worst, too"
		r.note = fmt.Sprintf("worst of all %s", figure(worst))
		r.judge(r.value("belay") < 20 && worst < 20)
	}
	return nil
}

// page returns the median milliseconds of each round, and the worst of all.
func (b *bench) page(h http.Handler, query string, want int) (medians []float64, worst float64, err error) {
	requests := 100
	if b.quick {
		requests = 20
	}
	for range b.rounds {
		var times []float64
		for range requests {
			r := httptest.NewRequest(http.MethodGet, "/v1/runs?limit=100&"+query, nil)
			w := httptest.NewRecorder()
			start := time.Now()
			h.ServeHTTP(w, r)
			times = append(times, milli(time.Since(start)))
			var page struct {
				Runs []json.RawMessage `json:"runs"`
			}
			if err := json.Unmarshal(w.Body.Bytes(), &page); err != nil || w.Code != 200 || len(page.Runs) != want {
				return nil, 0, fmt.Errorf("status %d, %d runs, want %d: %.200s (%v)", w.Code, len(page.Runs), want, w.Body, err)
			}
		}
		medians = append(medians, median(times))
		worst = max(worst, slices.Max(times))
	}
	return medians, worst, nil
}
