package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/faketool"
)

// stage is a session with a script worker that the test plays.
type stage struct {
	*link
	worker *faketool.Client
	modern bool
}

// on opens a stage whose caller has these capabilities.
func on(t *testing.T, modern bool, capabilities string, change func(*Config)) *stage {
	t.Helper()
	r, worker, _ := play(t, linkOptions{cfg: func(c *Config) {
		c.Asks, c.Enforce, c.RestartSafe = true, EnforceStrict, true
		if change != nil {
			change(c)
		}
	}})
	s := &stage{r, worker, modern}
	if !modern {
		r.send(`{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":%s,"clientInfo":{"name":"c","version":"1"}}}`, capabilities)
		m := got(t, worker, `"initialize"`)
		say(t, worker, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"w","version":"1"}}}`, m.ID)
		r.expect(`"init"`)
		r.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	}
	return s
}

// capable are the capabilities of a caller that takes questions.
const capable = `{"elicitation":{}}`

// meta is the _meta of a modern request of a caller that takes questions.
const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}}}}`

// call calls the tool, and returns the request as the worker gets it, and the text
// that names the call.
func (s *stage) call(id string) (m faketool.Message, name string) {
	s.t.Helper()
	more := ""
	if s.modern {
		more = "," + meta
	}
	s.send(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"delete","arguments":{"dir":%q}%s}}`, id, "of "+id, more)
	m = got(s.t, s.worker, `"of `+strings.Trim(id, `"`)+`"`)
	var p struct {
		Meta struct {
			Ask struct {
				Call string `json:"call"`
			} `json:"io.github.belayhq/ask"`
		} `json:"_meta"`
	}
	if err := json.Unmarshal(m.Params, &p); err != nil || p.Meta.Ask.Call == "" {
		s.t.Fatalf("the worker cannot ask about %s", m.Raw)
	}
	return m, p.Meta.Ask.Call
}

// ask has the worker ask.
func (s *stage) ask(id, call, more string) {
	s.t.Helper()
	say(s.t, s.worker, `{"jsonrpc":"2.0","id":%q,"method":"io.github.belayhq/ask","params":{"call":%q,"title":"Delete","message":"Delete it?\nAll of it?"%s}}`, id, call, more)
}

const buttons = `,"primary":"Delete","secondary":"Keep"`

// answered is the answer that the worker gets to its question.
func (s *stage) answered(id string) string {
	s.t.Helper()
	m, err := s.worker.Expect(`"` + id + `"`)
	if err != nil {
		s.t.Fatalf("%v\n%s", err, s.logs)
	}
	if m.Error != nil {
		return "error"
	}
	var a struct{ Answer string }
	if err := json.Unmarshal(m.Result, &a); err != nil {
		s.t.Fatalf("%s: %v", m.Raw, err)
	}
	return a.Answer
}

// open waits until n questions are open, and returns them.
func (s *stage) open(n int) []belay.Approval {
	s.t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		list, err := s.tree.Approvals(context.Background(), belay.Filter{})
		if err != nil {
			s.t.Fatal(err)
		}
		if len(list) == n {
			return list
		}
		if time.Now().After(end) {
			s.t.Fatalf("open are %+v, want %d", list, n)
		}
	}
}

// decide answers at a door.
func (s *stage) decide(choice belay.Choice) {
	s.t.Helper()
	a := s.open(1)[0]
	if _, err := s.tree.Decide(context.Background(), a.ID, belay.Decision{Choice: choice, By: "ann", Via: "cli"}); err != nil {
		s.t.Fatal(err)
	}
}

// elicited is the n-th question as a legacy caller gets it.
func (s *stage) elicited(n int) faketool.Message {
	s.t.Helper()
	seen := map[string]bool{}
	m, err := s.Await(fmt.Sprint("elicitation ", n), func(m faketool.Message) bool {
		if m.Method == "elicitation/create" {
			seen[m.ID] = true
		}
		return len(seen) >= n
	})
	if err != nil {
		s.t.Fatalf("%v\n%s", err, s.logs)
	}
	return m
}

// returns has the worker answer the call.
func (s *stage) returns(call faketool.Message, meta string) {
	s.t.Helper()
	say(s.t, s.worker, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"the script's word"}]%s}}`, call.ID, meta)
}

// ends checks how the run of a call ended.
func (s *stage) ends(run *belay.Run, want belay.Outcome) {
	s.t.Helper()
	for end := time.Now().Add(30 * time.Second); run.Info().Outcome != want; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("the run ended %s, want %s", run.Info().Outcome, want)
		}
	}
}

// TestAT61_AnswersOfALegacyCaller: each action of an elicitation is the answer it
// stands for; the doors show the question meanwhile (AT-61, AT-66).
func TestAT61_AnswersOfALegacyCaller(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ result, want string }{
		{`{"action":"accept","content":{"answer":"Delete"}}`, "primary"},
		{`{"action":"accept","content":{"answer":"Keep"}}`, "secondary"},
		{`{"action":"decline"}`, "secondary"},
		{`{"action":"cancel"}`, "dismissed"},
		{`{"action":"accept","content":{"answer":"Something else"}}`, "dismissed"},
		{`{"action":"accept"}`, "dismissed"},
	} {
		t.Run(c.result, func(t *testing.T) {
			s := on(t, false, capable, nil)
			call, name := s.call("1")
			run := s.runOf("1")
			s.ask("ask-1", name, buttons)
			q := s.elicited(1)
			for _, part := range []string{`"mode":"form"`, `"message":"Delete\n\nDelete it?\nAll of it?"`, `"enum":["Delete","Keep"]`} {
				if !strings.Contains(q.Raw, part) {
					t.Errorf("%s lacks %s", q.Raw, part)
				}
			}
			a := s.open(1)[0]
			if a.Run.ID != run.ID() || a.Question.Title != "Delete" || a.Question.Text != "Delete it?\nAll of it?" || a.Question.Primary != "Delete" ||
				a.Question.Secondary != "Keep" || run.Info().Work != belay.Waiting {
				t.Errorf("the doors show %+v; the run is %+v", a, run.Info())
			}
			s.send(`{"jsonrpc":"2.0","id":%s,"result":%s}`, q.ID, c.result)
			if got := s.answered("ask-1"); got != c.want {
				t.Errorf("the script got %s, want %s", got, c.want)
			}
			s.open(0)
			s.returns(call, "")
			s.expect("1")
			s.ends(run, belay.Completed)
		})
	}
}

// TestAT62_ADeclineIsAnOutcome: the word that says so is for Belay alone, and the
// answer is the script's own.
func TestAT62_ADeclineIsAnOutcome(t *testing.T) {
	t.Parallel()
	for _, modern := range []bool{false, true} {
		t.Run(fmt.Sprint("modern ", modern), func(t *testing.T) {
			s := on(t, modern, `{}`, func(c *Config) { c.NameRuns = true })
			call, _ := s.call("1")
			run := s.runOf("1")
			s.returns(call, `,"isError":true,"_meta":{"a":1,"io.github.belayhq/outcome":"declined"}`)
			m := s.expect("1")
			if strings.Contains(m.Raw, "outcome") || !strings.Contains(m.Raw, `"a":1`) || !strings.Contains(m.Raw, run.ID().String()) || m.Text() != "the script's word" {
				t.Errorf("the caller got %s", m.Raw)
			}
			s.ends(run, belay.Declined)
		})
	}
	t.Run("not for other servers", func(t *testing.T) {
		s := on(t, false, capable, func(c *Config) { c.Asks = false })
		s.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"delete","arguments":{}}}`)
		call := got(t, s.worker, `"tools/call"`)
		run := s.runOf("1")
		if strings.Contains(call.Raw, "belayhq/ask") {
			t.Errorf("another server got %s", call.Raw)
		}
		s.ask("ask-1", "b-1", buttons)
		if m := got(t, s.Client, "belayhq/ask"); m.Method != "io.github.belayhq/ask" { // what Belay does not know passes
			t.Errorf("the caller got %s", m.Raw)
		}
		s.returns(call, `,"_meta":{"io.github.belayhq/outcome":"declined"}`)
		if m := s.expect("1"); !strings.Contains(m.Raw, "declined") {
			t.Errorf("the caller got %s", m.Raw)
		}
		s.ends(run, belay.Completed)
	})
}

// TestAT66_TheFirstAnswerWins: a door's takes the question back at the caller, whose
// own answer changes nothing then.
func TestAT66_TheFirstAnswerWins(t *testing.T) {
	t.Parallel()
	s := on(t, false, capable, nil)
	call, name := s.call("1")
	s.ask("ask-1", name, buttons)
	q := s.elicited(1)
	s.decide(belay.ChoiceApproved)
	if got := s.answered("ask-1"); got != "primary" {
		t.Errorf("the script got %s", got)
	}
	if m := got(t, s.Client, "notifications/cancelled"); !strings.Contains(m.Raw, q.ID) {
		t.Errorf("the caller got %s", m.Raw)
	}
	s.send(`{"jsonrpc":"2.0","id":%s,"result":{"action":"decline"}}`, q.ID)
	s.returns(call, "")
	s.expect("1")
	if n := len(s.worker.Responses(`"ask-1"`)); n != 1 {
		t.Errorf("the script got %d answers", n)
	}
}

// TestAT66_ACallerThatCannotBeAsked leaves the question to the doors: one that has no
// such capability, and one that answers with an error.
func TestAT66_ACallerThatCannotBeAsked(t *testing.T) {
	t.Parallel()
	for _, modern := range []bool{false, true} {
		for _, capabilities := range []string{`{}`, `{"elicitation":{"url":{}}}`, capable} {
			t.Run(fmt.Sprint("modern ", modern, " ", capabilities), func(t *testing.T) {
				s := on(t, modern, capabilities, nil)
				if modern {
					s.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"delete","arguments":{"dir":"of 1"},%s}}`,
						strings.Replace(meta, `{"elicitation":{"form":{}}}`, capabilities, 1))
				} else {
					s.call("1")
				}
				call := got(t, s.worker, `"of 1"`)
				_, name, _ := strings.Cut(call.Raw, `"io.github.belayhq/ask":{"call":"`)
				name, _, _ = strings.Cut(name, `"`)
				s.ask("ask-1", name, buttons)
				switch {
				case capabilities != capable:
				case modern:
					m := s.expect("1")
					s.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"delete","arguments":{"dir":"of 1"},"requestState":%q,%s}}`, state(t, m), meta)
				default:
					s.send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"what?"}}`, s.elicited(1).ID)
				}
				const said = "its caller cannot be asked"
				for end := time.Now().Add(30 * time.Second); !strings.Contains(s.logs.String(), said) && time.Now().Before(end); time.Sleep(time.Millisecond) {
				}
				s.decide(belay.ChoiceDeclined)
				if got := s.answered("ask-1"); got != "secondary" {
					t.Errorf("the script got %s", got)
				}
				s.returns(call, "")
				id := "1"
				if modern && capabilities == capable {
					id = "2"
				}
				if m := s.expect(id); m.Text() != "the script's word" {
					t.Errorf("got %s", m.Raw)
				}
				if n := strings.Count(s.logs.String(), said); n != 1 {
					t.Errorf("said %d times", n)
				}
			})
		}
	}
}

// askerFunc makes a function an Asker.
type askerFunc func(context.Context, *belay.Run, belay.Approval) (belay.Decision, error)

func (f askerFunc) AskCall(ctx context.Context, run *belay.Run, a belay.Approval) (belay.Decision, error) {
	return f(ctx, run, a)
}

// TestAT66_AskedInTheCallersPlace: whoever stands for a caller that takes no questions
// answers, cannot, or is told that it is over.
func TestAT66_AskedInTheCallersPlace(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"answers", "cannot", "is too late"} {
		t.Run(how, func(t *testing.T) {
			over := make(chan error, 1)
			s := on(t, false, `{}`, func(c *Config) {
				c.Asker = askerFunc(func(ctx context.Context, run *belay.Run, a belay.Approval) (belay.Decision, error) {
					switch {
					case a.Run.ID != run.ID() || a.Question.Primary != "Delete":
						t.Errorf("asked %+v of %v", a, run.ID())
					case how == "cannot":
						over <- nil
						return belay.Decision{}, errors.New("nobody is there")
					case how == "answers":
						over <- nil
						return belay.Decision{Choice: belay.ChoiceApproved, Via: "acp"}, nil
					}
					<-ctx.Done()
					over <- context.Cause(ctx)
					return belay.Decision{}, context.Cause(ctx)
				})
			})
			call, name := s.call("1")
			s.ask("ask-1", name, buttons)
			want := "primary"
			if how != "answers" {
				if how == "cannot" {
					<-over
				}
				s.decide(belay.ChoiceDeclined)
				want = "secondary"
			}
			if got := s.answered("ask-1"); got != want {
				t.Errorf("the script got %s, want %s", got, want)
			}
			if how == "is too late" {
				if err := <-over; !errors.Is(err, errDecided) {
					t.Errorf("it was told %v", err)
				}
			}
			s.returns(call, "")
			s.expect("1")
		})
	}
}

// TestAT61_NobodyAnswers: the question expires, is taken back everywhere, and the
// script goes on.
func TestAT61_NobodyAnswers(t *testing.T) {
	t.Parallel()
	s := on(t, false, capable, nil)
	call, name := s.call("1")
	s.ask("ask-1", name, buttons+`,"timeoutMs":30`)
	if got := s.answered("ask-1"); got != "dismissed" {
		t.Errorf("the script got %s", got)
	}
	got(t, s.Client, "notifications/cancelled")
	s.open(0)
	s.returns(call, "")
	s.expect("1")
}

// TestAT65_StopWhileAPersonIsAsked: whoever stops the call, the question is taken back
// at the caller and at the doors, the worker is told, and nobody's answer comes to
// anything (AT-19, AT-65).
func TestAT65_StopWhileAPersonIsAsked(t *testing.T) {
	t.Parallel()
	for _, modern := range []bool{false, true} {
		for _, who := range []string{"operator", "caller"} {
			t.Run(fmt.Sprint("modern ", modern, " ", who), func(t *testing.T) {
				s := on(t, modern, capable, nil)
				call, name := s.call("1")
				run := s.runOf("1")
				s.ask("ask-1", name, buttons)
				var asked faketool.Message
				if modern {
					asked = s.expect("1")
				} else {
					asked = s.elicited(1)
				}
				a := s.open(1)[0]
				if who == "caller" && modern { // its request was answered: there is nothing left to cancel
					s.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,%s}}`, meta)
					s.call("77")
					if run.Cancellation() != nil {
						t.Fatal("a cancel of an answered request stopped the call")
					}
				}
				if who == "caller" && !modern {
					s.cancel("1", "no more")
				} else {
					s.stopRun(run)
				}
				if m := got(t, s.worker, "notifications/cancelled"); !strings.Contains(m.Raw, call.ID) {
					t.Errorf("the worker got %s", m.Raw)
				}
				if got := s.answered("ask-1"); got != "error" {
					t.Errorf("the script got %s", got)
				}
				s.open(0)
				if _, err := s.tree.Decide(context.Background(), a.ID, belay.Decision{Choice: belay.ChoiceApproved}); !errors.Is(err, belay.ErrNotFound) {
					t.Errorf("it can be answered all the same: %v", err)
				}
				s.ends(run, belay.Cancelled)
				if modern {
					s.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"delete","arguments":{"dir":"again"},"requestState":%q,"inputResponses":{"answer":{"action":"accept","content":{"answer":"Delete"}}},%s}}`, state(t, asked), meta)
					if m := s.expect("2"); !strings.Contains(m.Raw, "-32800") {
						t.Errorf("the retry got %s", m.Raw)
					}
					never(t, s.worker, `"again"`)
					return
				}
				if m := got(t, s.Client, "notifications/cancelled"); !strings.Contains(m.Raw, asked.ID) {
					t.Errorf("the caller got %s", m.Raw)
				}
				s.send(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept","content":{"answer":"Delete"}}}`, asked.ID) // too late
			})
		}
	}
}

// TestAT65_TheWorkerWithdraws: a script that waits no longer takes its question back.
func TestAT65_TheWorkerWithdraws(t *testing.T) {
	t.Parallel()
	s := on(t, false, capable, nil)
	call, name := s.call("1")
	s.ask("ask-1", name, buttons)
	q := s.elicited(1)
	say(t, s.worker, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"ask-1"}}`)
	if m := got(t, s.Client, "notifications/cancelled"); !strings.Contains(m.Raw, q.ID) {
		t.Errorf("the caller got %s", m.Raw)
	}
	s.open(0)
	s.returns(call, "")
	s.expect("1")
}

// TestAT65_TheWorkerDies: its question goes with it.
func TestAT65_TheWorkerDies(t *testing.T) {
	t.Parallel()
	for _, modern := range []bool{false, true} {
		t.Run(fmt.Sprint("modern ", modern), func(t *testing.T) {
			s := on(t, modern, capable, nil)
			first, _ := s.call("0") // a server that ends before it has answered anything ends the session
			s.returns(first, "")
			s.expect("0")
			_, name := s.call("1")
			run := s.runOf("1")
			s.ask("ask-1", name, buttons)
			var asked faketool.Message
			if modern {
				asked = s.expect("1")
			} else {
				s.elicited(1)
			}
			_ = s.worker.CloseStdin()
			s.ends(run, belay.Failed)
			s.open(0)
			if modern {
				s.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"delete","arguments":{"dir":"again"},"requestState":%q,%s}}`, state(t, asked), meta)
				if m := s.expect("2"); m.Error == nil || !strings.Contains(m.Raw, "ended before it answered") {
					t.Errorf("the retry got %s", m.Raw)
				}
				return
			}
			got(t, s.Client, "notifications/cancelled")
			s.expect("1")
		})
	}
}

// state is what the retry has to bring.
func state(t *testing.T, m faketool.Message) string {
	t.Helper()
	var r struct {
		Type  string                     `json:"resultType"`
		State string                     `json:"requestState"`
		Asks  map[string]json.RawMessage `json:"inputRequests"`
	}
	if err := json.Unmarshal(m.Result, &r); err != nil || r.Type != "input_required" || r.State == "" || !strings.Contains(string(r.Asks["answer"]), `"elicitation/create"`) {
		t.Fatalf("the caller was not asked: %s", m.Raw)
	}
	return r.State
}

// TestAT66_AModernCaller is asked by the answer to its request; the retry is the same
// call, which the worker does not see again (MCP-65).
func TestAT66_AModernCaller(t *testing.T) {
	t.Parallel()
	s := on(t, true, "", nil)
	call, name := s.call("1")
	run := s.runOf("1")
	s.ask("ask-1", name, buttons)
	m := s.expect("1")
	if !strings.Contains(m.Raw, `"enum":["Delete","Keep"]`) || run.Info().Work != belay.Waiting || s.s.InFlight() != 1 {
		t.Errorf("the caller got %s; the run is %+v", m.Raw, run.Info())
	}
	s.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"delete","arguments":{"dir":"again"},"requestState":%q,"inputResponses":{"answer":{"action":"accept","content":{"answer":"Delete"}}},%s}}`, state(t, m), meta)
	if got := s.answered("ask-1"); got != "primary" {
		t.Errorf("the script got %s", got)
	}
	s.returns(call, "")
	if m := s.expect("2"); m.Text() != "the script's word" {
		t.Errorf("got %s", m.Raw)
	}
	s.ends(run, belay.Completed)
	if list := s.callRuns(); len(list) != 1 {
		t.Errorf("the runs are %+v", list)
	}
	never(t, s.worker, `"again"`)
	if s.s.InFlight() != 0 {
		t.Error("something is in flight")
	}
}

// TestAT66_AModernCallerComesLate: a door has answered, and the script has ended. The
// answer has waited for it; a second retry is another call.
func TestAT66_AModernCallerComesLate(t *testing.T) {
	t.Parallel()
	s := on(t, true, "", func(c *Config) { c.NameRuns = true })
	call, name := s.call("1")
	run := s.runOf("1")
	s.ask("ask-1", name, buttons)
	m := s.expect("1")
	if !strings.Contains(m.Raw, run.ID().String()) {
		t.Errorf("the run is not named in %s", m.Raw)
	}
	s.decide(belay.ChoiceApproved)
	if got := s.answered("ask-1"); got != "primary" {
		t.Errorf("the script got %s", got)
	}
	s.returns(call, "")
	s.ends(run, belay.Completed)
	s.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"delete","arguments":{"dir":"again"},"requestState":%q,"inputResponses":{"answer":{"action":"decline"}},%s}}`, state(t, m), meta)
	if m := s.expect("2"); m.Text() != "the script's word" || !strings.Contains(m.Raw, run.ID().String()) {
		t.Errorf("got %s", m.Raw)
	}
	never(t, s.worker, `"again"`)
}

// TestAT66_AnswersThatWaitAreBounded: what does not fit is not kept, and says so; what
// nobody comes for is forgotten.
func TestAT66_AnswersThatWaitAreBounded(t *testing.T) {
	t.Parallel()
	s := on(t, true, "", func(c *Config) { c.maxHeld = 64 << 10 })
	states := map[string]string{}
	for _, id := range []string{"1", "2"} {
		call, name := s.call(id)
		run := s.runOf(id)
		s.ask("ask-"+id, name, buttons)
		states[id] = state(t, s.expect(id))
		s.decide(belay.ChoiceApproved)
		s.answered("ask-" + id)
		say(t, s.worker, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":%q}]}}`, call.ID, strings.Repeat("x", 40<<10))
		s.ends(run, belay.Completed)
	}
	s.send(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"delete","arguments":{"dir":"again"},"requestState":%q,%s}}`, states["2"], meta)
	if m := s.expect("3"); m.Error == nil || !strings.Contains(m.Raw, "the answer was dropped") {
		t.Errorf("got %.200s", m.Raw)
	}
	s.s.mu.Lock()
	held := s.s.held
	for _, r := range s.s.rounds.byKey {
		s.s.giveUpLocked(r)
	}
	if held < 40<<10 || s.s.held != 0 || len(s.s.rounds.byKey) != 0 {
		t.Errorf("%d bytes are held, then %d", held, s.s.held)
	}
	s.s.mu.Unlock()
	if s.s.InFlight() != 0 {
		t.Error("something is in flight")
	}
}

// TestAT16_AModernCallerComesBackToAStop: what its script had when it was stopped is
// the answer to the retry.
func TestAT16_AModernCallerComesBackToAStop(t *testing.T) {
	t.Parallel()
	s := on(t, true, "", nil)
	s.send(`{"jsonrpc":"2.0","id":"d","method":"server/discover","params":{%s}}`, meta)
	say(t, s.worker, `{"jsonrpc":"2.0","id":%s,"result":{"supportedVersions":["2026-07-28"],"capabilities":{"extensions":{"io.github.belayhq/stop-ack":{"await":true}}}}}`, got(t, s.worker, "server/discover").ID)
	s.expect(`"d"`)
	_, name := s.call("1")
	run := s.runOf("1")
	s.ask("ask-1", name, buttons)
	m := s.expect("1")
	s.decide(belay.ChoiceApproved)
	s.answered("ask-1")
	s.stopRun(run)
	say(t, s.worker, `{"jsonrpc":"2.0","id":%s,"result":{"outcome":"stopped","partial":"the script's word"}}`, got(t, s.worker, "stop-ack/await").ID)
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		if r := run.Receipt(); r != nil && r.Partial == "the script's word" {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the receipt is %+v", run.Receipt())
		}
	}
	s.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"delete","arguments":{"dir":"again"},"requestState":%q,%s}}`, state(t, m), meta)
	if m := s.expect("2"); !strings.Contains(m.Raw, `[{"type":"text","text":"Cancelled by operator`) || !strings.Contains(m.Raw, `{"type":"text","text":"the script's word"}`) {
		t.Errorf("got %s", m.Raw)
	}
	never(t, s.worker, `"again"`)
}

// TestAT6_WhatAScriptReturnsAfterTheStop is on its way when the Stop comes: it proves that
// the script has ended, and the caller gets nothing of it.
func TestAT6_WhatAScriptReturnsAfterTheStop(t *testing.T) {
	t.Parallel()
	for _, modern := range []bool{false, true} {
		t.Run(fmt.Sprint("modern ", modern), func(t *testing.T) {
			s := on(t, modern, capable, func(c *Config) { c.PartialWait = 300 * time.Millisecond })
			call, _ := s.call("1")
			run := s.runOf("1")
			s.stopRun(run)
			s.returns(call, "")
			for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
				if r := run.Receipt(); r != nil && saw(r, belay.SeenResult) {
					break
				}
				if time.Now().After(end) {
					t.Fatalf("the receipt is %+v", run.Receipt())
				}
			}
			if r := run.Receipt(); r.Partial != "" {
				t.Errorf("the receipt is %+v", r)
			}
			if m := s.expect("1"); m.Error == nil || strings.Contains(m.Raw, "the script's word") {
				t.Errorf("the caller got %s", m.Raw)
			}
		})
	}
}

// TestAT60_ThePreviewIsAChoiceThatDecidesNothing: the caller is asked again, with what
// there was to see; the question at the doors stays the same one.
func TestAT60_ThePreviewIsAChoiceThatDecidesNothing(t *testing.T) {
	t.Parallel()
	for _, modern := range []bool{false, true} {
		t.Run(fmt.Sprint("modern ", modern), func(t *testing.T) {
			s := on(t, modern, capable, nil)
			call, name := s.call("1")
			s.ask("ask-1", name, buttons+`,"preview":"Show"`)
			a := s.open(1)[0]
			answer := func(n int, label string) string {
				if modern {
					m := s.expect(fmt.Sprint(n))
					s.send(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"delete","arguments":{"dir":"again"},"requestState":%q,"inputResponses":{"answer":{"action":"accept","content":{"answer":%q}}},%s}}`,
						n+1, state(t, m), label, meta)
					return m.Raw
				}
				m := s.elicited(n)
				s.send(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept","content":{"answer":%q}}}`, m.ID, label)
				return m.Raw
			}
			if raw := answer(1, "Show"); !strings.Contains(raw, `"enum":["Delete","Keep","Show"]`) {
				t.Errorf("asked %s", raw)
			}
			look := got(t, s.worker, "belayhq/preview")
			if !strings.Contains(look.Raw, `{"call":"`+name+`"`) || strings.Contains(look.Raw, "protocolVersion") != modern {
				t.Errorf("the worker got %s", look.Raw)
			}
			say(t, s.worker, `{"jsonrpc":"2.0","id":%s,"result":{"text":"two files\nof 7"}}`, look.ID)
			if raw := answer(2, "Delete"); !strings.Contains(raw, `All of it?\n\nShow:\ntwo files\nof 7"`) {
				t.Errorf("asked again %s", raw)
			}
			if got := s.answered("ask-1"); got != "primary" {
				t.Errorf("the script got %s", got)
			}
			if b, err := s.tree.Approval(context.Background(), a.ID); err != nil || b.Decision == nil || b.Decision.Choice != belay.ChoiceApproved {
				t.Errorf("the doors say %+v, %v", b, err)
			}
			s.returns(call, "")
			s.expect(map[bool]string{false: "1", true: "3"}[modern])
		})
	}
}

// TestAT66_BadQuestions are refused, and change nothing.
func TestAT66_BadQuestions(t *testing.T) {
	t.Parallel()
	s := on(t, false, capable, nil)
	call, name := s.call("1")
	for i, params := range []string{
		`[]`, `{}`, `{"call":"b-999","message":"x"}`, `{"call":"nobody","message":"x"}`, fmt.Sprintf(`{"call":%q}`, name), fmt.Sprintf(`{"call":%q,"message":7}`, name),
		`{"call":"","message":"x"}`, fmt.Sprintf(`{"call":%q,"message":"\u0000\u0001"}`, name),
	} {
		id := fmt.Sprintf("bad-%d", i)
		say(t, s.worker, `{"jsonrpc":"2.0","id":%q,"method":"io.github.belayhq/ask","params":%s}`, id, params)
		if got := s.answered(id); got != "error" {
			t.Errorf("%s was answered %s", params, got)
		}
	}
	s.open(0)
	s.ask("ask-1", name, "") // no button: it can be dismissed
	q := s.elicited(1)
	if strings.Contains(q.Raw, "enum") || !strings.Contains(q.Raw, `"properties":{}`) {
		t.Errorf("the caller got %s", q.Raw)
	}
	s.ask("ask-1", name, buttons) // the id is in flight
	if got := s.answered("ask-1"); got != "error" {
		t.Errorf("a second question of one id was answered %s", got)
	}
	s.send(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept","content":{}}}`, q.ID)
	got(t, s.worker, `{"answer":"dismissed"}`)
	s.returns(call, "")
	s.expect("1")
	s.ask("late", name, buttons)
	if got := s.answered("late"); got != "error" {
		t.Errorf("a question of a call that has ended was answered %s", got)
	}
}

// TestAT66_NothingIsShownThatCommandsATerminal: what a script writes is text, at the
// caller as at the doors.
func TestAT66_NothingIsShownThatCommandsATerminal(t *testing.T) {
	t.Parallel()
	s := on(t, false, capable, nil)
	call, name := s.call("1")
	say(t, s.worker, `{"jsonrpc":"2.0","id":"ask-1","method":"io.github.belayhq/ask","params":{"call":%q,"message":"a\u001b[2Jb\nc\u202ed","primary":"Y\u0007es","secondary":"\u0000"}}`, name)
	q := s.elicited(1)
	if !strings.Contains(q.Raw, `a[2Jb\ncd`) || !strings.Contains(q.Raw, `"enum":["Yes"]`) || strings.Contains(q.Raw, `\u00`) || strings.Contains(q.Raw, "\u202e") {
		t.Errorf("the caller got %s", q.Raw)
	}
	if a := s.open(1)[0]; a.Question.Text != "a[2Jb\ncd" || a.Question.Primary != "Yes" || a.Question.Secondary != "" {
		t.Errorf("the doors show %+v", a.Question)
	}
	s.send(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept","content":{"answer":"Yes"}}}`, q.ID)
	if got := s.answered("ask-1"); got != "primary" {
		t.Errorf("the script got %s", got)
	}
	s.returns(call, "")
	s.expect("1")
}

// TestAT66_EveryDoorShowsTheSame: what is too long says so, at the caller as at the
// doors.
func TestAT66_EveryDoorShowsTheSame(t *testing.T) {
	t.Parallel()
	s := on(t, false, capable, nil)
	call, name := s.call("1")
	say(t, s.worker, `{"jsonrpc":"2.0","id":"ask-1","method":"io.github.belayhq/ask","params":{"call":%q,"message":%q,"primary":%q,"secondary":"No"}}`,
		name, strings.Repeat("ä", 10<<10)+" and delete everything", strings.Repeat("Y", 200))
	var p struct{ Message string }
	if err := json.Unmarshal(s.elicited(1).Params, &p); err != nil {
		t.Fatal(err)
	}
	q := s.open(1)[0].Question
	if !strings.HasSuffix(q.Text, "too long to be shown]") || p.Message != "delete\n\n"+q.Text || len(q.Text) > 8<<10 {
		t.Errorf("the doors show %d bytes, …%s; the caller %d, …%s", len(q.Text), q.Text[len(q.Text)-80:], len(p.Message), p.Message[len(p.Message)-80:])
	}
	if !strings.HasSuffix(q.Primary, "Y […]") || !strings.Contains(s.elicited(1).Raw, q.Primary) {
		t.Errorf("the button is %s", q.Primary)
	}
	s.decide(belay.ChoiceApproved)
	s.answered("ask-1")
	s.returns(call, "")
	s.expect("1")
}

// TestAT66_AnswersRaceStops: whatever comes first, every question is answered once,
// and nothing is left.
func TestAT66_AnswersRaceStops(t *testing.T) {
	t.Parallel()
	for _, modern := range []bool{false, true} {
		t.Run(fmt.Sprint("modern ", modern), func(t *testing.T) {
			s := on(t, modern, capable, func(c *Config) {
				c.Enforce, c.RestartSafe = EnforceLenient, false // the same process throughout
				c.PartialWait = 10 * time.Millisecond            // no answer here is partial
			})
			for i := range 40 {
				id := fmt.Sprint(1000 + 10*i)
				call, name := s.call(id)
				run := s.runOf(id)
				ask := "ask-" + id
				s.ask(ask, name, buttons)
				var asked faketool.Message
				if modern {
					asked = s.expect(id)
				} else {
					asked = s.elicited(i + 1)
				}
				a := s.open(1)[0]
				go func() { _, _ = s.tree.Decide(context.Background(), a.ID, belay.Decision{Choice: belay.ChoiceApproved}) }()
				go func() {
					_, _ = s.tree.Cancel(context.Background(), belay.CancelRequest{Filter: belay.Filter{IDs: []belay.RunID{run.ID()}}, Cancellation: belay.Cancellation{Cause: belay.CauseOperator}})
				}()
				if modern {
					s.send(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"delete","arguments":{"dir":"again"},"requestState":%q,"inputResponses":{"answer":{"action":"decline"}},%s}}`,
						1001+10*i, state(t, asked), meta)
				} else {
					s.send(`{"jsonrpc":"2.0","id":%s,"result":{"action":"decline"}}`, asked.ID)
				}
				s.answered(ask)
				s.ends(run, belay.Cancelled)
				s.returns(call, "")
				if modern {
					id = fmt.Sprint(1001 + 10*i)
				}
				s.expect(id)
			}
			s.open(0)
			never(t, s.worker, `"again"`)
		})
	}
}

// TestAT61_TheDeadlineWaitsForAPerson: the time that a person takes is none of the
// call's, and what was left goes on after the answer (MCP-G23).
func TestAT61_TheDeadlineWaitsForAPerson(t *testing.T) {
	t.Parallel()
	const deadline = time.Second
	s := on(t, false, capable, func(c *Config) { c.Deadline = deadline })
	_, name := s.call("1")
	run := s.runOf("1")
	s.ask("ask-1", name, buttons)
	s.open(1)
	asked := time.Now()
	time.Sleep(2 * deadline)
	s.decide(belay.ChoiceApproved)
	if got := s.answered("ask-1"); got != "primary" || run.Cancellation() != nil {
		t.Fatalf("the script got %s; %v", got, run.Cancellation())
	}
	if m := s.expect("1"); !strings.Contains(m.Raw, `"cause":"deadline"`) {
		t.Errorf("the caller got %s", m.Raw)
	}
	if worked := time.Since(run.Started()) - 2*deadline; worked < deadline || run.Info().Deadline.Before(asked.Add(2*deadline)) {
		t.Errorf("it was stopped after %v of its own time", worked)
	}
}
