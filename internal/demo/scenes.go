package demo

import (
	"fmt"
	"time"

	"github.com/belayhq/belay/internal/faketool"
)

// Scene is one way in which a Stop goes wrong.
type Scene struct {
	Name, About string
	flags       []string
	play        func(l *lab) (Side, error)
	missing     func() string // why it cannot be played here; nil: it always can
}

// Scenes lists what the demo plays, in order.
func Scenes() []Scene {
	return []Scene{
		{Name: "listens", About: "a tool that looks at the cancel", play: playListens},
		{Name: "deaf", About: "a tool that does not", play: playDeaf},
		{Name: "forks", About: "a deaf tool whose child calls setsid", play: playForks},
		{Name: "neighbour", About: "two calls, one is stopped", play: playNeighbour},
		{Name: "reused id", About: "an id is used again right after its cancel", play: playReused},
		{Name: "family", About: "a run with three children below it", play: playFamily},
		{Name: "reference server", About: "its trigger-long-running-operation", play: playReference, missing: missingReference},
	}
}

// stopOne connects, starts one job, cancels it and reports what became of it.
func stopOne(l *lab, server []string, more string, answers bool) (side Side, err error) {
	if err = l.connect(server); err != nil {
		return side, err
	}
	if err = l.work("1", "job", more); err != nil {
		return side, err
	}
	return l.stop("1", "job", answers)
}

// stop presses Stop on a job as its own client.
func (l *lab) stop(id, key string, answers bool) (side Side, err error) {
	pressed := time.Now()
	if err = l.client.Cancel(id, "the person pressed Stop"); err != nil {
		return side, err
	}
	side.WentOn, side.Still = l.watch(key, pressed)
	if l.under {
		receipts, err := l.receipts(isCall)
		side.Left = l.left(key)
		side.Told = l.answer(id)
		side.judge(receipts, err, answers)
		return side, nil
	}
	side.Left, side.Told = l.left(key), l.answer(id)
	return side, nil
}

// left counts the helpers that a job left alive, and the server itself only
// while it goes on with the job.
func (l *lab) left(key string) (n int) {
	for _, pid := range l.witness.Pids(key + "/*") {
		if faketool.Alive(pid) {
			n++
		}
	}
	return n
}

// next makes a call after the Stop and says how it went.
func (l *lab) next(side *Side) {
	l.client.Call(`"next"`, "echo", `{"text":"hello"}`, "")
	answer, err := l.client.Expect(`"next"`)
	switch {
	case err != nil:
		side.Others, side.Harmed = "the next call got no answer", true
	case answer.Error != nil:
		side.Others, side.Harmed = "the next call failed: "+answer.Error.Message, true
	default:
		side.Others = "the next call works"
	}
	if side.Harmed {
		side.OK = false
	}
}

func playListens(l *lab) (Side, error) {
	side, err := stopOne(l, l.fake("-reply", "result"), "", true)
	if err == nil {
		l.next(&side)
	}
	return side, err
}

func playDeaf(l *lab) (Side, error) {
	side, err := stopOne(l, l.fake("-deaf", "-deaf-term"), "", false)
	if err == nil && l.under {
		l.next(&side)
	}
	return side, err
}

func playForks(l *lab) (Side, error) {
	side, err := stopOne(l, l.fake("-deaf"), `,"fork":["setsid"]`, false)
	if err == nil && l.under {
		l.next(&side)
	}
	return side, err
}

// playNeighbour stops one of two calls; the other must run to its end.
func playNeighbour(l *lab) (side Side, err error) {
	if err = l.connect(l.fake("-deaf")); err != nil {
		return side, err
	}
	if err = l.work("1", "job", ""); err != nil {
		return side, err
	}
	if err = l.client.Call("2", "tick", `{"key":"other","n":50,"ms":20}`, ""); err != nil {
		return side, err
	}
	if _, err = l.witness.WaitFor("other", "tick", patience); err != nil {
		return side, err
	}
	side, err = l.stop("1", "job", false)
	if err != nil {
		return side, err
	}
	answer, err := l.client.Expect("2")
	_, done := l.witness.Last("other", "done")
	if err != nil || answer.Error != nil || !done {
		side.Others, side.Harmed, side.OK = "the other call was harmed", true, false
		return side, nil //nolint:nilerr // that is the result
	}
	side.Others = "the other call finished"
	return side, nil
}

// playReused cancels a call of a server that answers late, and uses its id for
// another call at once.
func playReused(l *lab) (side Side, err error) {
	if err = l.connect(l.fake("-reply", "result", "-late", "250ms")); err != nil {
		return side, err
	}
	if err = l.work("7", "job", ""); err != nil {
		return side, err
	}
	pressed := time.Now()
	if err = l.client.Cancel("7", "the person pressed Stop"); err != nil {
		return side, err
	}
	if err = l.client.Call("7", "tick", `{"key":"second","n":40,"ms":20}`, ""); err != nil {
		return side, err
	}
	side.WentOn, side.Still = l.watch("job", pressed)
	answer, err := l.client.Expect("7")
	if err != nil {
		return side, err
	}
	if _, err = l.witness.WaitFor("second", "done", patience); err != nil {
		side.Others, side.Harmed = "the second call never finished", true
	}
	want := "second: 40 ticks"
	switch {
	case side.Harmed:
	case answer.Text() != want:
		side.Others, side.Harmed = "the second call got the first one's answer", true
	default:
		side.Others = "the second call got its own answer"
	}
	side.Left = l.left("job")
	side.Told = "nothing"
	if l.under {
		receipts, err := l.receipts(isCall)
		side.judge(receipts, err, true)
	}
	return side, nil
}

// playFamily stops a run that has three others below it, each in a session of
// its own.
func playFamily(l *lab) (side Side, err error) {
	script, keys := "", []string{"child1", "child2", "child3"}
	for _, key := range keys {
		tick := fmt.Sprintf("%q %s tick -life 60s -witness %q -key %s -deaf-term", l.self, faketool.Marker, l.witness.Path, key)
		if l.under {
			script += fmt.Sprintf("%q exec --grace %s --name %s -- %s & ", l.self, grace, key, tick)
		} else {
			script += "setsid " + tick + " & "
		}
	}
	parent, err := l.startParent(script + "wait")
	if err != nil {
		return side, err
	}
	defer parent.end()
	for _, key := range keys {
		if _, err = l.witness.WaitFor(key, "tick", patience); err != nil {
			return side, err
		}
	}
	pressed := time.Now()
	receipts, stopErr := parent.stop()
	for _, key := range keys {
		wentOn, still := l.watch(key, pressed)
		side.WentOn, side.Still = max(side.WentOn, wentOn), side.Still || still
		side.Left += l.alive(key)
	}
	side.Told = "it ended"
	if l.under {
		side.judge(receipts, stopErr, false)
		if len(side.Verdict) < 4 {
			side.OK = false
			side.Error = fmt.Sprintf("%d receipts, want one for the parent and one for each child", len(side.Verdict))
		}
		return side, nil
	}
	return side, stopErr
}
