package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/belayhq/belay/internal/fakemodel"
	"github.com/belayhq/belay/internal/faketool"
)

// acpCell is one way in which a turn is stopped.
type acpCell struct {
	name  string
	v2    bool // also in version 2, with agents that speak it
	ask   bool // the agent asks before it runs a command
	end   bool // the session ends: everything has to be gone
	under bool // only under Belay: bare it would be another cell
	steps func(s *acpSession) []fakemodel.Step
	run   func(x *acpRun) error
}

// Words of prompts, each for one step of the model.
const (
	wordEarly = "word-early" // a process that stays behind, in an earlier tool call
	wordWork  = "word-work"  // the work that is stopped
)

// Keys of the witness.
const (
	keyEarly = "early"
	keyWork  = "work"
)

// acpCells are the rows of each agent.
var acpCells = []acpCell{
	{
		name: "Stop, shell tool", v2: true,
		steps: func(s *acpSession) []fakemodel.Step {
			return []fakemodel.Step{
				{Word: wordEarly, Shell: s.daemon(keyEarly)},
				{Word: wordWork, Shell: s.shell(keyWork)},
			}
		},
		run: func(x *acpRun) error { return x.stopAfterEarlier(x.stop) },
	},
	{
		name: "Stop, shell tool deaf to SIGTERM", steps: working("-deaf-term"),
		run: func(x *acpRun) error { return x.stopOne(x.stop) },
	},
	{
		name: "Stop, grandchild with setsid", v2: true, steps: working("-fork=daemon"),
		run: func(x *acpRun) error {
			x.keys = append(x.keys, keyWork+"/daemon")
			return x.stopOne(x.stop)
		},
	},
	{
		name: "Stop, MCP call", v2: true,
		steps: func(*acpSession) []fakemodel.Step {
			return []fakemodel.Step{{Word: wordWork, Tool: "slow", Arguments: map[string]any{"seconds": 60}}}
		},
		run: func(x *acpRun) error {
			x.keys, x.r.noProcess = []string{slowKey}, true
			return x.stopOne(x.stop)
		},
	},
	{
		name: "Stop, permission pending", v2: true, ask: true, steps: asking,
		run: func(x *acpRun) error { return x.stopAsking() },
	},
	{
		name: "Stop, model stream",
		steps: func(*acpSession) []fakemodel.Step {
			return []fakemodel.Step{{Word: wordWork, Hang: true}}
		},
		run: func(x *acpRun) error { return x.stopStream() },
	},
	{
		name: "$/cancel_request", steps: working(),
		run: func(x *acpRun) error { return x.stopOne(func() error { return x.s.withdraw(x.turn) }) },
	},
	{
		name: "Stop twice, second tool call",
		steps: func(s *acpSession) []fakemodel.Step {
			return []fakemodel.Step{
				{Word: wordWork, Shell: s.daemon(keyEarly)},
				{Word: wordWork, Shell: s.shell(keyWork)},
			}
		},
		run: func(x *acpRun) error { return x.stopTwice() },
	},
	{
		name: "editor's EOF", end: true, steps: working("-fork=daemon"),
		run: func(x *acpRun) error { return x.endBy(x.s.CloseStdin, 5*time.Second) },
	},
	{
		name: "SIGTERM", end: true, steps: working("-fork=daemon"),
		run: func(x *acpRun) error {
			return x.endBy(func() error { return x.s.Signal(syscall.SIGTERM) }, 5*time.Second)
		},
	},
	{
		name: "SIGKILL", end: true, steps: working("-fork=daemon"),
		run: func(x *acpRun) error { return x.endBy(func() error { return x.s.Signal(os.Kill) }, time.Second) },
	},
	{
		name: "agent killed", end: true, under: true, steps: working("-fork=daemon"),
		run: func(x *acpRun) error {
			if err := x.endBy(x.crash, 5*time.Second); err != nil {
				return err
			}
			x.r.answered = true
			return nil
		},
	},
}

// working is one shell tool that works until it is stopped.
func working(more ...string) func(*acpSession) []fakemodel.Step {
	return func(s *acpSession) []fakemodel.Step {
		return []fakemodel.Step{{Word: wordWork, Shell: s.shell(keyWork, more...)}}
	}
}

// asking is the same, as a command for which the agent asks.
func asking(s *acpSession) []fakemodel.Step {
	return []fakemodel.Step{{Word: wordWork, Shell: s.shell(keyWork), Ask: true}}
}

// acpRun is the session of one row.
type acpRun struct {
	h    *harness
	s    *acpSession
	r    *acpRow
	turn turn
	keys []string // of the work that is stopped
	at   time.Time
	// innocents are processes that no Stop may touch, by what they are.
	innocents map[string]int
}

// acpSample are the times after the Stop at which processes are counted.
var acpSample = []time.Duration{200 * time.Millisecond, time.Second, 3 * time.Second, 5 * time.Second}

// acpNext bounds the next prompt, which is answered at once by the model.
const acpNext = 12 * time.Second

// acpPatience is how long the editor waits for the end of a turn: Belay's settle
// deadline and a second, and some more so that "late" can be told from "never".
const acpPatience = 9 * time.Second

// withAgent runs the session of one row.
func (h *harness) withAgent(a acpAgent, c acpCell, r *acpRow) error {
	s, err := h.open(a, r.version, r.belay, c.ask, c.steps)
	if err != nil {
		return err
	}
	defer s.end()
	x := &acpRun{h: h, s: s, r: r, keys: []string{keyWork}, innocents: map[string]int{}}
	if !c.end {
		if list := s.pids(slowKey); len(list) > 0 {
			x.innocents["the MCP server"] = list[len(list)-1] // some agents start it anew when the mode changes
		}
	}
	decoy, err := faketool.StartClient(faketool.Command("tick", acpTick), faketool.ClientOptions{Stderr: io.Discard})
	if err != nil {
		return err
	}
	defer func() {
		_ = decoy.Signal(os.Kill)
		_ = decoy.Close()
	}()
	x.innocents["a process beside it"] = decoy.Pid()
	err = c.run(x)
	for _, e := range s.model.Log() {
		if e.What == "refused" || e.What == "unknown" {
			h.logf("%s: model: %s %s", a.key, e.What, e.Detail)
		}
	}
	if err != nil {
		err = fmt.Errorf("%w; stderr: %s", err, s.stderr.last(600))
	}
	return errors.Join(err, h.keepRecord(x, c))
}

func (x *acpRun) stop() error { return x.s.stop() }

// begin sends the prompt and waits until the work shows itself.
func (x *acpRun) begin(text string) (err error) {
	if x.turn, err = x.s.prompt(text); err != nil {
		return err
	}
	for _, key := range x.keys {
		if _, err := x.s.witness.WaitCount(key, "tick", 3, acpWork); err != nil {
			return fmt.Errorf("%w; model: %v; the turn: %v", err, x.s.model.Log(), x.s.ends(x.turn))
		}
	}
	return nil
}

// stopOne stops the work and sees what happens.
func (x *acpRun) stopOne(stop func() error) error {
	if err := x.begin(wordWork); err != nil {
		return err
	}
	return x.stopNow(stop)
}

// stopAfterEarlier is the same, in the second turn of a session whose first one
// left a process behind: that is none of this turn's.
func (x *acpRun) stopAfterEarlier(stop func() error) error {
	first, err := x.s.prompt(wordEarly)
	if err != nil {
		return err
	}
	if _, err := x.s.ended(first, acpWork); err != nil {
		return fmt.Errorf("the turn before: %w; model: %v", err, x.s.model.Log())
	}
	if err := x.begin(wordWork); err != nil {
		return err
	}
	for _, pid := range x.s.pids(keyEarly) {
		if faketool.Alive(pid) { // some agents end it with the tool call
			x.innocents["the turn before's process"] = pid
		}
	}
	return x.stopNow(stop)
}

func (x *acpRun) stopNow(stop func() error) error {
	x.at = time.Now()
	if err := stop(); err != nil {
		return err
	}
	x.countWork()
	x.observe()
	return x.next()
}

// observe fills in what the work did, what the editor was told, and who was
// hurt.
func (x *acpRun) observe() {
	var last time.Time
	for _, key := range x.keys {
		if t := x.s.witness.LastTick(key); t.After(last) {
			last = t
		}
	}
	if last.After(x.at) {
		x.r.wentOn = last.Sub(x.at)
	}
	// What is no process of its own is judged by its last sign alone.
	x.r.stillAt = time.Since(last) < 4*slowBeat && (len(x.r.left) > 0 || slices.Contains(x.keys, slowKey))
	x.told(acpPatience - time.Since(x.at))
	for name, pid := range x.innocents {
		if !faketool.Alive(pid) {
			x.r.hurt = append(x.r.hurt, name)
		}
	}
	slices.Sort(x.r.hurt)
	if x.r.belay {
		x.r.receipt = x.h.turnReceipt(x.s.env)
	}
}

// told waits for the turn's end.
func (x *acpRun) told(limit time.Duration) {
	end, err := x.s.ended(x.turn, limit)
	if err != nil {
		x.r.told = err.Error()
		return
	}
	x.r.told, x.r.toldAfter = end.word, max(0, end.at.Sub(x.at))
}

// countWork counts the work's processes. Where some are left at last, they are
// counted once more three seconds after the editor's answer: force begins when
// the agent has had its time to answer.
func (x *acpRun) countWork() {
	x.count(acpSample[:3], x.ofWork)
	if len(x.r.left) == 0 {
		return
	}
	if end, err := x.s.ended(x.turn, acpPatience-time.Since(x.at)); err == nil {
		time.Sleep(time.Until(end.at.Add(acpGone)))
		x.r.left = x.ofWork()
		x.r.alive[len(x.r.alive)-1] = len(x.r.left)
	}
}

// count notes how many processes there are at each time after the Stop.
func (x *acpRun) count(times []time.Duration, alive func() []string) {
	for _, after := range times {
		time.Sleep(time.Until(x.at.Add(after)))
		list := alive()
		x.r.alive = append(x.r.alive, len(list))
		x.r.left = list
	}
}

// ofWork are the living processes of the work: those that write under its keys,
// and the shells that were given the command.
func (x *acpRun) ofWork() []string {
	var list []string
	for _, p := range marked(x.s.dir) {
		for _, key := range x.keys {
			if strings.Contains(p.command, "-key="+key) {
				list = append(list, p.command)
				break
			}
		}
	}
	return list
}

// ofSession are all living processes of the session.
func (x *acpRun) ofSession() []string {
	var list []string
	for _, p := range marked(x.s.dir) {
		list = append(list, p.command)
	}
	return list
}

// next sends one more prompt, which has to end as any prompt does.
func (x *acpRun) next() error {
	t, err := x.s.prompt("Are you still there?")
	if err != nil {
		return err
	}
	end, err := x.s.ended(t, acpNext)
	if x.r.next = end.word; err != nil {
		x.r.next = err.Error()
	}
	if x.r.next == "end_turn" {
		x.r.next = "ok"
	}
	x.r.ends = len(x.s.ends(x.turn))
	if x.s.version == 2 { // the next turn's end is not this one's
		x.r.ends--
	}
	return nil
}

// stopAsking stops a turn whose agent waits for the user's leave, with an editor
// that says nothing; three seconds later the user allows it all the same.
func (x *acpRun) stopAsking() error {
	var err error
	if x.turn, err = x.s.prompt(wordWork); err != nil {
		return err
	}
	x.s.Timeout = acpWork
	m, err := x.s.Notification("session/request_permission")
	if err != nil {
		return fmt.Errorf("%w; model: %v", err, x.s.model.Log())
	}
	x.at = time.Now()
	if err := x.s.stop(); err != nil {
		return err
	}
	x.count(acpSample[:3], x.ofWork)
	allow, err := allowing(m.Params)
	if err != nil {
		return err
	}
	if err := x.s.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"outcome":{"outcome":"selected","optionId":%s}}}`, m.ID, allow)); err != nil {
		return err
	}
	before := x.s.ends(x.turn)
	time.Sleep(1500 * time.Millisecond) // a tool that starts all the same has time to show itself
	x.observe()
	if len(before) == 0 && x.r.told != errNoEnd.Error() {
		x.r.note = "only after the late leave"
	}
	if n := x.s.witness.Count(keyWork, "start"); n > 0 {
		x.r.ran = true
	}
	return x.next()
}

// allowing is the raw id of the option that allows the call once.
func allowing(params json.RawMessage) (json.RawMessage, error) {
	var p struct {
		Options []struct {
			ID   json.RawMessage `json:"optionId"`
			Kind string          `json:"kind"`
		} `json:"options"`
	}
	if err := json.Unmarshal(params, &p); err != nil {
		return nil, err
	}
	for _, o := range p.Options {
		if o.Kind == "allow_once" {
			return o.ID, nil
		}
	}
	return nil, fmt.Errorf("nothing to allow in %s", params)
}

// stopStream stops a turn while the model is answering; the work is the model's
// stream.
func (x *acpRun) stopStream() error {
	x.r.noProcess = true
	var err error
	if x.turn, err = x.s.prompt(wordWork); err != nil {
		return err
	}
	event := func(what string) (time.Time, bool) {
		for _, e := range x.s.model.Log() {
			if e.What == what {
				return e.Time, true
			}
		}
		return time.Time{}, false
	}
	if _, err := x.s.within(acpWork, "the model was not asked", func() bool { _, ok := event("hang"); return ok }); err != nil {
		return err
	}
	time.Sleep(700 * time.Millisecond) // some of the stream is read
	x.at = time.Now()
	if err := x.s.stop(); err != nil {
		return err
	}
	x.countWork()
	x.observe()
	closed, ok := event("closed")
	x.r.stillAt, x.r.wentOn = !ok, 0
	if ok {
		x.r.wentOn = max(0, closed.Sub(x.at))
	}
	return x.next()
}

// stopTwice stops a turn in its second tool call; its first one left a process
// behind, which only the second Stop may take.
func (x *acpRun) stopTwice() error {
	if err := x.begin(wordWork); err != nil {
		return err
	}
	x.at = time.Now()
	if err := x.s.stop(); err != nil {
		return err
	}
	x.countWork()
	x.observe()
	alive := func() (n int) {
		for _, pid := range x.s.pids(keyEarly) {
			if faketool.Alive(pid) {
				n++
			}
		}
		return n
	}
	x.r.twice, x.r.early = true, alive()
	if err := x.s.stop(); err != nil {
		return err
	}
	time.Sleep(acpGone)
	x.r.late = alive() + len(x.ofWork())
	return x.next()
}

// crash kills the agent itself, behind Belay's back: the first of the processes
// that run its program.
func (x *acpRun) crash() error {
	for _, p := range marked(x.s.dir) {
		if strings.Contains(p.command, x.s.agent.program) && !strings.HasPrefix(p.command, x.h.belay) {
			q, err := os.FindProcess(p.pid)
			if err != nil {
				return err
			}
			return q.Kill()
		}
	}
	return errors.New("no process runs the agent's program")
}

// endBy ends the session in the middle of a turn; everything has to be gone in
// time.
func (x *acpRun) endBy(end func() error, limit time.Duration) error {
	x.keys = append(x.keys, keyWork+"/daemon")
	if err := x.begin(wordWork); err != nil {
		return err
	}
	x.at = time.Now()
	if err := end(); err != nil {
		return err
	}
	times := acpSample
	if limit < 3*time.Second {
		times = acpSample[:3]
	}
	x.count(times, x.ofSession)
	x.r.limit = limit
	x.told(0)
	x.r.next = "–"
	return nil
}
