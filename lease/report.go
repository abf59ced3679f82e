package lease

import (
	"fmt"
	"strings"
	"time"

	"github.com/belayhq/belay"
)

// Report is what a runtime says of the end of its run.
type Report struct {
	// Outcome is completed, failed, cancelled or declined. After a Stop it is
	// what the runtime would have answered; the outcome that callers were told
	// stays.
	Outcome belay.Outcome

	// Evidence is what the runtime saw; nil: what the outcome says. Its Scope,
	// At and Open are not looked at. Without a Stop it proves nothing that
	// anybody asked for and is dropped, but for its saying that work goes on.
	Evidence *belay.Evidence

	Partial string // what it had when it was stopped, for the receipt
}

// Result is what became of a [Report].
type Result struct {
	Run     belay.Info
	Receipt *belay.Receipt // nil: the run was not stopped
	Late    bool           // an answer came after a Stop, or a report after the lease had run out
}

// Report takes the runtime's word. It ends the run and the lease, unless the
// evidence says that work goes on: then more reports may follow, and the lease
// must be kept alive. A run that was reported on is [belay.ErrEnded]; a lease
// that ran out can be reported on once, as long as it is remembered. A report
// that says nothing is [belay.ErrBadRequest], somebody else's run
// [belay.ErrNotFound].
func (r *Registry) Report(owner string, id belay.RunID, rep Report) (Result, error) {
	switch rep.Outcome {
	case belay.Completed, belay.Failed, belay.Cancelled, belay.Declined:
	default:
		return Result{}, fmt.Errorf("%w: outcome %.32q (want completed, failed, cancelled or declined)", belay.ErrBadRequest, rep.Outcome)
	}
	seen, err := rep.evidence()
	if err != nil {
		return Result{}, err
	}
	l, err := r.find(owner, id)
	if err != nil {
		return Result{}, err
	}
	over := !goesOn(seen)
	late, err := r.take(l, over)
	if err != nil {
		return Result{}, err
	}
	if rep.Partial != "" {
		l.run.Partial(rep.Partial)
	}
	switch {
	case l.run.Cancellation() != nil && (rep.Outcome == belay.Cancelled || !over):
	case over:
		l.run.Finish(rep.Outcome)
	case !l.run.Info().Outcome.Terminal():
		l.run.Settle(rep.Outcome)
	}
	stopped := l.run.Cancellation() != nil // perhaps only just: Observe is for that, too
	l.run.Observe(seen)
	return Result{
		Run: l.run.Info(), Receipt: l.run.Receipt(),
		Late: late || stopped && rep.Outcome != belay.Cancelled,
	}, nil
}

// take notes that a report has come; lost says that the lease had run out.
func (r *Registry) take(l *lease, over bool) (lost bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.answer {
		return false, fmt.Errorf("%w: it was reported on before", belay.ErrEnded)
	}
	if over {
		l.answer = true
		r.endLocked(l, time.Now())
	}
	return l.lost, nil
}

// goesOn reports whether the evidence says that work is alive.
func goesOn(e belay.Evidence) bool {
	return e.Kind == belay.SeenStillActive || e.Kind == belay.SeenSurvivors || len(e.Survivors) > 0
}

// evidence is the runtime's word as evidence: remote, and of a kind that proves
// no more than that somebody else said so (DESIGN 11, 4).
func (rep *Report) evidence() (belay.Evidence, error) {
	if rep.Evidence == nil {
		e := belay.Evidence{Kind: belay.SeenErrorReply, Scope: belay.ScopeRemote, Detail: "the runtime reports the outcome " + string(rep.Outcome)}
		switch rep.Outcome {
		case belay.Cancelled:
			e.Kind = belay.SeenTaskCancelled
		case belay.Completed:
			e.Kind = belay.SeenResult
		}
		return e, nil
	}
	e := belay.Evidence{
		Scope: belay.ScopeRemote, Survivors: cleaned(rep.Evidence.Survivors), Remote: texts(rep.Evidence.Remote),
		Detail: strings.TrimSuffix(fmt.Sprintf("the runtime reports %s: %s", rep.Evidence.Kind, rep.Evidence.Detail), ": "),
	}
	switch k := rep.Evidence.Kind; k {
	case belay.SeenResult, belay.SeenErrorReply, belay.SeenStillActive, belay.SeenSurvivors:
		e.Kind = k
	case belay.SeenNotStarted, belay.SeenHandlerReturned, belay.SeenInterrupted, belay.SeenProcessGone, belay.SeenTaskCancelled:
		e.Kind = belay.SeenTaskCancelled
	default:
		return e, fmt.Errorf("%w: evidence of kind %.32q", belay.ErrBadRequest, k)
	}
	return e, nil
}

// maxListed bounds what a report may name.
const maxListed = 256

// cleaned bounds what came from another machine.
func cleaned(list []belay.Process) []belay.Process {
	var out []belay.Process
	for _, p := range list[:min(len(list), maxListed)] {
		p.Command, p.Why = belay.CleanReason(p.Command), belay.CleanReason(p.Why)
		out = append(out, p)
	}
	return out
}

func texts(list []string) []string {
	var out []string
	for _, s := range list[:min(len(list), maxListed)] {
		out = append(out, belay.CleanReason(s))
	}
	return out
}
