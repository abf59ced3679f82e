package local

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/belayhq/belay"
)

// A thousand questions, of which many are as long on the wire as one can be, are all
// listed, and answered.
func TestAT66_AThousandQuestions(t *testing.T) {
	const n = 1000
	dir, err := os.MkdirTemp("", "belay")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	tree := belay.NewTree(belay.Options{})
	s, err := Listen(t.Context(), Options{Dir: dir, Control: tree, InTree: func(int) []string { return nil }, Approvals: tree})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	labels := make(map[string]string)
	for i := range 32 {
		labels[strings.Repeat("<", 200)+string(rune('a'+i))] = strings.Repeat("<", 256)
	}
	var asked, over sync.WaitGroup
	for i := range n {
		spec := belay.Spec{Kind: belay.KindCall, Name: "short"}
		text := "Delete it?"
		if i < 64 {
			spec.Name, spec.Labels, text = strings.Repeat("<", 256), labels, strings.Repeat("<", 8<<10)
		}
		run, err := tree.Register(spec)
		if err != nil {
			t.Fatal(err)
		}
		asked.Add(1)
		over.Go(func() {
			_, _ = run.Ask(context.Background(), belay.Question{Text: text, Primary: "Yes", Show: func(belay.Approval) { asked.Done() }})
			run.Finish(belay.Completed)
		})
	}
	asked.Wait()
	m := NewMesh(MeshOptions{Dirs: []string{dir}})
	list, err := m.Approvals(t.Context(), belay.Filter{})
	if err != nil || len(list) != n {
		t.Errorf("listed are %d: %v", len(list), err)
	}
	if runs, err := m.List(t.Context(), belay.Filter{}); err != nil || len(runs) != n {
		t.Errorf("listed are %d runs: %v", len(runs), err)
	}
	if len(list) > 0 {
		if _, err := m.Decide(t.Context(), list[0].ID, belay.Decision{Choice: belay.ChoiceApproved}); err != nil {
			t.Error(err)
		}
	}
	open, _ := tree.Approvals(t.Context(), belay.Filter{})
	for i := range open {
		_, _ = tree.Decide(t.Context(), open[i].ID, belay.Decision{Choice: belay.ChoiceDeclined})
	}
	over.Wait()
}
