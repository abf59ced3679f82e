package supervise

import (
	"fmt"
	"strings"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/proc"
)

// remoteUnknown begins the detail of evidence that proves only the local end.
const remoteUnknown = "local process dead, remote effect unknown"

// maxListed bounds the lists of evidence; what is beyond is said in the detail.
const maxListed = 50

// Processes turns what package proc saw into what a receipt shows: bounded,
// with redacted command lines and the reason for which one was spared.
func Processes(list []proc.Process) []belay.Process {
	if len(list) == 0 {
		return nil
	}
	out := make([]belay.Process, 0, min(len(list), maxListed))
	for _, p := range list[:min(len(list), maxListed)] {
		out = append(out, Process(p))
	}
	return out
}

// Process is one entry of [Processes].
func Process(p proc.Process) belay.Process {
	command := p.Command
	if command == "" {
		command = "[" + p.Comm + "]"
	}
	return belay.Process{PID: p.PID, Born: p.Born, Command: Redact(command), Why: p.Spare}
}

// Evidence says what a report proves. since is the Selection's OnlySince: with
// it, that the selected processes are gone proves nothing about their server.
// signs is what the tree showed before, see [Tree.Signs].
func Evidence(r proc.Report, sel proc.Selection, signs Signs) belay.Evidence {
	e := belay.Evidence{
		At:        time.Now(),
		Scope:     belay.ScopeLocalTree,
		Survivors: Processes(r.Survivors),
		Spared:    Processes(r.Spared),
		Remote:    signs.Remote,
	}
	switch {
	case !r.Gone:
		e.Kind = belay.SeenSurvivors
		e.Detail = fmt.Sprintf("%d still alive", len(r.Survivors)) + did(r)
	case sel.OnlySince != 0:
		e.Kind, e.Scope = belay.SeenSurvivors, ""
		e.Detail = "no process that was started since the call is left; the server itself runs on" + did(r)
	default:
		e.Kind = belay.SeenProcessGone
		e.Detail = "no process is left" + did(r)
		if len(r.Spared) > 0 {
			e.Detail = "no process but the spared is left" + did(r)
		}
		if why := signs.elsewhere(); why != "" {
			e.Scope = belay.ScopeRemote
			e.Detail = remoteUnknown + ": " + why
		}
	}
	return e
}

// did says by which means a report's end was reached.
func did(r proc.Report) string {
	var parts []string
	killed := map[proc.ID]bool{}
	for _, p := range r.Killed {
		killed[p.ID()] = true
	}
	asked := 0
	for _, p := range r.Signalled {
		if !killed[p.ID()] {
			asked++
		}
	}
	if asked > 0 {
		parts = append(parts, fmt.Sprintf("%d asked to end", asked))
	}
	if n := len(r.Killed); n > 0 {
		parts = append(parts, fmt.Sprintf("%d killed (%s)", n, r.Means))
	}
	if r.TakenOver {
		parts = append(parts, "the guardian was lost and Belay took over")
	}
	if len(parts) == 0 {
		return ""
	}
	return ": " + strings.Join(parts, ", ")
}
