package metrics

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"

	"github.com/belayhq/belay"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, o Options) *Metrics {
	t.Helper()
	m, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

func newTree(t *testing.T) *belay.Tree {
	t.Helper()
	tree := belay.NewTree(belay.Options{})
	t.Cleanup(func() { shut(tree) })
	return tree
}

// shut closes a tree without waiting for what does not end.
func shut(tree *belay.Tree) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = tree.Close(ctx)
}

func register(t *testing.T, tree *belay.Tree, s belay.Spec) *belay.Run {
	t.Helper()
	if s.Kind == "" {
		s.Kind = belay.KindCall
	}
	if s.Name == "" {
		s.Name = "tool"
	}
	r, err := tree.Register(s)
	if err != nil {
		t.Fatal(err)
	}
	r.Context() // so that there is somebody to be told
	return r
}

// values are all samples by name and labels: `name{a="b"}`. Of a histogram the
// count is taken.
func values(t testing.TB, m *Metrics) map[string]float64 {
	t.Helper()
	families, err := m.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		for _, s := range f.GetMetric() {
			all[f.GetName()+labels(s)] = value(s)
		}
	}
	return all
}

func value(s *dto.Metric) float64 {
	return s.GetCounter().GetValue() + s.GetGauge().GetValue() + float64(s.GetHistogram().GetSampleCount())
}

func labels(s *dto.Metric) string {
	var parts []string
	for _, l := range s.GetLabel() {
		parts = append(parts, l.GetName()+"="+l.GetValue())
	}
	if len(parts) == 0 {
		return ""
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func want(t *testing.T, m *Metrics, all map[string]float64) {
	t.Helper()
	until(t, "the counts are right", func() string {
		got := values(t, m)
		for name, v := range all {
			if got[name] != v {
				return "want " + name + " to be otherwise"
			}
		}
		return ""
	}, func() {
		got := values(t, m)
		for name, v := range all {
			t.Logf("%s = %v, want %v", name, got[name], v)
		}
		for name, v := range got {
			if strings.HasPrefix(name, "belay_") {
				t.Log("got", name, v)
			}
		}
	})
}

// failer is a *testing.T or a *rapid.T.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

func until(t failer, what string, missing func() string, dump func()) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		why := missing()
		if why == "" {
			return
		}
		if time.Now().After(deadline) {
			dump()
			t.Fatalf("not in time: %s: %s", what, why)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func page(t *testing.T, m *Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	body, _ := io.ReadAll(w.Body)
	if w.Code != 200 {
		t.Fatalf("status %d: %s", w.Code, body)
	}
	return string(body)
}
