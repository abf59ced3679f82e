package belay

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// answered is what an Ask returned.
type answered struct {
	Decision
	err error
}

// asks lets the run ask in a goroutine of its own and returns when it waits.
func asks(t *testing.T, r *Run, q Question) (Approval, <-chan answered) {
	t.Helper()
	got := make(chan answered, 1)
	go func() {
		d, err := r.Ask(t.Context(), q)
		got <- answered{d, err}
	}()
	synctest.Wait()
	open := questionsOf(t, r.tree, Filter{IDs: []RunID{r.ID()}})
	if len(open) == 0 {
		t.Fatalf("nothing is asked: %+v", <-got)
	}
	return open[len(open)-1], got
}

func questionsOf(t *testing.T, tree *Tree, f Filter) []Approval {
	t.Helper()
	list, err := tree.Approvals(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func wantWork(t *testing.T, r *Run, work Work) {
	t.Helper()
	if got := r.Info().Work; got != work {
		t.Errorf("the work is %s, want %s", got, work)
	}
}

var mayI = Question{Text: "Delete the folder?", Primary: "Delete", Secondary: "Keep"}

// A run that asks waits, and goes on with the answer, whatever it is (AT-61, AT-62).
func TestAskWaitsForTheAnswer(t *testing.T) {
	for _, choice := range []Choice{ChoiceApproved, ChoiceDeclined, ChoiceDismissed} {
		bubble(t, Options{}, func(t *testing.T, tree *Tree) {
			r := register(t, tree, Spec{Name: "rm", Owner: "me", Labels: map[string]string{"k": "v"}})
			begin := time.Now()
			a, got := asks(t, r, mayI)
			wantWork(t, r, Waiting)
			if a.Run.ID != r.ID() || a.Question.Text != mayI.Text || a.Question.Title != "rm" || a.Decision != nil ||
				!a.Asked.Equal(begin) || !a.Expires.Equal(begin.Add(DefaultAskTimeout)) || a.Run.Work != Waiting {
				t.Errorf("the question is %+v", a)
			}
			time.Sleep(time.Minute)
			after, err := tree.Decide(t.Context(), a.ID, Decision{Choice: choice, By: "boss", Via: "admin", Reason: "I\nsay so"})
			if err != nil {
				t.Fatal(err)
			}
			want := Decision{Choice: choice, By: "boss", Via: "admin", Reason: "I say so", At: begin.Add(time.Minute)}
			if d := <-got; d.err != nil || d.Decision != want || *after.Decision != want || after.Run.Work != Running {
				t.Errorf("the answer is %+v, and the approval %+v, want %+v", d, after, want)
			}
			wantWork(t, r, Running)
			if left := questionsOf(t, tree, Filter{}); len(left) != 0 {
				t.Errorf("%d questions are open", len(left))
			}
			if r.Finish(Declined); r.Info().Outcome != Declined {
				t.Errorf("the outcome is %s", r.Info().Outcome)
			}
		})
	}
}

// An asker may show the question itself, and bring the answer (AT-66).
func TestAskerShowsTheQuestion(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		r := register(t, tree, Spec{})
		q := mayI
		var shown Approval
		q.Show = func(a Approval) {
			shown = a
			if known, err := tree.Approval(t.Context(), a.ID); err != nil || known.Decision != nil || known.Run.ID != r.ID() {
				t.Errorf("known as %+v, %v", known, err)
			}
			if _, err := tree.Decide(t.Context(), a.ID, Decision{Choice: ChoiceApproved, Via: "elicitation"}); err != nil {
				t.Error(err)
			}
		}
		if d, err := r.Ask(t.Context(), q); err != nil || d.Choice != ChoiceApproved || d.Via != "elicitation" {
			t.Errorf("%+v, %v", d, err)
		}
		if known, err := tree.Approval(t.Context(), shown.ID); err != nil || known.Decision.Choice != ChoiceApproved {
			t.Errorf("decided, and known as %+v, %v", known, err)
		}
		time.Sleep(time.Hour)
		if _, err := tree.Approval(t.Context(), shown.ID); !errors.Is(err, ErrNotFound) {
			t.Errorf("an hour later: %v", err)
		}
	})
}

// Of many answers at once one counts, and the others are told which (exactly once).
func TestDecideOnce(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		r := register(t, tree, Spec{})
		a, got := asks(t, r, mayI)
		var first atomic.Pointer[Decision]
		var done sync.WaitGroup
		for i := range 50 {
			done.Go(func() {
				d := Decision{Choice: []Choice{ChoiceApproved, ChoiceDeclined}[i%2], By: string(rune('A' + i))}
				after, err := tree.Decide(t.Context(), a.ID, d)
				switch {
				case err == nil && first.Swap(after.Decision) != nil:
					t.Error("two answers counted")
				case err != nil && (!errors.Is(err, ErrDecided) || after.Decision == nil):
					t.Errorf("the other answer: %+v, %v", after, err)
				}
			})
		}
		done.Wait()
		if d := <-got; d.err != nil || d.Decision != *first.Load() {
			t.Errorf("the run was told %+v, the one who decided %+v", d, first.Load())
		}
		again, err := tree.Decide(t.Context(), a.ID, Decision{Choice: ChoiceDismissed})
		if !errors.Is(err, ErrDecided) || *again.Decision != *first.Load() || HTTPStatus(err) != 409 {
			t.Errorf("decided again: %+v, %v", again.Decision, err)
		}
		again.Decision.By = "changed"
		time.Sleep(11 * time.Minute)
		if _, err := tree.Decide(t.Context(), a.ID, Decision{Choice: ChoiceApproved}); !errors.Is(err, ErrNotFound) {
			t.Errorf("a decision of long ago: %v", err)
		}
	})
}

// A question that nobody answers expires; the run goes on (AT-61).
func TestAskExpires(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		r := register(t, tree, Spec{})
		begin := time.Now()
		d, err := r.Ask(t.Context(), mayI)
		if err != nil || d.Choice != ChoiceExpired || time.Since(begin) != DefaultAskTimeout || !errors.Is(d.Err(), ErrDeclined) {
			t.Errorf("%+v after %v, %v", d, time.Since(begin), err)
		}
		wantWork(t, r, Running)
		short := mayI
		short.Timeout = time.Second
		a, got := asks(t, r, short)
		time.Sleep(time.Second) // an answer in the very moment is too late, or the first; never both
		after, err := tree.Decide(t.Context(), a.ID, Decision{Choice: ChoiceApproved})
		if d := <-got; d.Choice != ChoiceExpired || !errors.Is(err, ErrDecided) || after.Decision.Choice != ChoiceExpired {
			t.Errorf("answered when it had expired: %+v, and %+v, %v", d, after.Decision, err)
		}
		forever := mayI
		forever.Timeout = -1
		a, got = asks(t, r, forever)
		if time.Sleep(24 * time.Hour); !a.Expires.IsZero() || len(got) != 0 {
			t.Errorf("a question without a time expired: %+v", a)
		}
		_, _ = tree.Decide(t.Context(), a.ID, Decision{Choice: ChoiceApproved})
		if d := <-got; d.Err() != nil {
			t.Error(d.Err())
		}
	})
}

// A Stop withdraws the question and is no answer: Ask fails with the
// cancellation, and who answers then finds nothing (AT-65).
func TestStopWithdrawsTheQuestion(t *testing.T) {
	for _, how := range []string{"stop", "stop above", "deadline above", "close"} {
		bubble(t, Options{}, func(t *testing.T, tree *Tree) {
			above := register(t, tree, Spec{Name: "turn", Deadline: time.Now().Add(time.Minute)})
			tool := &script{on: map[Means]method{StepTold: saw(returned)}}
			r := register(t, tree, Spec{Parent: above, Stopper: teller{tool}})
			a, got := asks(t, r, mayI)
			switch how {
			case "stop":
				press(t, tree, r)
			case "stop above":
				press(t, tree, above)
			case "deadline above":
				time.Sleep(time.Minute)
			case "close":
				over, end := context.WithCancel(t.Context())
				end()
				_ = tree.Close(over)
			}
			c := new(Cancellation)
			if d := <-got; d.Choice != ChoiceWithdrawn || !errors.As(d.err, &c) || c != r.Cancellation() {
				t.Errorf("%s: %+v", how, d)
			}
			if after, err := tree.Decide(t.Context(), a.ID, Decision{Choice: ChoiceApproved}); !errors.Is(err, ErrNotFound) || after.Decision.Choice != ChoiceWithdrawn {
				t.Errorf("%s, and then an answer: %+v, %v", how, after.Decision, err)
			}
			synctest.Wait() // for the tool to be told
			if i := r.Info(); i.Outcome != Cancelled || i.Work != Stopped {
				t.Errorf("%s: outcome %s, work %s", how, i.Outcome, i.Work)
			}
			if len(tool.steps()) == 0 {
				t.Errorf("%s: the tool, which was started, was not told", how)
			}
			if _, err := r.Ask(t.Context(), mayI); !errors.Is(err, ErrCancelled) {
				t.Errorf("%s, and then a question: %v", how, err)
			}
		})
	}
}

// A question before the work was started leaves it so, and a Stop meanwhile
// proves that nothing was.
func TestAskBeforeTheStart(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		r := register(t, tree, Spec{Queued: true})
		a, got := asks(t, r, mayI)
		if _, err := tree.Decide(t.Context(), a.ID, Decision{Choice: ChoiceApproved}); err != nil {
			t.Fatal(err)
		}
		<-got
		wantWork(t, r, Waiting)
		if !r.Start() {
			t.Error("an approved run may not start")
		}
		wantWork(t, r, Running)
		r.Finish(Completed)

		r = register(t, tree, Spec{Queued: true})
		_, got = asks(t, r, mayI)
		press(t, tree, r)
		if d := <-got; !errors.Is(d.err, ErrCancelled) || r.Start() {
			t.Errorf("stopped while it asked: %+v", d)
		}
		if receipt := wait(t, r); receipt.Verdict != Confirmed || !slices.ContainsFunc(receipt.Steps, func(s Step) bool {
			return s.Evidence != nil && s.Evidence.Kind == SeenNotStarted
		}) {
			t.Errorf("the receipt is %+v", receipt)
		}
	})
}

// Who asks may give up, or end the run elsewhere: nobody waits any more.
func TestAskerGivesUp(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		r := register(t, tree, Spec{})
		bored := errors.New("bored")
		ctx, end := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { end(bored) })
		if d, err := r.Ask(ctx, mayI); !errors.Is(err, bored) || d.Choice != ChoiceWithdrawn {
			t.Errorf("%+v, %v", d, err)
		}
		wantWork(t, r, Running)
		if _, err := r.Ask(ctx, mayI); !errors.Is(err, bored) || len(questionsOf(t, tree, Filter{})) != 0 {
			t.Errorf("asked with an ended context: %v", err)
		}
		_, got := asks(t, r, mayI)
		r.Finish(Completed)
		if d := <-got; !errors.Is(d.err, ErrEnded) || d.Choice != ChoiceWithdrawn {
			t.Errorf("finished while it asked: %+v", d)
		}
		wantWork(t, r, Stopped)
		if _, err := r.Ask(t.Context(), mayI); !errors.Is(err, ErrEnded) {
			t.Errorf("asked when it was over: %v", err)
		}
	})
}

// What may be asked and answered is bounded, cleaned and checked.
func TestQuestionsAreBounded(t *testing.T) {
	bubble(t, Options{MaxQuestions: maxAsking + 1}, func(t *testing.T, tree *Tree) {
		r, other := register(t, tree, Spec{}), register(t, tree, Spec{})
		for _, q := range []Question{{}, {Title: "x", Text: " \x1b\n "}} {
			if _, err := r.Ask(t.Context(), q); !errors.Is(err, ErrBadRequest) {
				t.Errorf("%+v: %v", q, err)
			}
		}
		long := strings.Repeat("ä", maxQuestion)
		a, _ := asks(t, r, Question{Title: "a\x1b[31m\nb" + long, Text: "one\r\n\u202etwo\x00\n" + long, Secondary: long})
		q := a.Question
		if !strings.HasPrefix(q.Title, "a[31m b") || !strings.HasPrefix(q.Text, "one\ntwo\nä") ||
			len(q.Title) > maxName || len(q.Text) > maxQuestion || len(q.Secondary) > maxAnswer {
			t.Errorf("the question is %.40q, %.40q of %d, %d, %d bytes", q.Title, q.Text, len(q.Title), len(q.Text), len(q.Secondary))
		}
		for _, choice := range []Choice{ChoiceApproved, ChoiceExpired, ChoiceWithdrawn, "", "yes"} { // no primary answer is offered
			if after, err := tree.Decide(t.Context(), a.ID, Decision{Choice: choice}); !errors.Is(err, ErrBadRequest) || after.Decision != nil {
				t.Errorf("choice %q: %v", choice, err)
			}
		}
		if _, err := tree.Decide(t.Context(), ApprovalID(NewRunID()), Decision{Choice: ChoiceApproved}); !errors.Is(err, ErrNotFound) {
			t.Errorf("an unknown question: %v", err)
		}
		for range maxAsking - 1 {
			asks(t, r, mayI)
		}
		if _, err := r.Ask(t.Context(), mayI); !errors.Is(err, ErrTooMany) {
			t.Errorf("one run asks too much: %v", err)
		}
		asks(t, other, mayI)
		if _, err := other.Ask(t.Context(), mayI); !errors.Is(err, ErrTooMany) {
			t.Errorf("all ask too much: %v", err)
		}
		for i, open := range questionsOf(t, tree, Filter{IDs: []RunID{r.ID()}}) {
			wantWork(t, r, Waiting) // until the last is answered
			if _, err := tree.Decide(t.Context(), open.ID, Decision{Choice: ChoiceDeclined, By: long}); err != nil {
				t.Errorf("question %d: %v", i, err)
			}
		}
		wantWork(t, r, Running)
		for range maxDecided + 10 {
			open, got := asks(t, r, mayI)
			_, _ = tree.Decide(t.Context(), open.ID, Decision{Choice: ChoiceApproved})
			<-got
		}
		if len(tree.asked.decided) > maxDecided || len(tree.asked.known) > maxDecided+len(tree.asked.open) {
			t.Errorf("%d decisions are remembered, %d questions known", len(tree.asked.decided), len(tree.asked.known))
		}
	})
}

// Doors see the questions that their filter lets them, oldest first, and events.
func TestApprovalsAreFilteredAndWatched(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		mine, hers := register(t, tree, Spec{Name: "a", Owner: "me"}), register(t, tree, Spec{Name: "b", Owner: "her"})
		ctx, end := context.WithCancelCause(t.Context())
		defer end(nil)
		var seen []EventType
		var decided Approval
		var watching sync.WaitGroup
		events := tree.Watch(ctx, Filter{Owner: "me"})
		watching.Go(func() {
			for e := range events {
				if seen = append(seen, e.Type); e.Approval != nil {
					decided = *e.Approval
				}
			}
		})
		first, got := asks(t, mine, mayI)
		_, _ = asks(t, hers, mayI)
		second, _ := asks(t, mine, mayI)
		if all := questionsOf(t, tree, Filter{}); len(all) != 3 || all[0].ID != first.ID || all[1].Run.Owner != "her" || all[2].ID != second.ID {
			t.Errorf("all: %+v", all)
		}
		if one := questionsOf(t, tree, Filter{Owner: "me", Limit: 1}); len(one) != 1 || one[0].ID != first.ID {
			t.Errorf("one of mine: %+v", one)
		}
		if under := questionsOf(t, tree, Filter{Under: hers.ID()}); len(under) != 1 || under[0].Run.Owner != "her" {
			t.Errorf("below hers: %+v", under)
		}
		_, _ = tree.Decide(t.Context(), first.ID, Decision{Choice: ChoiceDeclined, By: "me"})
		<-got
		_, _ = tree.Decide(t.Context(), second.ID, Decision{Choice: ChoiceApproved})
		synctest.Wait()
		end(nil)
		watching.Wait()
		want := []EventType{EventChanged, EventAsked, EventAsked, EventDecided, EventChanged, EventDecided}
		if !slices.Equal(seen, want) || decided.ID != second.ID || decided.Decision.Choice != ChoiceApproved {
			t.Errorf("events %v, want %v; the last approval is %+v", seen, want, decided)
		}
		text, err := json.Marshal(decided)
		back := Approval{}
		if err == nil {
			err = json.Unmarshal(text, &back)
		}
		if err != nil || back.ID != decided.ID || back.Decision.Choice != ChoiceApproved {
			t.Errorf("over a wire: %s, %v", text, err)
		}
		if id, err := ParseApprovalID(decided.ID.String()); err != nil || id != decided.ID || id.IsZero() {
			t.Errorf("%v, %v", id, err)
		}
		if _, err := ParseApprovalID(mine.ID().String()); !errors.Is(err, ErrBadID) {
			t.Errorf("a run's id: %v", err)
		}
	})
}

// A function that is not allowed what it asked for leaves its run declined.
func TestDoEndsDeclined(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		var r *Run
		done := make(chan error, 1)
		go func() {
			done <- tree.Do(t.Context(), Spec{Kind: KindScript, Name: "rm"}, func(ctx context.Context) error {
				r = RunFrom(ctx)
				d, err := r.Ask(ctx, mayI)
				if err != nil {
					return err
				}
				return d.Err()
			})
		}()
		synctest.Wait()
		a := questionsOf(t, tree, Filter{})[0]
		_, _ = tree.Decide(t.Context(), a.ID, Decision{Choice: ChoiceDeclined, By: "boss", Reason: "no"})
		if err := <-done; !errors.Is(err, ErrDeclined) || err.Error() != "declined (by boss: no)" || r.Info().Outcome != Declined {
			t.Errorf("%v, outcome %s", err, r.Info().Outcome)
		}
	})
}

// However answers, Stops, ends and time come together, each question gets one
// decision, its asker hears that one, and no run that goes on stays waiting.
func TestQuestionsAgainstEverything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { rapid.SyncTest(t, askEverything) })
}

func askEverything(t *rapid.T) {
	tree := NewTree(Options{MaxQuestions: 8})
	type asked struct {
		run *Run
		got chan answered
	}
	first, err := tree.Register(Spec{Kind: KindScript, Name: "script"})
	if err != nil {
		t.Fatal(err)
	}
	runs := []*Run{first}
	var all []asked
	accepted := map[ApprovalID]Decision{}
	one := func(t *rapid.T) *Run {
		return rapid.SampledFrom(runs).Draw(t, "run")
	}
	t.Repeat(map[string]func(*rapid.T){
		"register": func(t *rapid.T) {
			r, err := tree.Register(Spec{Kind: KindScript, Name: "script", Queued: rapid.Bool().Draw(t, "queued")})
			if err != nil {
				t.Fatal(err)
			}
			runs = append(runs, r)
		},
		"ask": func(t *rapid.T) {
			a := asked{one(t), make(chan answered, 1)}
			q := mayI
			q.Timeout = time.Duration(rapid.IntRange(1, 5).Draw(t, "timeout")) * time.Second
			all = append(all, a)
			go func() {
				d, err := a.run.Ask(context.Background(), q)
				a.got <- answered{d, err}
			}()
		},
		"decide": func(t *rapid.T) {
			open, _ := tree.Approvals(context.Background(), Filter{})
			if len(open) == 0 {
				return
			}
			id := rapid.SampledFrom(open).Draw(t, "question").ID
			d := Decision{Choice: rapid.SampledFrom([]Choice{ChoiceApproved, ChoiceDeclined, ChoiceDismissed}).Draw(t, "choice")}
			after, err := tree.Decide(context.Background(), id, d)
			if _, twice := accepted[id]; err == nil && twice {
				t.Fatalf("%v was decided twice", id)
			}
			if err == nil {
				accepted[id] = *after.Decision
			}
		},
		"start":  func(t *rapid.T) { one(t).Start() },
		"pause":  func(t *rapid.T) { one(t).Pause() },
		"finish": func(t *rapid.T) { one(t).Finish(Completed) },
		"stop":   func(t *rapid.T) { one(t).Cancel(byUser()) },
		"pass":   func(t *rapid.T) { time.Sleep(time.Duration(rapid.IntRange(1, 3000).Draw(t, "ms")) * time.Millisecond) },
		"": func(t *rapid.T) {
			synctest.Wait()
			checkQuestions(t, tree, runs)
		},
	})
	closeNow(tree)
	synctest.Wait()
	checkQuestions(t, tree, runs)
	if len(tree.asked.open) != 0 {
		t.Fatalf("%d questions are open after Close", len(tree.asked.open))
	}
	persons := 0
	for _, a := range all {
		select {
		case got := <-a.got:
			if (got.err != nil) != (got.Choice == ChoiceWithdrawn || got.Choice == "") {
				t.Fatalf("the asker heard %+v", got)
			}
			if got.err == nil && got.Choice != ChoiceExpired {
				persons++
			}
		default:
			t.Fatal("somebody still asks after Close")
		}
	}
	if persons != len(accepted) {
		t.Fatalf("%d askers heard a person's answer, %d were given", persons, len(accepted))
	}
}

func checkQuestions(t *rapid.T, tree *Tree, runs []*Run) {
	tree.mu.Lock()
	defer tree.mu.Unlock()
	open := map[*Run]int{}
	for _, a := range tree.asked.open {
		open[a.run]++
		if a.Decision != nil || tree.asked.known[a.ID] != a {
			t.Fatalf("an open question is broken: %+v", a.Approval)
		}
	}
	if len(tree.asked.known) != len(tree.asked.open)+len(tree.asked.decided) || len(tree.asked.open) > tree.opts.MaxQuestions {
		t.Fatalf("%d known, %d open, %d decided", len(tree.asked.known), len(tree.asked.open), len(tree.asked.decided))
	}
	for i, r := range runs {
		over := r.stop != nil || r.place != inFlight
		if int(r.asking) != open[r] || over && r.asking > 0 || r.halted && r.asking == 0 {
			t.Fatalf("run %d asks %d, open %d, over %t, halted %t", i, r.asking, open[r], over, r.halted)
		}
	}
}

// An owner whose questions nobody answers leaves room for those of others (a tenant
// must not have the calls of all others declined unasked).
func TestAT66_RoomForTheQuestionsOfOthers(t *testing.T) {
	bubble(t, Options{MaxQuestions: 20}, func(t *testing.T, tree *Tree) {
		open := map[string]int{}
		for _, owner := range []string{"greedy", "greedy too", "ann", "bob"} {
			for range 20 {
				r := register(t, tree, Spec{Owner: owner})
				refused := make(chan error, 1)
				go func() {
					if _, err := r.Ask(t.Context(), mayI); errors.Is(err, ErrTooMany) {
						refused <- err
					}
				}()
				if synctest.Wait(); len(refused) == 0 {
					open[owner]++
				}
			}
		}
		if open["greedy"] < 10 || open["greedy too"] < 3 || open["ann"] < 1 || open["bob"] < 1 {
			t.Errorf("open are %v", open)
		}
	})
}
