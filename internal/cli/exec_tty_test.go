//go:build linux

package cli

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay/internal/need"
)

// screen is a shell in a real terminal, driven as a person does it.
type screen struct {
	*place
	socket string
}

// newScreen starts a terminal with an interactive shell with job control.
func newScreen(t *testing.T) *screen {
	t.Helper()
	need.Commands(t, "tmux", "bash")
	s := &screen{place: newPlace(t)}
	s.socket = filepath.Join(s.dir, "tmux")
	t.Cleanup(func() { _ = s.tmux("kill-server").Run() })
	s.do("-f", "/dev/null", "new-session", "-d", "-x", "150", "-y", "60", "bash", "--norc", "--noprofile", "-i")
	s.line("PS1='ready> '; clear")
	s.shows("ready>")
	return s
}

func (s *screen) tmux(args ...string) *exec.Cmd {
	cmd := exec.Command("tmux", append([]string{"-S", s.socket}, args...)...)
	cmd.Dir = s.dir
	cmd.Env = append(s.environ(), "TERM=screen", "HISTFILE=")
	return cmd
}

func (s *screen) do(args ...string) string {
	s.t.Helper()
	out, err := s.tmux(args...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("tmux %q: %v\n%s", args, err, out)
	}
	return string(out)
}

// line types a line and Enter; press presses keys such as C-c.
func (s *screen) line(text string) {
	s.t.Helper()
	s.do("send-keys", "-l", text)
	s.press("Enter")
}

func (s *screen) press(keys ...string) {
	s.t.Helper()
	s.do(append([]string{"send-keys"}, keys...)...)
}

func (s *screen) text() string { return s.do("capture-pane", "-p", "-S", "-200") }

// glance is the pause between two looks at a screen, each of which is a program of
// its own.
const glance = 40 * time.Millisecond

// shows waits until the screen holds the text and returns the screen.
func (s *screen) shows(want string) string {
	s.t.Helper()
	var text string
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(glance) {
		if text = strings.TrimRight(s.text(), "\n"); strings.Contains(text, want) {
			return text
		}
		if time.Now().After(end) {
			s.t.Fatalf("the screen never showed %q; it shows\n%s", want, text)
		}
	}
}

// code asks the shell for the exit code of what it ran last.
func (s *screen) code(want int) string {
	s.t.Helper()
	s.line("echo code=$?.")
	return s.shows("code=" + strconv.Itoa(want) + ".")
}

// TestTerminalKept: in a terminal the command keeps it: it is one, reads from
// it, and the shell gets it back.
func TestTerminalKept(t *testing.T) {
	t.Parallel()
	s := newScreen(t)
	s.line(`belay exec -- bash -c 'test -t 0 && test -t 1 && read -p "name? " x && echo "got <$x>"'`)
	s.shows("\nname?")
	s.line("me")
	s.shows("got <me>")
	s.code(0)
}

// TestTerminalCtrlC: Ctrl-C reaches the tool and is the user's Stop.
func TestTerminalCtrlC(t *testing.T) {
	t.Parallel()
	s := newScreen(t)
	s.line(`belay exec -- bash -c 'trap "echo INT >> told; exit 1" INT; ` + ticker + `'`)
	pids := s.waitPids(1)
	s.press("C-c")
	text := s.shows("evidence ")
	s.dead(pids, time.Now())
	if !strings.Contains(text, "confirmed: every process of it was seen dead") || !strings.Contains(text, "via terminal: Ctrl-C") {
		t.Errorf("the screen shows\n%s", text)
	}
	s.code(ExitStopped)
	// Exactly one: a second SIGINT means "do not clean up" to many tools.
	if told := s.read("told"); told != "INT\n" {
		t.Errorf("the tool was told %q", told)
	}
}

// TestTerminalAgain: Ctrl-C on a deaf command, and again: each takes the next
// step at once; then the terminal is the shell's, and works.
func TestTerminalAgain(t *testing.T) {
	t.Parallel()
	s := newScreen(t)
	s.line(`belay exec --grace 1m --kill-after 1m -- bash -c 'trap "echo INT >> told" INT; trap "echo TERM >> told" TERM; stty -echo; while :; do echo $$ >> witness; sleep 0.02; done'`)
	pids := s.waitPids(1)
	s.press("C-c")
	s.until("SIGINT", func() bool { return s.read("told") == "INT\n" })
	// The terminal has told the tool itself: Belay may not have seen the first press
	// yet, and two signals that wait are one.
	s.until("the Stop", func() bool {
		cmd, _ := s.belayCmd("ps")
		out, err := cmd.Output()
		return err == nil && strings.Contains(string(out), "stopping")
	})
	s.press("C-c") // reaches the tool as well
	s.until("SIGTERM", func() bool { return strings.Contains(s.read("told"), "TERM\n") })
	if len(living(pids)) != 1 {
		t.Error("it was killed before the third press")
	}
	s.press("C-c")
	text := s.shows("evidence ")
	s.dead(pids, time.Now())
	if strings.Count(text, "escalated") != 2 || !strings.Contains(text, "killed (") {
		t.Errorf("the screen shows\n%s", text)
	}
	// The killed command had switched the echo off; what is typed is seen again.
	s.line("echo $((6*7)) # typed")
	text = s.shows("\n42")
	if !strings.Contains(text, "echo $((6*7)) # typed") {
		t.Errorf("the terminal's modes were not restored\n%s", text)
	}
}

// TestTerminalJobControl: Ctrl-Z stops the job as a whole, fg goes on with it; a
// job in the background that wants to read waits as any job does (SIGTTIN), and
// nothing hangs.
func TestTerminalJobControl(t *testing.T) {
	t.Parallel()
	s := newScreen(t)
	s.line(`belay exec -- bash -c '` + ticker + `'`)
	pids := s.waitPids(1)
	s.press("C-z")
	s.shows("Stopped")
	s.until("the tool to be stopped", func() bool {
		before := s.read("witness")
		time.Sleep(100 * time.Millisecond)
		return s.read("witness") == before
	})
	s.line("fg")
	before := s.read("witness")
	s.until("the tool to go on", func() bool { return s.read("witness") != before })
	s.press("C-c")
	s.shows("evidence ")
	s.dead(pids, time.Now())
	s.code(ExitStopped)

	s.line(`clear; belay exec -- bash -c 'read x; echo "got <$x>"' &`)
	s.shows("[1]")
	s.line("") // a shell tells of its jobs at the next prompt
	s.until("the job to wait for the terminal", func() bool {
		s.line("jobs")
		return strings.Contains(s.text(), "Stopped")
	})
	s.line("fg")
	s.until("the job to have the terminal", func() bool {
		return strings.TrimSpace(s.do("display-message", "-p", "#{pane_current_command}")) == "belay"
	})
	s.line("late")
	s.shows("got <late>")
	s.code(0)
}

// TestTerminalNested: one Ctrl-C on a Belay in a Belay is one press: nobody is
// escalated.
func TestTerminalNested(t *testing.T) {
	t.Parallel()
	s := newScreen(t)
	s.line(`belay exec --grace 5s -- belay exec --grace 5s -- bash -c 'trap "echo INT >> told; sleep 0.3; echo clean >> told; exit 1" INT; ` + ticker + `'`)
	pids := s.waitPids(1)
	s.press("C-c")
	s.shows("evidence ")
	s.until("the end", func() bool { return len(living(pids)) == 0 })
	s.code(ExitStopped)
	text := s.text()
	if strings.Contains(text, "escalated") || s.read("told") != "INT\nclean\n" {
		t.Errorf("one press counted twice, or the tool was told twice: %q\n%s", s.read("told"), text)
	}
}

// TestTerminalClosed: when the terminal goes away the command is stopped.
func TestTerminalClosed(t *testing.T) {
	t.Parallel()
	s := newScreen(t)
	s.line(`belay exec -- bash -c 'trap "" HUP TERM; ` + ticker + `'`)
	pids := s.waitPids(1)
	gone := time.Now()
	s.do("kill-server")
	s.dead(pids, gone.Add(2*time.Second)) // tmux needs some of it
}
