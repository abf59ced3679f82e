//go:build linux

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// askingTool writes a tool into the folder of a screen that asks, with a preview, and
// says what it was told; witness is a report that only an execution makes.
func askingTool(t *testing.T, s *screen) {
	t.Helper()
	dir := filepath.Join(s.dir, "asking")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"assistant_tool.json": `{"id": "asking", "displayName": "Ask me", "description": "d", "parameters": [], "requireApproval": true}`,
		"assistant_tool.ts": `
			AssistantTool.registerApprovalRequest(async () => ({
				message: "Really?\nThink twice.", primaryButtonLabel: "Do it", secondaryButtonLabel: "Leave it",
				previewButton: { label: "Show", action: () => AssistantTool.report("this would happen") } }))
			AssistantTool.registerExecuteToolWithApproval(async (_, user) => {
				AssistantTool.report("executed")
				return { success: user.primaryConfirmed, message: "told " + JSON.stringify(user) }
			})`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAT66_Terminal: what a tool asks is asked on the terminal of belay tool run, and
// the answers have their flags (AT-61).
func TestAT66_Terminal(t *testing.T) {
	t.Parallel()
	s := newScreen(t)
	askingTool(t, s)
	for _, c := range []struct {
		name  string
		typed []string
		code  int
		shows []string
	}{
		{"primary", []string{"1"}, ExitDone, []string{`told {"primaryConfirmed":true,"secondaryConfirmed":false}`}},
		{"secondary, by its label", []string{"leave IT"}, ExitFailed, []string{`told {"primaryConfirmed":false,"secondaryConfirmed":true}`, "it was not approved"}},
		{"closed", []string{""}, ExitFailed, []string{`told {"primaryConfirmed":false,"secondaryConfirmed":false}`}},
		{"a mistake, a look, and yes", []string{"9", "3", "1"}, ExitDone, []string{"is none of the answers", "this would happen", `told {"primaryConfirmed":true`}},
	} {
		s.line("clear")
		s.showsTimes("close:", 0)
		s.line("belay tool run asking")
		for i, line := range c.typed {
			// A look is followed by the question again.
			s.showsTimes("[Enter] close:", i+1)
			s.line(line)
		}
		var text string
		for _, want := range c.shows {
			text = s.shows(want)
		}
		for _, want := range []string{"Ask me", "Think twice.", "[1] Do it", "[2] Leave it", "[3] Show"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: the screen does not show %q:\n%s", c.name, want, text)
			}
		}
		s.code(c.code)
	}
}

// TestAT65_TerminalPressed: Ctrl-C while a tool asks withdraws the question; nothing is
// executed, and it is no decline.
func TestAT65_TerminalPressed(t *testing.T) {
	t.Parallel()
	s := newScreen(t)
	askingTool(t, s)
	s.line("belay tool run asking")
	s.shows("[Enter] close:")
	s.press("C-c")
	text := s.shows("evidence ")
	for _, want := range []string{"the question was withdrawn", "via terminal: Ctrl-C"} {
		if !strings.Contains(text, want) {
			t.Errorf("the screen does not show %q:\n%s", want, text)
		}
	}
	for _, not := range []string{"report: executed", "not approved", "told {"} {
		if strings.Contains(text, not) {
			t.Errorf("the screen shows %q:\n%s", not, text)
		}
	}
	s.code(ExitStopped)
}

// TestTerminalReports: on a terminal a report takes the line of the one before it with
// its id.
func TestTerminalReports(t *testing.T) {
	t.Parallel()
	s := newScreen(t)
	dir := filepath.Join(s.dir, "steps")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"assistant_tool.json": `{"id": "steps", "description": "d", "parameters": []}`,
		"assistant_tool.ts": `AssistantTool.registerExecuteTool(async () => {
			for (let i = 1; i <= 5; i++) AssistantTool.report("step " + i, "p")
			AssistantTool.report("other \u001b[31m")
			return { success: true, message: "all \u001b[31mdone" } })`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.line("clear; belay tool run steps; echo over")
	text := s.shows("\nover")
	if strings.Contains(text, "step 4") || !strings.Contains(text, "step 5") || !strings.Contains(text, "report: other [31m") || !strings.Contains(text, "all [31mdone") {
		t.Errorf("the screen shows\n%s", text)
	}
}

// showsTimes waits until the screen holds a text so many times or, with 0, not at all.
func (s *screen) showsTimes(want string, times int) {
	s.t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(glance) {
		if n := strings.Count(s.text(), want); n >= times && times > 0 || n == 0 && times == 0 {
			return
		}
	}
	s.t.Fatalf("the screen never showed %q %d times; it shows\n%s", want, times, s.text())
}
