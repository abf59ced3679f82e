package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/fakeagent"
	"github.com/belayhq/belay/internal/faketool"
	"github.com/belayhq/belay/local"
)

// setPrograms names what scripts start beside belay: $SELF, which plays an editor or
// an agent, and $TOOL, a program of its own, which ticks.
func setPrograms(e *testscript.Env) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	e.Setenv("SELF", self)
	tool := filepath.Join(e.WorkDir, "bin", "tool")
	e.Setenv("TOOL", tool)
	if err := os.MkdirAll(filepath.Dir(tool), 0o755); err != nil {
		return err
	}
	if os.Link(self, tool) == nil {
		return nil
	}
	b, err := os.ReadFile(self)
	if err != nil {
		return err
	}
	return os.WriteFile(tool, b, 0o755)
}

// playEditor is an editor: editor TURN FLAGS… starts `belay acp FLAGS -- AGENT`, says
// hello, opens a session and prompts with what the file TURN holds (a
// fakeagent.Turn, in which variables are expanded). It prints what it reads. SIGINT
// is the user who closes it; it then exits as belay did.
func playEditor(args []string) int {
	text, err := os.ReadFile(args[0])
	if err != nil {
		fmt.Fprintln(os.Stderr, "editor:", err)
		return 2
	}
	var turn fakeagent.Turn
	if err := json.Unmarshal([]byte(os.ExpandEnv(string(text))), &turn); err != nil {
		fmt.Fprintln(os.Stderr, "editor:", err)
		return 2
	}
	quit, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	argv := append(append([]string{"acp"}, args[1:]...), "--")
	c, err := startEditor(append(argv, fakeagent.Command(fakeagent.Options{Witness: "agent"})...))
	if err != nil {
		fmt.Fprintln(os.Stderr, "editor:", err)
		return 2
	}
	c.Timeout = 30 * time.Second
	_ = c.Send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{}}}`)
	_ = c.Send(`{"jsonrpc":"2.0","id":2,"method":"session/new","params":{"cwd":"/","mcpServers":[]}}`)
	made, err := c.Expect("2")
	var session struct {
		SessionID string `json:"sessionId"`
	}
	if err == nil {
		err = json.Unmarshal(made.Result, &session)
	}
	prompt, _ := json.Marshal(turn)
	quoted, _ := json.Marshal(string(prompt))
	if err == nil {
		err = c.Sendf(`{"jsonrpc":"2.0","id":3,"method":"session/prompt","params":{"sessionId":%q,"prompt":[{"type":"text","text":%s}]}}`, session.SessionID, quoted)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "editor:", err)
		_ = c.Close()
		return 2
	}
	go func() {
		<-quit.Done()
		_ = c.CloseStdin()
	}()
	for n := 0; ; { // until belay acp ends; each line is printed when it comes
		over := c.Ended(10 * time.Millisecond)
		for _, m := range c.Messages()[n:] {
			fmt.Println(m.Raw)
			n++
		}
		if over {
			return c.Wait()
		}
	}
}

func startEditor(args []string) (*faketool.Client, error) {
	belay, err := exec.LookPath("belay")
	if err != nil {
		return nil, err
	}
	return faketool.StartClient(append([]string{belay}, args...), faketool.ClientOptions{})
}

// setRunLike waits for a run of a kind whose name contains a text, and puts its id
// into a variable: runlike VAR KIND TEXT.
func setRunLike(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: runlike VAR KIND TEXT")
	}
	m := local.NewMesh(local.MeshOptions{Dirs: []string{ts.Getenv(local.EnvDir)}})
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		list, _ := m.List(context.Background(), belay.Filter{Ended: true})
		for _, i := range list {
			if string(i.Kind) == args[1] && strings.Contains(i.Name, args[2]) {
				ts.Setenv(args[0], i.ID.String())
				return
			}
		}
	}
	ts.Fatalf("no %s with %q in its name", args[1], args[2])
}
