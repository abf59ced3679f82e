//go:build unix

package acceptance

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/belayhq/belay/internal/rappeer"
)

// envRAPChild says where a spawned tool server writes down who it is.
const envRAPChild = "ACCEPTANCE_RAP_CHILD"

// rapChild is a tool server that Belay starts: deaf to SIGINT and SIGTERM, with a
// grandchild in a session of its own.
func rapChild() {
	dir := os.Getenv(envRAPChild)
	if dir == "" || os.Getenv("RAP_EMBEDDED") != "1" {
		return
	}
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM)
	p := &rappeer.ToolServer{Tools: map[string]func(*rappeer.Invoked){"work": func(*rappeer.Invoked) {
		cmd := exec.Command("sh", "-c", `trap "" INT TERM; while :; do sleep 0.05; done`)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err == nil {
			_ = os.WriteFile(filepath.Join(dir, "pids"), fmt.Appendf(nil, "%d %d", os.Getpid(), cmd.Process.Pid), 0o600)
		}
	}}}
	base, err := p.Start()
	if err != nil {
		panic(err)
	}
	u, _ := url.Parse(base)
	fmt.Printf("{\"port\": %s}\n", u.Port())
	select {}
}

// TestRAP95_DiesWithBelay: a tool server that Belay started ends with Belay, with all that
// came from it, whether Belay is told to end or is killed; with kill_server it ends with
// the call (R4; acceptance 13).
func TestRAP95_DiesWithBelay(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"SIGTERM", "SIGKILL", "the call"} {
		t.Run(how, func(t *testing.T) {
			dir := t.TempDir()
			s := start(t, func(c *settings) {
				c.servers = map[string]any{"own": map[string]any{
					"grace": "100ms", "kill_after": "200ms",
					"rap": map[string]any{"command": []string{os.Args[0]}, "env": map[string]any{envRAPChild: dir}, "kill_server": how == "the call"},
				}}
			})
			got := s.begin(t, "ann", "own").call(t, `"own-1"`, "work", `{}`)
			var leader, below int
			eventually(t, "the processes", func() bool {
				text, err := os.ReadFile(filepath.Join(dir, "pids"))
				if err != nil {
					return false
				}
				n, _ := fmt.Sscanf(string(text), "%d %d", &leader, &below)
				return n == 2
			})
			pending(t, got)
			switch how {
			case "SIGTERM":
				if err := s.end(); err != nil {
					t.Error(err)
				}
			case "SIGKILL":
				_ = s.cmd.Process.Kill()
				<-s.ended
				s.ended <- nil
			default:
				a := s.cancel(t, "op", "own-1", `"reason":"enough"`, `"wait":8`)
				if deref(a.Verdict) != "confirmed" {
					t.Errorf("verdict %q", deref(a.Verdict))
				}
			}
			eventually(t, "the death of "+strconv.Itoa(leader)+" and "+strconv.Itoa(below), func() bool { return !alive(leader) && !alive(below) })
		})
	}
}
