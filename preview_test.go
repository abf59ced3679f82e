package belay

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"
)

// seeing is mayI with something to see.
func seeing(look func(ctx context.Context) (string, error)) Question {
	q := mayI
	q.Preview, q.Look = "Show", look
	return q
}

// A preview shows what the asker has to show, as often as one likes, and decides
// nothing (AT-60).
func TestAT60_ThePreviewOfAQuestion(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		r := register(t, tree, Spec{})
		failed, n := errors.New("no"), 0
		a, got := asks(t, r, seeing(func(context.Context) (string, error) {
			if n++; n == 2 {
				return "lost", failed
			}
			return "\r\n- one\r\n+\ttwo\x1b[2J\u202e\n", nil
		}))
		if text, err := json.Marshal(a); err != nil || !strings.Contains(string(text), `"preview":"Show"`) || a.Question.Look != nil {
			t.Errorf("the question is %s, %v", text, err)
		}
		for range 3 {
			text, err := tree.Preview(t.Context(), a.ID)
			if n == 2 && (!errors.Is(err, failed) || text != "") || n != 2 && (err != nil || text != "- one\n+\ttwo[2J") {
				t.Errorf("look %d: %q, %v", n, text, err)
			}
		}
		wantWork(t, r, Waiting)
		if _, err := tree.Decide(t.Context(), a.ID, Decision{Choice: ChoiceApproved}); err != nil {
			t.Fatal(err)
		}
		<-got
		if text, err := tree.Preview(t.Context(), a.ID); !errors.Is(err, ErrDecided) || text != "" || n != 3 {
			t.Errorf("when it was decided: %q, %v", text, err)
		}
	})
}

// What offers nothing to see says so, and what is not there is not found.
func TestAT60_NoPreview(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		r := register(t, tree, Spec{})
		look := func(context.Context) (string, error) { t.Error("it was called"); return "", nil }
		for _, q := range []Question{mayI, {Text: "t", Preview: "Show"}, {Text: "t", Look: look}, {Text: "t", Preview: "\x1b", Look: look}} {
			a, _ := asks(t, r, q)
			if text, err := tree.Preview(t.Context(), a.ID); !errors.Is(err, ErrUnsupported) || text != "" || a.Question.Preview != "" {
				t.Errorf("%+v: %q, %v", a.Question, text, err)
			}
		}
		if _, err := tree.Preview(t.Context(), ApprovalID(NewRunID())); !errors.Is(err, ErrNotFound) {
			t.Errorf("an unknown one: %v", err)
		}
		a, got := asks(t, r, seeing(look))
		press(t, tree, r)
		<-got
		if _, err := tree.Preview(t.Context(), a.ID); !errors.Is(err, ErrNotFound) {
			t.Errorf("a withdrawn one: %v", err)
		}
		r = register(t, tree, Spec{})
		q := seeing(look)
		q.Timeout = time.Second
		a, _ = asks(t, r, q)
		time.Sleep(time.Second)
		if _, err := tree.Preview(t.Context(), a.ID); !errors.Is(err, ErrDecided) {
			t.Errorf("an expired one: %v", err)
		}
	})
}

// A preview that never returns ends with its time, with the question, and with the
// tree; one that is too long is cut, which it says.
func TestAT60_BadPreviews(t *testing.T) {
	for _, how := range []string{"time", "decision", "stop", "close", "patience"} {
		bubble(t, Options{}, func(t *testing.T, tree *Tree) {
			r := register(t, tree, Spec{})
			var why error
			a, got := asks(t, r, seeing(func(ctx context.Context) (string, error) {
				<-ctx.Done()
				why = context.Cause(ctx)
				return "too late", why
			}))
			begin, want := time.Now(), ErrDecided
			ctx, end := context.WithCancelCause(t.Context())
			bored := errors.New("bored")
			time.AfterFunc(time.Second, func() {
				switch how {
				case "decision":
					_, _ = tree.Decide(t.Context(), a.ID, Decision{Choice: ChoiceApproved})
				case "stop":
					press(t, tree, r)
				case "close":
					over, end := context.WithCancel(t.Context())
					end()
					_ = tree.Close(over)
				case "patience":
					end(bored)
				}
			})
			text, err := tree.Preview(ctx, a.ID)
			switch how {
			case "time":
				want = errPreviewTime
			case "stop", "close":
				want = ErrNotFound
			case "patience":
				want = bored
			}
			limit := time.Second
			if how == "time" {
				limit = previewTime
			}
			if !errors.Is(err, want) || text != "" || time.Since(begin) != limit {
				t.Errorf("%s: %q after %v, %v", how, text, time.Since(begin), err)
			}
			if how == "patience" || how == "time" {
				_, _ = tree.Decide(t.Context(), a.ID, Decision{Choice: ChoiceApproved})
			}
			<-got
			synctest.Wait()
			if why == nil {
				t.Errorf("%s: it goes on", how)
			}
		})
	}
	long := cleanPreview(strings.Repeat("ä\x1b", 1<<20))
	if len(long) > maxPreview || !strings.HasSuffix(long, previewCut) || !utf8.ValidString(long) {
		t.Errorf("%d bytes, ending %q", len(long), long[len(long)-80:])
	}
}

// Many who look at once see one look, one after the other (-race).
func TestAT60_ManyLookAtOnce(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, tree *Tree) {
		r := register(t, tree, Spec{})
		var at, looks atomic.Int32
		a, got := asks(t, r, seeing(func(context.Context) (string, error) {
			if at.Add(1) > 1 {
				t.Error("two look at the same time")
			}
			time.Sleep(time.Second)
			at.Add(-1)
			looks.Add(1)
			return "seen", nil
		}))
		for range 2 {
			var all sync.WaitGroup
			for range 100 {
				all.Go(func() {
					if text, err := tree.Preview(t.Context(), a.ID); text != "seen" || err != nil {
						t.Errorf("%q, %v", text, err)
					}
				})
			}
			all.Wait()
		}
		if n := looks.Load(); n != 2 {
			t.Errorf("it looked %d times", n)
		}
		_, _ = tree.Decide(t.Context(), a.ID, Decision{Choice: ChoiceDeclined})
		<-got
	})
}
