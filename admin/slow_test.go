package admin

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belayhq/belay"
)

// A body that trickles in is given up, and holds nobody else up.
func TestSlowBody(t *testing.T) {
	r := newRig(t, Options{})
	r.api.patience = 100 * time.Millisecond
	run := r.call("ann", `"x"`)
	for _, path := range []string{"/orchestrate/cancel", "/notifications", "/v1/cancel"} {
		c, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer op\r\nContent-Type: application/json\r\nContent-Length: 40\r\n\r\n{\"requestId\":", path)
		_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || resp.StatusCode != http.StatusRequestTimeout {
			t.Errorf("%s: %v, %v", path, resp, err)
		} else {
			resp.Body.Close()
		}
		c.Close()
	}
	r.alive(run)
}

// deadlines writes down the read deadlines that a handler sets.
type deadlines struct {
	http.ResponseWriter

	mu  sync.Mutex
	set []time.Time
}

func (d *deadlines) SetReadDeadline(t time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.set = append(d.set, t)
	return nil
}

// No deadline of the body is left behind: it would end the wait of a cancel.
func TestNoDeadlineIsLeft(t *testing.T) {
	r := newRig(t, Options{})
	run := r.call("ann", `"x"`, with(&stopper{}))
	for path, body := range map[string]string{
		"/orchestrate/cancel": `{"requestId":"x"}`, "/v1/runs/" + run.ID().String() + "/cancel": `{}`, "/v1/cancel": `{"all":true}`,
	} {
		w := &deadlines{ResponseWriter: httptest.NewRecorder()}
		req := httptest.NewRequestWithContext(t.Context(), "POST", path, strings.NewReader(body))
		req.Header.Set("Authorization", "Bearer op")
		req.Header.Set("Content-Type", "application/json")
		r.api.ServeHTTP(w, req)
		if len(w.set) != 2 || w.set[0].IsZero() || !w.set[1].IsZero() {
			t.Errorf("%s: deadlines %v, want one and its end", path, w.set)
		}
	}
}

// paging is a Control with pages, and no List.
type paging struct {
	*belay.Tree
}

func (p *paging) List(context.Context, belay.Filter) ([]belay.Info, error) {
	return nil, belay.ErrUnsupported
}

func (p *paging) ListBefore(ctx context.Context, f belay.Filter, before belay.RunID, limit int) (page []belay.Info, err error) {
	all, err := p.Tree.List(ctx, f)
	slices.SortFunc(all, func(x, y belay.Info) int { return byID(y.ID, x.ID) })
	for _, i := range all {
		if (before.IsZero() || byID(i.ID, before) < 0) && len(page) < limit {
			page = append(page, i)
		}
	}
	return page, err
}

// Runs that a page leaves out do not make it the last.
func TestPager(t *testing.T) {
	tree := belay.NewTree(belay.Options{})
	control := &paging{Tree: tree}
	var past book
	for range 7 {
		past = append(past, old("ann", "1", belay.Failed, time.Minute), old("ann", "1", belay.Cancelled, time.Minute))
	}
	slices.SortFunc(past, func(x, y belay.Detail) int { return byID(y.ID, x.ID) })
	r := newRig(t, Options{Control: control, History: past})
	r.tree = tree
	for range 20 {
		r.call("ann", "1").Start()
		r.call("ann", "1", func(s *belay.Spec) { s.Queued = true })
	}
	count := func(path string) (n int) {
		for next := ""; ; {
			got := into[struct {
				Runs, Receipts []belay.Receipt
				Next           string
			}](r, r.do("GET", path+"&limit=3&cursor="+next, "op", ""), 200)
			n += len(got.Runs) + len(got.Receipts)
			if next = got.Next; next == "" || n > 100 {
				return n
			}
		}
	}
	if n := count("/v1/runs?state=waiting"); n != 20 {
		t.Errorf("%d waiting runs, want 20", n)
	}
	if n := count("/v1/receipts?owner=ann"); n != 7 {
		t.Errorf("%d receipts, want 7", n)
	}
	if n := count("/v1/runs?state=all"); n != 54 {
		t.Errorf("%d runs, want 54", n)
	}
}
