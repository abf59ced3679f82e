//go:build unix

package cli

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestServe runs every script in testdata/serve against the real program. A
// script starts it with its streams in files, because what it prints at its
// start is wanted while it runs.
func TestServe(t *testing.T) {
	runScripts(t, "serve", func(e *testscript.Env, _ string) error {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		e.Setenv("SELF", self) // this binary, which is also the fake tools
		return nil
	}, map[string]func(*testscript.TestScript, bool, []string){
		"served": setServed,
		"web":    askWeb,
		"later":  askLater,
		"signal": sendSignal,
		"begin":  beginSession,
		"health": waitHealth,
		"code":   runForCode,
		"json":   checkJSON,
		"within": waitFor,
		"runid":  setRunID,
	})
}

// setServed waits for what belay serve --json prints, and sets URL and PID:
// served FILE.
func setServed(ts *testscript.TestScript, _ bool, args []string) {
	waitFor(ts, false, []string{args[0], "mcpServers"})
	var v served
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &v))
	ts.Setenv("URL", v.URL)
	ts.Setenv("ADDR", strings.TrimPrefix(v.URL, "http://"))
	ts.Setenv("PID", strconv.Itoa(v.Pid))
}

// askWeb sends a request and keeps the answer: web FILE URL [BODY [SESSION]].
func askWeb(ts *testscript.TestScript, _ bool, args []string) {
	id, err := ask(ts.MkAbs(args[0]), args[1:])
	ts.Check(err)
	if id != "" {
		ts.Setenv("SESSION", id)
	}
}

// askLater is askWeb for an answer that takes its time: it is there once the
// file is.
func askLater(ts *testscript.TestScript, _ bool, args []string) {
	file, done := ts.MkAbs(args[0]), make(chan error, 1)
	go func() {
		_, err := ask(file, args[1:])
		done <- err
	}()
	ts.Defer(func() { <-done })
}

// ask sends a request to args[0] and writes the answer into a file. It returns
// the session that the answer names.
func ask(file string, args []string) (session string, err error) {
	method, body := http.MethodGet, ""
	if len(args) > 1 {
		method, body = http.MethodPost, args[1]
	}
	req, err := http.NewRequest(method, args[0], strings.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if len(args) > 2 {
		req.Header.Set("Mcp-Session-Id", args[2])
		req.Header.Set("Mcp-Protocol-Version", "2025-11-25")
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	return resp.Header.Get("Mcp-Session-Id"), os.WriteFile(file, []byte(resp.Status+" "+string(text)), 0o600)
}

// beginSession opens a session and sets SESSION: begin URL.
func beginSession(ts *testscript.TestScript, _ bool, args []string) {
	askWeb(ts, false, []string{"begun", args[0], `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`})
	if !strings.HasPrefix(ts.ReadFile("begun"), "200") {
		ts.Fatalf("initialize: %s", ts.ReadFile("begun"))
	}
	askWeb(ts, false, []string{"begun", args[0], `{"jsonrpc":"2.0","method":"notifications/initialized"}`, ts.Getenv("SESSION")})
}

// waitHealth waits until /healthz says something: health TEXT.
func waitHealth(ts *testscript.TestScript, _ bool, args []string) {
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		askWeb(ts, false, []string{"health", ts.Getenv("URL") + "/healthz"})
		if strings.Contains(ts.ReadFile("health"), args[0]) {
			return
		}
	}
	ts.Fatalf("/healthz never said %q but %s", args[0], ts.ReadFile("health"))
}

// sendSignal sends a signal to a process: signal HUP|INT|TERM|KILL PID.
func sendSignal(ts *testscript.TestScript, _ bool, args []string) {
	pid, err := strconv.Atoi(args[1])
	ts.Check(err)
	ts.Check(syscall.Kill(pid, map[string]syscall.Signal{"HUP": syscall.SIGHUP, "INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "KILL": syscall.SIGKILL}[args[0]]))
}
