package cli

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/belayhq/belay"
)

// cancelView prints the results of a Stop as they become final and, while some
// are not, who is being waited for.
type cancelView struct {
	env    *Env
	silent bool // the results are printed by somebody else
	out    style
	err    style
	before map[belay.RunID]belay.Info
	start  time.Time
	quit   chan struct{}
	ticker sync.WaitGroup

	mu      sync.Mutex // guards the fields below and both streams
	waiting map[belay.RunID]belay.Info
	printed map[belay.RunID]bool
	said    string // the progress line that stands on the terminal
}

// Progress is shown from half a second on; most Stops are over by then. On a
// terminal the line is kept up to date, elsewhere it is one line now and then.
const (
	progressFirst = 500 * time.Millisecond
	progressPace  = 500 * time.Millisecond
	progressSlow  = 5 * time.Second
)

func newCancelView(env *Env, silent bool, known []belay.Info) *cancelView {
	v := &cancelView{
		env: env, silent: silent, out: styleOf(env.Stdout, env.Getenv), err: styleOf(env.Stderr, env.Getenv), start: time.Now(),
		before: make(map[belay.RunID]belay.Info, len(known)), waiting: make(map[belay.RunID]belay.Info),
		printed: make(map[belay.RunID]bool), quit: make(chan struct{}),
	}
	for _, i := range known {
		v.before[i.ID] = i
	}
	v.ticker.Go(v.progress)
	return v
}

// update takes a result as it comes.
func (v *cancelView) update(r belay.CancelResult) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if r.Plan == nil && r.Receipt != nil && !r.Receipt.Final {
		v.waiting[r.Run.ID] = r.Run
		return
	}
	delete(v.waiting, r.Run.ID)
	v.printLocked(&r)
}

// finish prints what did not become final.
func (v *cancelView) finish(results []belay.CancelResult) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i := range results {
		v.printLocked(&results[i])
	}
}

func (v *cancelView) printLocked(r *belay.CancelResult) {
	if v.printed[r.Run.ID] || v.silent {
		return
	}
	v.printed[r.Run.ID] = true
	v.wipeLocked()
	w := v.env.Stdout
	before, known := v.before[r.Run.ID]
	switch {
	case r.Plan != nil:
		printPlan(w, v.out, r)
	case r.Receipt == nil:
		printOver(w, v.out, &r.Run)
	case known && before.Over() && !r.Affected:
		printReceipt(w, v.out, r.Receipt, false)
		field(w, v.out, "note", "it had been stopped before; this Stop changed nothing")
	default:
		printReceipt(w, v.out, r.Receipt, false)
	}
}

// printOver says of a run that it had ended by itself.
func printOver(w io.Writer, st style, r *belay.Info) {
	fmt.Fprintf(w, "%s  %s\n", r.ID, st.paint(bold, title(r.Name, r.Kind, r.Server)))
	text := "over already: " + string(r.Outcome)
	if !r.Ended.IsZero() {
		text += " " + ago(time.Now(), r.Ended)
	}
	if !r.Over() {
		text = "it could not be stopped: there is no receipt"
	}
	field(w, st, "state", text)
}

// progress keeps the line about who is being waited for until close.
func (v *cancelView) progress() {
	timer := time.NewTimer(progressFirst)
	defer timer.Stop()
	for {
		select {
		case <-v.quit:
			return
		case <-timer.C:
		}
		v.mu.Lock()
		v.sayLocked()
		said := len(v.waiting) > 0
		v.mu.Unlock()
		if v.err.terminal || !said { // a server may not have answered yet
			timer.Reset(progressPace)
		} else {
			timer.Reset(progressSlow)
		}
	}
}

func (v *cancelView) sayLocked() {
	v.wipeLocked()
	if len(v.waiting) == 0 {
		return
	}
	var list []belay.Info
	for _, i := range v.waiting {
		list = append(list, i)
	}
	slices.SortFunc(list, func(a, b belay.Info) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	text := waitingText(list, v.start)
	if !v.err.terminal {
		v.env.Warnf("%s", text)
		return
	}
	v.said = fit("belay: "+text, v.err.width-1)
	fmt.Fprint(v.env.Stderr, v.said)
}

func (v *cancelView) wipeLocked() {
	if v.said != "" {
		fmt.Fprint(v.env.Stderr, "\r\x1b[K")
		v.said = ""
	}
}

// close ends the progress line.
func (v *cancelView) close() {
	close(v.quit)
	v.ticker.Wait()
	v.mu.Lock()
	defer v.mu.Unlock()
	v.wipeLocked()
}
