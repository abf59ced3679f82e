package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/fakeagent"
	"github.com/belayhq/belay/internal/faketool"
	"github.com/belayhq/belay/local"
)

// TestAdoptScript runs every script in testdata/adopt against the real program.
func TestAdoptScript(t *testing.T) {
	runScripts(t, "adopt", func(e *testscript.Env, _ string) error {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		// A program of another name that can be the fake server.
		if err := os.Symlink(self, filepath.Join(e.WorkDir, "fakeserver")); err != nil {
			return err
		}
		e.Setenv("HOME", filepath.Join(e.WorkDir, "home"))
		e.Setenv("FAKE", faketool.Marker)
		e.Setenv(faketool.WitnessEnv, filepath.Join(e.WorkDir, "witness"))
		return nil
	}, map[string]func(*testscript.TestScript, bool, []string){
		"code":  runForCode,
		"json":  checkJSON,
		"fill":  fillIn,
		"calls": callServer,
	})
}

// fillIn replaces $VARIABLES in a file: fill FILE.
func fillIn(ts *testscript.TestScript, _ bool, args []string) {
	text := os.Expand(ts.ReadFile(args[0]), func(k string) string {
		if k == "PWD" {
			return ts.MkAbs(".")
		}
		return ts.Getenv(k)
	})
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o600))
}

// callServer starts a server as an editor would, from its entry alone, and
// calls its echo through an official client: calls FILE SERVER PARENT, where
// PARENT is the name of the program that the editor has started.
func callServer(ts *testscript.TestScript, _ bool, args []string) {
	var file struct {
		Servers map[string]struct {
			Command string            `json:"command"`
			Args    []string          `json:"args"`
			Env     map[string]string `json:"env"`
		} `json:"mcpServers"`
	}
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &file))
	entry, ok := file.Servers[args[1]]
	if !ok || filepath.Base(entry.Command) != args[2] {
		ts.Fatalf("%s: %+v, want %s", args[1], entry, args[2])
	}
	ctx, end := context.WithTimeoutCause(context.Background(), 30*time.Second, context.DeadlineExceeded)
	defer end()
	cmd := exec.Command(entry.Command, entry.Args...)
	cmd.Dir = ts.MkAbs(".")
	cmd.Env = []string{
		"PATH=" + ts.Getenv("PATH"), "HOME=" + ts.Getenv("HOME"), local.EnvDir + "=" + ts.Getenv(local.EnvDir),
		faketool.WitnessEnv + "=" + ts.Getenv(faketool.WitnessEnv), "GORACE=atexit_sleep_ms=0",
	}
	for k, v := range entry.Env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	session, err := mcp.NewClient(&mcp.Implementation{Name: "editor", Version: "1"}, nil).Connect(ctx, &mcp.CommandTransport{Command: cmd}, nil)
	ts.Check(err)
	defer func() { _ = session.Close() }()
	result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"text": "through"}})
	ts.Check(err)
	text, err := json.Marshal(result.Content)
	ts.Check(err)
	if !strings.Contains(string(text), "through") {
		ts.Fatalf("the call gave %s", text)
	}
	if args[2] != "belay" {
		return
	}
	// People see it by the name that it has in the file.
	runs, err := local.NewMesh(local.MeshOptions{Dirs: []string{ts.Getenv(local.EnvDir)}}).List(ctx, belay.Filter{})
	ts.Check(err)
	if !slices.ContainsFunc(runs, func(i belay.Info) bool { return i.Kind == belay.KindSession && i.Name == args[1] }) {
		ts.Fatalf("no session is named %s: %+v", args[1], runs)
	}
}

// TestAdoptedAgent: an editor gets the same answers from an agent's entry before,
// under Belay and after; under Belay people see the session by the entry's name.
func TestAdoptedAgent(t *testing.T) {
	m := newMachine(t)
	agent := fakeagent.Command(fakeagent.Options{Turn: fakeagent.Turn{Updates: 1, EndAfter: 1}})
	args, err := json.Marshal(agent[1:])
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(m.dir, "settings.json")
	text := fmt.Sprintf("{\n \"agent_servers\": {\"My agent\": {\"type\": \"custom\", \"command\": %q, \"args\": %s, \"env\": {}}}\n}\n", agent[0], args)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if under := m.promptAgent(file, false); under != "" {
		t.Fatalf("it runs under %s already", under)
	}
	for _, do := range [][]string{{"adopt"}, {"adopt", "--undo"}} {
		if out, errs, code := m.belay(append(do, file)...); code != 0 {
			t.Fatalf("%v: exit code %d\n%s\n%s", do, code, out, errs)
		}
		adopted := len(do) == 1
		if under := m.promptAgent(file, adopted); adopted != strings.Contains(under, "My agent") {
			t.Errorf("%v: the session is seen as %q", do, under)
		}
	}
	if now, err := os.ReadFile(file); err != nil || string(now) != text {
		t.Errorf("undone it is\n%s%v", now, err)
	}
}

// promptAgent starts the one agent of a file as an editor would, prompts it, and
// holds that it answers. It returns the name of the session that Belay shows.
func (m *machine) promptAgent(file string, adopted bool) (under string) {
	m.t.Helper()
	var settings struct {
		Agents map[string]struct {
			Command string   `json:"command"`
			Args    []string `json:"args"`
		} `json:"agent_servers"`
	}
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &settings)
	}
	entry, ok := settings.Agents["My agent"]
	if err != nil || !ok || adopted != (filepath.Base(entry.Command) == "belay") {
		m.t.Fatalf("%v: %+v", err, settings)
	}
	c, err := faketool.StartClient(append([]string{entry.Command}, entry.Args...), faketool.ClientOptions{Env: m.env})
	if err != nil {
		m.t.Fatal(err)
	}
	defer func() {
		_ = c.CloseStdin()
		c.Wait()
		_ = c.Close()
	}()
	c.Timeout = 30 * time.Second
	ask := func(id, method, params string) faketool.Message {
		m.t.Helper()
		if err := c.Sendf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, method, params); err != nil {
			m.t.Fatal(err)
		}
		answer, err := c.Expect(id)
		if err != nil {
			m.t.Fatal(err)
		}
		return answer
	}
	ask("1", "initialize", `{"protocolVersion":1,"clientCapabilities":{}}`)
	var made struct {
		SessionID string `json:"sessionId"`
	}
	if err := json.Unmarshal(ask("2", "session/new", `{"cwd":"/","mcpServers":[]}`).Result, &made); err != nil {
		m.t.Fatal(err)
	}
	end := ask("3", "session/prompt", fmt.Sprintf(`{"sessionId":%q,"prompt":[{"type":"text","text":"hello"}]}`, made.SessionID))
	if !strings.Contains(string(end.Result), "end_turn") {
		m.t.Errorf("the prompt ended with %s", end.Raw)
	}
	runs, err := local.NewMesh(local.MeshOptions{Dirs: []string{m.dir}}).List(context.Background(), belay.Filter{})
	if err != nil {
		m.t.Fatal(err)
	}
	for _, i := range runs {
		if i.Kind == belay.KindSession && i.Parent.IsZero() {
			under = i.Name
		}
	}
	return under
}

// TestAdoptedAddress: an official client reaches belay serve by an address in
// which the original stands, and does not send that.
func TestAdoptedAddress(t *testing.T) {
	ctx, end := context.WithTimeoutCause(t.Context(), 30*time.Second, context.DeadlineExceeded)
	defer end()
	server := mcp.NewServer(&mcp.Implementation{Name: "served", Version: "1"}, nil)
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	var asked sync.Map
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Store(r.RequestURI, true)
		handler.ServeHTTP(w, r)
	}))
	defer front.Close()

	file := filepath.Join(t.TempDir(), "mcp.json")
	text := `{"mcpServers": {"docs": {"type": "http", "url": "http://localhost:1/original?a=b"}}}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, errs, code := newMachine(t).belay("adopt", "--remote", "--serve", front.URL, file); code != 0 {
		t.Fatalf("exit code %d\n%s\n%s", code, out, errs)
	}
	adopted, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var read struct {
		Servers map[string]struct {
			URL string `json:"url"`
		} `json:"mcpServers"`
	}
	if err := json.Unmarshal(adopted, &read); err != nil {
		t.Fatal(err)
	}
	session, err := mcp.NewClient(&mcp.Implementation{Name: "editor", Version: "1"}, nil).Connect(ctx,
		&mcp.StreamableClientTransport{Endpoint: read.Servers["docs"].URL, MaxRetries: -1}, nil)
	if err != nil {
		t.Fatalf("%s: %v", adopted, err)
	}
	if err := session.Close(); err != nil {
		t.Error(err)
	}
	asked.Range(func(path, _ any) bool {
		if path != "/mcp/docs" {
			t.Errorf("asked for %v", path)
		}
		return true
	})
}
