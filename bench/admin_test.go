package main

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/belayhq/belay/admin"
)

// TestPaired proves that the rounds are compared one by one, and that the way
// without additions has a column only where it was measured.
func TestPaired(t *testing.T) {
	r := &row{values: map[string][]float64{plain: {100, 200, 400}, "belay": {104, 208, 1000}}}
	judgePaired(r, plain, -1, 1.05)
	if r.verdict != "ok" || !strings.Contains(r.note, "1.040") {
		t.Error(r.verdict, r.note)
	}
	judgePaired(r, plain, 1, 1.05)
	if r.verdict != "over" {
		t.Error("1.04 is not at least 1.05:", r.verdict)
	}
	with, without := report{rows: []*row{r}}, report{rows: []*row{{values: map[string][]float64{"relay": {1}}}}}
	if ways := with.ways(); !slices.Equal(ways, []string{"direct", plain, "belay"}) {
		t.Error(ways)
	}
	if ways := without.ways(); !slices.Equal(ways, []string{"direct", "relay", "belay"}) {
		t.Error(ways)
	}
}

// TestPages proves that the pages that are measured hold what they are to hold.
func TestPages(t *testing.T) {
	tree, err := crowd(3000)
	if err != nil {
		t.Fatal(err)
	}
	api, err := admin.New(admin.Options{Control: tree, Authorizer: anybody{}})
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	b := &bench{rounds: 1, quick: true}
	for query, want := range map[string]int{"": 100, "owner=user7": 3, "label=team%3Dt3": 100, "state=waiting": 3, "state=ended": 0} {
		if _, _, err := b.page(api, query, want); err != nil {
			t.Errorf("%q: %v", query, err)
		}
	}
	if _, _, err := b.page(api, "owner=user7", 4); err == nil {
		t.Error("a page with too few runs was taken")
	}
}

// TestReceiptsCount proves that receipts are counted over all pages, and that one
// that is not final or stands twice is an error.
func TestReceiptsCount(t *testing.T) {
	good := `{"run":"a","final":true,"verdict":"acknowledged"}`
	for _, c := range []struct {
		first, second string
		want          int
		fails         bool
	}{
		{good, `{"run":"b","final":true,"verdict":"confirmed"}`, 2, false},
		{good, good, 0, true},
		{good, `{"run":"b","final":false,"verdict":"acknowledged"}`, 0, true},
		{good, `{"run":"b","final":true,"verdict":"signalled"}`, 0, true},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body := `{"receipts":[` + c.first + `],"next":"more"}`
			if r.FormValue("cursor") == "more" {
				body = `{"receipts":[` + c.second + `]}`
			}
			_, _ = w.Write([]byte(body))
		}))
		conn, err := openREST(s.URL, "t")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := conn.receipts(); got != c.want || (err != nil) != c.fails {
			t.Error(c.second, got, err)
		}
		conn.close()
		s.Close()
	}
}

// TestFlood proves that the flood sends only what is refused, and that it counts.
func TestFlood(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) }))
	defer s.Close()
	b := &bench{dir: t.TempDir()}
	p, err := startPeer(role(roleFlood, s.URL, "t"), b.env())
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	if text, err := p.line(); err != nil || string(text) != "flooding\n" {
		t.Fatalf("%q %v; stderr: %s", text, err, p.err)
	}
	_ = p.in.Close()
	if text, err := p.line(); err != nil || strings.TrimSpace(string(text)) == "" {
		t.Fatalf("%q %v; stderr: %s", text, err, p.err)
	}
}
