package local

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/belayhq/belay"
)

// Questions of processes without another door are listed and answered over their
// sockets, once; whoever lies inside a run's process tree, or below the program that
// asks, answers nothing.
func TestAT66_QuestionsOverTheSocket(t *testing.T) {
	for name, tt := range map[string]struct {
		inside []string
		barred bool
		hidden bool
		want   error
	}{
		"a person":           {},
		"an agent":           {inside: []string{"run_x"}, want: belay.ErrForbidden},
		"the client's child": {barred: true, want: belay.ErrForbidden},
		"with another door":  {hidden: true, want: belay.ErrNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "belay")
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(dir)
			tree := belay.NewTree(belay.Options{})
			o := Options{Dir: dir, Control: tree, InTree: func(int) []string { return tt.inside }, Barred: func(int) bool { return tt.barred }, Approvals: tree}
			if tt.hidden {
				o.Approvals = nil
			}
			s, err := Listen(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			run, err := tree.Register(belay.Spec{Kind: belay.KindCall, Name: "wipe"})
			if err != nil {
				t.Fatal(err)
			}
			run.Start()
			asked := make(chan belay.ApprovalID, 1)
			got := make(chan belay.Decision, 1)
			looked := 0
			look := func(context.Context) (string, error) { looked++; return "", nil }
			go func() {
				d, _ := run.Ask(context.Background(), belay.Question{Text: "Delete it?", Primary: "Delete", Preview: "Look", Look: look, Show: func(a belay.Approval) { asked <- a.ID }})
				got <- d
			}()
			id := <-asked
			m := NewMesh(MeshOptions{Dirs: []string{dir}})
			list, err := m.Approvals(t.Context(), belay.Filter{})
			if err != nil || len(list) == 1 == tt.hidden || !tt.hidden && (list[0].ID != id || list[0].Run.Pid != os.Getpid()) {
				t.Errorf("%+v, %v", list, err)
			}
			if seen, err := m.Preview(t.Context(), id); !errors.Is(err, tt.want) || tt.want == nil && err != nil || seen != "" || (looked == 1) != (tt.want == nil) {
				t.Errorf("the preview: %q, %v; it ran %d times", seen, err, looked)
			}
			a, err := m.Decide(t.Context(), id, belay.Decision{Choice: belay.ChoiceApproved, By: "ann"})
			if !errors.Is(err, tt.want) || tt.want == nil && err != nil {
				t.Fatalf("%+v, %v", a, err)
			}
			if tt.want != nil {
				if open, _ := tree.Approvals(t.Context(), belay.Filter{}); len(open) != 1 {
					t.Error("it was answered")
				}
				run.Cancel(belay.Cancellation{Cause: belay.CauseUser})
				<-got
				return
			}
			if d := <-got; d.Choice != belay.ChoiceApproved || d.By != "ann" || d.Via != "local" || a.Decision == nil {
				t.Errorf("%+v, %+v", d, a)
			}
			if _, err := m.Decide(t.Context(), id, belay.Decision{Choice: belay.ChoiceDeclined}); !errors.Is(err, belay.ErrDecided) && err == nil {
				t.Errorf("a second answer: %v", err)
			}
			if _, err := m.Preview(t.Context(), id); !errors.Is(err, belay.ErrDecided) {
				t.Errorf("a preview of what was decided: %v", err)
			}
			run.Finish(belay.Completed)
			ctx, end := context.WithTimeout(context.Background(), 10*time.Second)
			defer end()
			if err := tree.Close(ctx); err != nil {
				t.Error(err)
			}
		})
	}
}
