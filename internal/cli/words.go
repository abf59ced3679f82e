package cli

import (
	"fmt"
	"slices"
	"time"

	"github.com/belayhq/belay"
)

// stateOf is outcome and work in one word for people.
func stateOf(i *belay.Info) (string, tone) {
	switch i.Work {
	case belay.Waiting:
		return "waiting", faint
	case belay.Stopping:
		return "stopping", warn
	case belay.Unconfirmed:
		if i.Held != "" {
			return "held", warn
		}
		return "unconfirmed", bad
	case belay.Running:
		if i.Outcome.Terminal() {
			return "running on", warn // its caller has an answer, the work goes on
		}
		return "running", good
	}
	switch i.Outcome {
	case belay.Cancelled:
		return "stopped", plain
	case belay.Lost:
		return "lost", bad
	case belay.Failed:
		return "failed", bad
	case belay.Pending:
		return "answering", plain // the work is over, the answer on its way
	}
	return string(i.Outcome), faint
}

// stoppedBy says who or what pressed Stop.
func stoppedBy(c *belay.Cancellation) string {
	if c == nil {
		return ""
	}
	text := string(c.Cause)
	switch c.Cause {
	case belay.CauseUser, belay.CauseOperator:
		if c.By != "" {
			text = c.By
		}
	case belay.CauseParent:
		text = "the run above"
		if c.By != "" {
			text += " (" + c.By + ")"
		}
	case belay.CauseDeadline:
		text = "its deadline"
	case belay.CauseDisconnect:
		text = "its caller's leaving"
	case belay.CauseShutdown:
		text = "Belay's own end"
	case belay.CausePeer:
		text = "the other end"
	}
	if c.Via != "" && (c.Cause == belay.CauseUser || c.Cause == belay.CauseOperator) {
		text += " via " + c.Via
	}
	if c.Reason != "" {
		text += ": " + c.Reason
	}
	return oneLine(text)
}

// verdictWords says what a receipt's verdict means, no more than it proves.
func verdictWords(r *belay.Receipt) (string, tone) {
	switch r.Verdict {
	case belay.Confirmed:
		switch {
		case saw(r, belay.SeenNotStarted):
			return "confirmed: it never began", good
		case r.Scope == belay.ScopeLocalTree:
			return "confirmed: every process of it was seen dead", good
		case r.Scope == belay.ScopeHandler:
			return "confirmed: its handler was seen to end", good
		case r.Scope == belay.ScopeHook:
			return "confirmed: the operator's own check finds it gone", good
		}
		return "confirmed", good
	case belay.Acknowledged:
		who := "the tool"
		if r.Kind == belay.KindTurn || r.Kind == belay.KindScript {
			who = "its runtime"
		}
		if !r.OK() {
			return "acknowledged: " + who + " said that it is over, but something of it goes on", warn
		}
		return "acknowledged: " + who + " said that it is over", good
	case belay.Signalled:
		if r.Scope == belay.ScopeRemote {
			return "signalled: the local process is dead, the effect elsewhere is not known", warn
		}
		return "signalled: it was told; nothing proves that it stopped", warn
	}
	return "unreachable: it could not be told", bad
}

// saw reports whether there was evidence of a kind.
func saw(r *belay.Receipt, kind belay.EvidenceKind) bool {
	return slices.ContainsFunc(r.Steps, func(s belay.Step) bool { return s.Evidence != nil && s.Evidence.Kind == kind })
}

// took is how long a Stop needed.
func took(r *belay.Receipt) string {
	if d := r.Took(); d > 0 {
		return fmt.Sprintf(", after %.3fs", d.Round(time.Millisecond).Seconds())
	}
	return ""
}

// title is what a run is: its name, what sort it is and who does it.
func title(name string, kind belay.Kind, server string) string {
	text := name + " (" + string(kind)
	if server != "" {
		text += " of " + server
	}
	return oneLine(text + ")")
}

// heldText says why no force was used. What would use it, if anything can, is
// part of that: only whoever holds the force back knows.
func heldText(why string) string { return oneLine("held: " + why) }
