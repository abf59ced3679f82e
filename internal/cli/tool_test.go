package cli

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestToolScript runs every script in testdata/tool against the real program.
func TestToolScript(t *testing.T) {
	runScripts(t, "tool", func(e *testscript.Env, _ string) error {
		belay, err := exec.LookPath("belay") // for scripts that change PATH
		e.Setenv("BELAY", belay)
		return err
	}, map[string]func(*testscript.TestScript, bool, []string){
		"code": runForCode,
		"json": checkJSON,
	})
}

// toolProject writes a project whose execute function has this body, and returns its
// folder.
func toolProject(t *testing.T, body string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"assistant_tool.json": `{"id": "slow", "description": "Takes its time.", "parameters": [], "requireApproval": false}`,
		"assistant_tool.ts":   "const sleep = (ms: number) => new Promise<void>((go) => { setTimeout(go, ms) })\nAssistantTool.registerExecuteTool(async () => {\n" + body + "\n})",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// calling is a belay tool run under way.
type calling struct {
	t      *testing.T
	dir    string
	cmd    *exec.Cmd
	stdout bytes.Buffer

	mu     sync.Mutex
	stderr strings.Builder
	more   chan struct{} // filled when there is more of it
	done   sync.WaitGroup
}

// startTool starts belay tool run on a project, without a terminal.
func startTool(m *machine, dir string, args ...string) *calling {
	m.t.Helper()
	c := &calling{t: m.t, dir: dir, cmd: exec.Command("belay", append([]string{"tool", "run", dir}, args...)...), more: make(chan struct{}, 1)}
	c.cmd.Env = append(os.Environ(), m.env...)
	c.cmd.Stdout = &c.stdout
	stderr, err := c.cmd.StderrPipe()
	if err != nil {
		m.t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = c.cmd.Process.Kill(); c.done.Wait() })
	c.done.Go(func() {
		lines := bufio.NewReader(stderr)
		for {
			line, err := lines.ReadString('\n')
			c.mu.Lock()
			c.stderr.WriteString(line)
			c.mu.Unlock()
			select {
			case c.more <- struct{}{}:
			default:
			}
			if err != nil {
				return
			}
		}
	})
	return c
}

func (c *calling) said() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stderr.String()
}

// says waits until standard error holds a text.
func (c *calling) says(want string) {
	c.t.Helper()
	limit := time.After(20 * time.Second)
	for !strings.Contains(c.said(), want) {
		select {
		case <-c.more:
		case <-limit:
			c.t.Fatalf("belay never said %q; it said\n%s", want, c.said())
		}
	}
}

func (c *calling) signal(sig os.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(sig); err != nil {
		c.t.Fatal(err)
	}
}

// ends waits for the end, checks the exit code, and that no worker is left.
func (c *calling) ends(want int) (stdout, stderr string) {
	c.t.Helper()
	limit := time.AfterFunc(30*time.Second, func() { _ = c.cmd.Process.Kill() })
	c.done.Wait()
	err := c.cmd.Wait()
	limit.Stop()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		c.t.Fatal(err)
	}
	if got := c.cmd.ProcessState.ExitCode(); got != want {
		c.t.Errorf("exit code %d, want %d; standard error:\n%s", got, want, c.said())
	}
	if left := workersOf(c.dir); len(left) > 0 {
		c.t.Errorf("workers are left: %v", left)
	}
	return c.stdout.String(), c.said()
}

// computes waits until the script, which has said that it is about to, takes the
// processor for itself.
func (c *calling) computes() {
	c.t.Helper()
	const enough = 15 // ticks of 10 ms: far more than what it does before
	used := func() (sum int) {
		for _, pid := range workersOf(c.dir) {
			stat, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
			if f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])); len(f) > 12 {
				user, _ := strconv.Atoi(f[11])
				sum += user
			}
		}
		return sum
	}
	before := used()
	for limit := time.Now().Add(20 * time.Second); used() < before+enough; time.Sleep(10 * time.Millisecond) {
		if before == 0 && time.Until(limit) < 19*time.Second {
			return // where nothing tells, a second has to do
		}
		if time.Now().After(limit) {
			c.t.Fatal("the script never began to compute")
		}
	}
}

// workersOf are the processes that serve a folder of scripts, where the system tells.
func workersOf(dir string) []int {
	var pids []int
	lists, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range lists {
		text, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(text), "\x00script-worker\x00") || !strings.Contains(string(text), dir) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

func contains(t *testing.T, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
}

// TestAT16_RunPressed: Ctrl-C in belay tool run is a user's cancel: what onCancel
// hands back is printed, the receipt says who it was, and what the script returns
// later appears nowhere.
func TestAT16_RunPressed(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	c := startTool(m, toolProject(t, `
		AssistantTool.onCancel = () => "Cancelled by the user.\nPartial results (1 of 2):\n- a"
		AssistantTool.report("at b")
		while (!AssistantTool.isCancelled) await sleep(5)
		return { success: true, message: "never to be seen" }`))
	c.says("report: at b")
	c.signal(syscall.SIGINT)
	stdout, stderr := c.ends(ExitStopped)
	if want := "Cancelled by the user.\nPartial results (1 of 2):\n- a\n"; stdout != want {
		t.Errorf("it printed %q, want %q", stdout, want)
	}
	contains(t, stderr, "stopping; Ctrl-C again", "confirmed", "via terminal: Ctrl-C", "returned")
	if strings.Contains(stdout+stderr, "never to be seen") {
		t.Error("the late result was shown")
	}
}

// TestAT5_RunPressed: without onCancel there is nothing to print, and the call is
// cancelled all the same.
func TestAT5_RunPressed(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	c := startTool(m, toolProject(t, `AssistantTool.report("on"); await sleep(100000)`), "--json", "--grace", "100ms")
	c.says("report: on")
	c.signal(syscall.SIGINT)
	stdout, _ := c.ends(ExitStopped)
	contains(t, stdout, `"outcome": "cancelled"`, `"verdict": "confirmed"`, `"success": false`)
	if strings.Contains(stdout, `"partial"`) {
		t.Errorf("there is a partial result in\n%s", stdout)
	}
}

// TestAT29_RunPressedTwice: the second Ctrl-C skips the rest of the grace: a busy loop
// is interrupted at once, and what it had is printed (AT-34).
func TestAT29_RunPressedTwice(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	c := startTool(m, toolProject(t, `
		AssistantTool.onCancel = () => "had 3"
		AssistantTool.report("busy")
		await sleep(50)
		while (true) { try { while (true) {} } finally { while (true) {} } }`), "--grace", "1h", "--kill-after", "1h")
	c.says("report: busy")
	c.computes() // if the loop has not begun, onCancel has its turn before it
	c.signal(syscall.SIGINT)
	c.says("stopping; Ctrl-C again")
	c.signal(syscall.SIGINT)
	c.says("by force")
	stdout, stderr := c.ends(ExitStopped)
	if stdout != "had 3\n" {
		t.Errorf("it printed %q", stdout)
	}
	contains(t, stderr, "escalated", "interrupted")
}

// TestAT35_RunPressedThrice: what no interrupt reaches, the third Ctrl-C kills.
func TestAT35_RunPressedThrice(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	c := startTool(m, toolProject(t, `
		AssistantTool.onCancel = () => "never asked"
		AssistantTool.report("deaf")
		await sleep(50)
		return { success: true, message: String(/^(a+)+\1$/.test("a".repeat(60) + "b")) }`), "--grace", "1h", "--kill-after", "1h")
	c.says("report: deaf")
	c.computes()
	if workers := workersOf(c.dir); runtime.GOOS == "linux" && len(workers) == 0 {
		t.Error("no worker is to be seen: then none that is gone proves anything")
	}
	for range 3 {
		before := strings.Count(c.said(), "belay: stopping")
		c.signal(syscall.SIGINT)
		for limit := time.Now().Add(10 * time.Second); strings.Count(c.said(), "belay: stopping") == before && time.Now().Before(limit); {
			time.Sleep(5 * time.Millisecond)
		}
	}
	_, stderr := c.ends(ExitStopped)
	contains(t, stderr, "confirmed: every process of it was seen dead")
}

// TestAT39_RunStopped: other Stops take the same way, with their own cause.
func TestAT39_RunStopped(t *testing.T) {
	t.Parallel()
	const body = `
		AssistantTool.onCancel = () => "partial"
		AssistantTool.report("on")
		while (!AssistantTool.isCancelled) await sleep(5)`
	t.Run("deadline", func(t *testing.T) {
		c := startTool(newMachine(t), toolProject(t, body), "--deadline", "300ms")
		stdout, stderr := c.ends(ExitStopped)
		if stdout != "partial\n" {
			t.Errorf("it printed %q", stdout)
		}
		contains(t, stderr, "its deadline")
	})
	t.Run("cancel", func(t *testing.T) {
		m := newMachine(t)
		c := startTool(m, toolProject(t, body))
		c.says("report: on")
		if out, errs, code := m.belay("cancel", "--all", "--reason", "enough"); code != ExitDone {
			t.Errorf("belay cancel: %d\n%s%s", code, out, errs)
		}
		stdout, stderr := c.ends(ExitStopped)
		if stdout != "partial\n" {
			t.Errorf("it printed %q", stdout)
		}
		contains(t, stderr, "enough")
	})
	t.Run("SIGTERM", func(t *testing.T) {
		c := startTool(newMachine(t), toolProject(t, `AssistantTool.report("on"); while (true) await sleep(1)`), "--grace", "1h")
		c.says("report: on")
		c.signal(syscall.SIGTERM)
		_, stderr := c.ends(ExitStopped)
		contains(t, stderr, "Belay's own end")
	})
}
