package main

import (
	"fmt"
	"strings"
	"time"
)

// What a row under Belay may take.
const (
	acpSettle = 5 * time.Second // Belay's settle deadline
	acpExtra  = time.Second     // on top of it, and of the agent's own answer
	acpGone   = 3 * time.Second // the stopped tool call, after the editor's answer
)

// acpRow is one session with a real agent.
type acpRow struct {
	agent, cell string
	version     int
	belay       bool
	end         bool // the session was ended, not the turn
	answered    bool // all the same the editor has to get an answer, at once

	told      string // the end of the turn as the editor was told it
	toldAfter time.Duration
	ends      int   // how often
	alive     []int // processes at the times of acpSample
	noProcess bool  // the work is none of the agent's: an MCP server's, the model's
	left      []string
	limit     time.Duration // when nothing may be left; 0 = acpGone
	wentOn    time.Duration // from the Stop to the work's last sign
	stillAt   bool          // it went on when the watching ended
	ran       bool          // a command that waited for leave ran after the Stop
	hurt      []string      // innocents that died
	twice     bool          // a second Stop came after the sampling
	early     int           // processes of an earlier tool call of the turn, before it
	late      int           // processes of the turn, after it
	receipt   string        // the verdict on the turn; "" = there is none
	next      string
	note      string
	problem   string

	bare *acpRow // the same session without Belay, run before; nil = not run
}

// judge decides whether a row under Belay fails the run.
func (r *acpRow) judge() {
	if !r.belay || r.problem != "" {
		return
	}
	if r.end {
		if r.answered && (r.told == errNoEnd.Error() || r.toldAfter > acpExtra) {
			r.problem = "the editor was told: " + r.told
			return
		}
		for i, n := range r.alive {
			if acpSample[i] >= r.limit && n > 0 {
				r.problem = fmt.Sprintf("left alive after %v: %s", acpSample[i], strings.Join(r.left, "; "))
				return
			}
		}
		return
	}
	switch last := r.alive[len(r.alive)-1]; {
	case r.told != "cancelled":
		r.problem = "the editor was told: " + r.told
	case r.toldAfter > acpSettle+acpExtra:
		r.problem = fmt.Sprintf("the editor waited for %v", round(r.toldAfter))
	case r.slow():
		r.problem = fmt.Sprintf("the editor waited for %v, without Belay for %v", round(r.toldAfter), round(r.bare.toldAfter))
	case r.ends != 1:
		r.problem = fmt.Sprintf("the editor was told %d times", r.ends)
	case r.ran:
		r.problem = "the command ran after the Stop"
	case last > 0 && strings.HasPrefix(r.receipt, "confirmed"):
		r.problem = "Belay says confirmed, and these live: " + strings.Join(r.left, "; ")
	case last > 0:
		r.problem = "left alive: " + strings.Join(r.left, "; ")
	case r.stillAt || r.wentOn > r.toldAfter+acpGone:
		r.problem = "the work went on"
	case r.receipt == "":
		r.problem = "no receipt"
	case len(r.hurt) > 0:
		r.problem = "hurt: " + strings.Join(r.hurt, ", ")
	case r.twice && r.early == 0 && r.bare != nil && r.bare.early > 0:
		r.problem = "the first Stop took the process of a tool call that had ended"
	case r.late > 0:
		r.problem = fmt.Sprintf("alive after the second Stop: %d", r.late)
	case r.next != "ok":
		r.problem = "next prompt: " + r.next
	}
}

// slow: the agent's own answer came much earlier without Belay. The agent is the
// same, but two runs are never equal on a busy machine: some time is allowed.
func (r *acpRow) slow() bool {
	return r.bare != nil && r.bare.told == "cancelled" && r.toldAfter > r.bare.toldAfter+acpExtra+margin
}

// failed: what an agent does without Belay is a fact about it; even that it does
// not come up.
func (r *acpRow) failed() bool { return r.belay && r.problem != "" }

func round(d time.Duration) time.Duration { return d.Round(10 * time.Millisecond) }

func (r *acpRow) way() string {
	if r.belay {
		return "Belay"
	}
	return "bare"
}

func (r *acpRow) cells() []string {
	told := r.told
	if !r.belay && r.problem != "" {
		told = "not measured"
	}
	if told == r.told && told != errNoEnd.Error() && told != "" {
		told = fmt.Sprintf("%s, %v", r.told, round(r.toldAfter))
	}
	if r.note != "" {
		told += " (" + r.note + ")"
	}
	if r.twice {
		told += fmt.Sprintf(" (earlier call: %d, then %d)", r.early, r.late)
	}
	var alive []string
	for _, n := range r.alive {
		alive = append(alive, fmt.Sprint(n))
	}
	if r.noProcess {
		alive = []string{"–"}
	}
	work := fmt.Sprintf("%d ms", r.wentOn.Milliseconds())
	switch {
	case r.end:
		work = "–"
	case r.ran:
		work = "ran after it"
	case r.stillAt:
		work = "still at it"
	}
	hurt := "none"
	if len(r.hurt) > 0 {
		hurt = strings.Join(r.hurt, ", ")
	}
	receipt := r.receipt
	if !r.belay || r.end {
		receipt = "–"
	}
	return []string{
		r.agent, fmt.Sprintf("v%d", r.version), r.cell, r.way(), told, strings.Join(alive, " "), work, hurt, receipt, r.next,
		cut(strings.Join(strings.Fields(r.problem), " "), 400),
	}
}

func acpTable() table {
	return table{
		title: "Agents (ACP)",
		method: "A raw client plays the editor, a server on loopback the model. Under Belay: `belay acp -- AGENT`, with its defaults. \"alive\" counts\n" +
			"processes 0.2, 1 and 3 s after the Stop (the last one: after the editor's answer), those of the stopped tool call; where the session\n" +
			"ends, all of its tree, after 5 s too.\n" +
			"\"hurt\" are the session's MCP server, a process that an earlier turn left behind, and one beside the agent: no Stop may touch\n" +
			"them. In the row of the pending permission the editor is silent, and the user allows the call 3 s after the Stop.",
		columns: []string{"agent", "ACP", "stopped by", "way", "editor was told", "alive", "work went on", "hurt", "receipt", "next prompt", "problem"},
		told:    4,
	}
}
