package cli

import (
	"strings"
	"testing"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/local"
)

// TestPsTreeShowsTheWayUp: what is still being stopped stands below the turn that
// is over, not at the top as nobody's (acceptance 18 of ACP).
func TestPsTreeShowsTheWayUp(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	tree := belay.NewTree(belay.Options{})
	s, err := local.Listen(t.Context(), local.Options{Dir: m.dir, Control: tree})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var above *belay.Run
	var runs []*belay.Run
	for _, spec := range []belay.Spec{{Kind: belay.KindSession, Name: "editor"}, {Kind: belay.KindTurn, Name: "prompt"}, {Kind: belay.KindCall, Name: "outer"}, {Kind: belay.KindCall, Name: "inner"}} {
		spec.Parent = above
		if above, err = tree.Register(spec); err != nil {
			t.Fatal(err)
		}
		runs = append(runs, above)
	}
	other, err := tree.Register(belay.Spec{Kind: belay.KindTurn, Name: "over", Parent: runs[0]})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []*belay.Run{runs[1], runs[2], other} {
		r.Finish(belay.Completed)
	}
	out, errs, code := m.belay("ps", "--tree")
	for i, want := range []string{"editor (session)", "└─ prompt (turn)", "   └─ outer (call)", "      └─ inner (call)"} {
		if lines := strings.Split(out, "\n"); code != 0 || len(lines) != 6 || !strings.HasPrefix(lines[i+1], want) {
			t.Fatalf("exit code %d, %s, line %d of\n%s", code, errs, i+1, out)
		}
	}
	runs[3].Finish(belay.Completed)
	runs[0].Finish(belay.Completed)
}
