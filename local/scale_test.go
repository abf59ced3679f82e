package local

import (
	"context"
	"testing"
	"time"

	"github.com/belayhq/belay"
)

// Many runs in one process are listed and stopped through the socket without
// anything being cut off.
func TestManyRuns(t *testing.T) {
	const n = 5_000
	dir := privateDir(t)
	_, tree := serve(t, Options{Dir: dir})
	for range n {
		_, err := tree.Register(belay.Spec{Kind: belay.KindCall, Name: "one of many", Stopper: quick{}})
		must(t, err)
	}
	m := NewMesh(MeshOptions{Dirs: []string{dir}})
	start := time.Now()
	list, err := m.List(t.Context(), belay.Filter{})
	if err != nil || len(list) != n {
		t.Fatalf("List: %d runs, %v", len(list), err)
	}
	listed := time.Since(start)
	start = time.Now()
	req := byUser()
	results, err := m.Cancel(t.Context(), req)
	if err != nil || len(results) != n {
		t.Fatalf("Cancel: %d results, %v", len(results), err)
	}
	for i := range results {
		if !results[i].Receipt.OK() {
			t.Fatalf("not confirmed: %+v", results[i])
		}
	}
	t.Logf("%d runs: listed in %v, stopped in %v", n, listed, time.Since(start))
}

type quick struct{}

func (quick) Tell(context.Context, *belay.Cancellation) (*belay.Evidence, error) {
	return &belay.Evidence{Kind: belay.SeenHandlerReturned, Scope: belay.ScopeHandler}, nil
}
