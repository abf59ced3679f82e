//go:build linux

package cli

import (
	"regexp"
	"strings"
	"testing"
)

var runID = regexp.MustCompile(`run_[0-9a-z]{12,26}`)

// In a terminal, ps --watch redraws when something changes, lines fit the
// window, ids are shortened to what other commands take, and Ctrl-C ends it.
func TestTerminalWatch(t *testing.T) {
	t.Parallel()
	s := newScreen(t)
	s.line("belay exec --name tick --label a=b -- sh -c 'echo up; sleep 1000' </dev/null & belay ps --watch")
	text := s.shows("process  tick")
	if !strings.Contains(text, "RUN ") || !strings.Contains(text, "running") {
		t.Errorf("the screen shows\n%s", text)
	}
	id := runID.FindString(text)
	if len(id) >= 30 {
		t.Errorf("%s is not shortened on a terminal", id)
	}
	cmd, stderr := s.belayCmd("cancel", id, "--reason", "seen")
	if out, err := cmd.Output(); err != nil {
		t.Errorf("cancel %s: %v\n%s%s", id, err, out, stderr)
	}
	s.shows("nothing is running")
	s.press("C-c")
	s.code(ExitStopped)
}

// In a terminal, who is waited for stands on one line, which goes away; Ctrl-C
// ends the waiting, not the Stop.
func TestTerminalCancelProgress(t *testing.T) {
	t.Parallel()
	s := newScreen(t)
	s.line("belay exec --name deaf --grace 1h -- sh -c 'trap \"\" INT TERM; while :; do sleep 0.1; done' </dev/null & clear")
	s.line("until belay ps 2>/dev/null | grep deaf; do sleep 0.1; done; belay ps")
	id := runID.FindString(s.shows("process  deaf"))
	s.line("clear; belay cancel " + id)
	s.shows("waiting for proof from 1 run: deaf")
	s.press("C-c")
	text := s.shows("the Stop goes on")
	if strings.Contains(text, "waiting for proof") {
		t.Errorf("the progress line is still there:\n%s", text)
	}
	s.code(ExitStopped)
	s.line("clear; belay cancel --now " + id)
	s.shows("every process of it was seen dead")
	s.code(ExitDone)
}
