package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/calm"
	"github.com/belayhq/belay/internal/faketool"
	"github.com/belayhq/belay/internal/need"
)

// TestWrap holds the real program, belay wrap, to what its users see.
func TestWrap(t *testing.T) {
	t.Parallel()
	bin := filepath.Join(t.TempDir(), "belay")
	build := exec.Command("go", slices.Concat([]string{"build"}, need.BuildFlags(), []string{"-o", bin, "github.com/belayhq/belay/cmd/belay"})...)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build belay: %v\n%s", err, out)
	}
	for name, test := range map[string]func(*testing.T, string){
		"listening tool":     wrapListening,
		"deaf tool":          wrapDeaf,
		"belay cancel":       wrapCancel,
		"deadline":           wrapDeadline,
		"end of input":       wrapEOF,
		"SIGTERM":            wrapSIGTERM,
		"half a line":        wrapHalfLine,
		"no such command":    wrapNoCommand,
		"dies at once":       wrapDies,
		"refused isolation":  wrapRefused,
		"transparent":        wrapTransparent,
		"a lot of requests":  wrapMany,
		"no private runtime": wrapBadRuntime,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, bin)
		})
	}
}

// atOnce has a program that was built with the race detector end without the
// second that it would else wait for late reports.
const atOnce = "GORACE=atexit_sleep_ms=0"

// wrapped is a fake server behind the real program.
type wrapped struct {
	*link
	bin, runtime string
}

func wrap(t *testing.T, bin string, server []string, flags ...string) *wrapped {
	t.Helper()
	dir := t.TempDir()
	runtime, err := os.MkdirTemp("", "rt") // short: it holds a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(runtime) })
	w := &wrapped{link: &link{t: t, logs: &faketool.Text{}, wire: filepath.Join(dir, "wire"), wit: faketool.NewWitness(filepath.Join(dir, "witness"))}, bin: bin, runtime: runtime}
	argv := append([]string{bin, "wrap"}, flags...)
	argv = append(append(argv, "--"), faketool.Command(append([]string{"server", "-witness", w.wit.Path, "-log", w.wire}, server...)...)...)
	w.Client, err = faketool.StartClient(argv, faketool.ClientOptions{Env: []string{"BELAY_RUNTIME_DIR=" + runtime, "BELAY_PARENT=", atOnce}, Stderr: w.logs})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		if left := faketool.WaitDead(w.wit.Pids("server"), time.Second); len(left) > 0 {
			t.Errorf("the server lives on: %v", left)
		}
		for _, m := range w.Messages() {
			if !m.JSON && !strings.HasPrefix(m.Raw, "[") {
				t.Errorf("stdout carries %q", m.Raw) // logs go to stderr only
			}
		}
		if t.Failed() {
			t.Logf("stderr:\n%s", w.logs)
		}
	})
	return w
}

// run runs another belay command in the same runtime directory.
func (w *wrapped) run(args ...string) (stdout string, code int) {
	w.t.Helper()
	cmd := exec.Command(w.bin, args...)
	cmd.Env = append(os.Environ(), "BELAY_RUNTIME_DIR="+w.runtime, "BELAY_PARENT=")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		w.t.Fatal(err)
	}
	if errs.Len() > 0 {
		w.t.Logf("belay %v: %s", args, errs.String())
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

func wrapListening(t *testing.T, bin string) {
	w := wrap(t, bin, nil)
	w.initialize("2025-06-18")
	try := -1
	calm.Within(t, stopsWithin, func() (from, to time.Time) {
		try++
		key, id := fmt.Sprint("w", try), fmt.Sprint(try)
		w.tick(id, key, `"n":3000`)
		at := time.Now()
		w.cancel(id, "")
		to = w.saw(key, "stopped").Time
		w.works()
		w.silent(id, at)
		return at, to
	})
}

func wrapDeaf(t *testing.T, bin string) {
	w := wrap(t, bin, nil, "--enforce", "strict", "--grace", "200ms", "--kill-after", "300ms")
	w.initialize("2025-06-18")
	w.tick("1", "w", `"n":3000,"deaf":true`)
	look, at := calm.Start(t), time.Now()
	w.cancel("1", "")
	if left := faketool.WaitDead(w.wit.Pids("server"), 5*time.Second); len(left) > 0 {
		t.Fatalf("the process lives on: %v", left)
	}
	w.works() // in a fresh process, without a new handshake
	look.Within(t, w.wit.LastTick("w").Sub(at), 200*time.Millisecond+250*time.Millisecond+schedule, "the last tick after the cancel")
	if w.wit.StillTicking("w", 100*time.Millisecond) || faketool.Starts(w.wit.Path+".starts") != 2 {
		t.Error("the process was not replaced")
	}
}

func wrapCancel(t *testing.T, bin string) {
	w := wrap(t, bin, []string{"-reply", "iserror"}, "--label", "team=a")
	w.initialize("2025-11-25")
	w.tick("1", "w", `"n":3000`)
	w.tick("2", "other", `"n":100`)
	var runs []struct {
		ID      belay.RunID
		Address string
		Kind    string
	}
	out, code := w.run("ps", "--json")
	for line := range strings.Lines(out) {
		var r struct {
			ID      belay.RunID
			Address string
			Kind    string
		}
		if json.Unmarshal([]byte(line), &r) == nil && !r.ID.IsZero() {
			runs = append(runs, r)
		}
	}
	if code != 0 || len(runs) == 0 {
		_ = json.Unmarshal([]byte(out), &runs)
	}
	var id string
	for _, r := range runs {
		if r.Address == "1" && r.Kind == "call" {
			id = r.ID.String()
		}
	}
	if id == "" {
		t.Fatalf("ps says %s", out)
	}
	look, at := calm.Start(t), time.Now()
	out, code = w.run("cancel", id, "--reason", "cost limit")
	m := w.expect("1")
	if code != 0 {
		t.Errorf("belay cancel ended with %d: %s", code, out)
	}
	if m.Error == nil || m.Error.Code != belay.CodeCancelled || !strings.Contains(m.Raw, "cost limit") || !strings.Contains(m.Raw, id) {
		t.Errorf("the client got %s", m.Raw)
	}
	look.Within(t, w.saw("w", "stopped").Time.Sub(at), 2*time.Second, "the tool's end")
	if m := w.expect("2"); m.Text() != "other: 100 ticks" {
		t.Errorf("the other call was answered %s", m.Raw)
	}
	w.works()
}

func wrapDeadline(t *testing.T, bin string) {
	w := wrap(t, bin, nil, "--deadline", "200ms")
	w.initialize("2025-11-25")
	w.tick("1", "w", `"n":3000`)
	if m := w.expect("1"); m.Error == nil || m.Error.Code != belay.CodeCancelled || !strings.Contains(m.Raw, `"cause":"deadline"`) {
		t.Errorf("the client got %s", m.Raw)
	}
	w.saw("w", "stopped")
	w.works()
}

func wrapEOF(t *testing.T, bin string) {
	w := wrap(t, bin, []string{"-stay", "-deaf-term"})
	w.initialize("2025-11-25")
	w.tick("1", "w", `"n":3000,"deaf":true`)
	look, at := calm.Start(t), time.Now()
	if err := w.CloseStdin(); err != nil {
		t.Fatal(err)
	}
	if code := w.Wait(); code != 0 {
		t.Errorf("it ended with %d", code)
	}
	look.Within(t, time.Since(at), time.Second+schedule, "its end")
	if left := faketool.WaitDead(w.wit.Pids("server"), 100*time.Millisecond); len(left) > 0 {
		t.Errorf("left alive: %v", left)
	}
}

func wrapSIGTERM(t *testing.T, bin string) {
	w := wrap(t, bin, nil)
	w.initialize("2025-11-25")
	w.tick("1", "w", `"n":3000,"deaf":true`)
	if err := w.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	m := w.expect("1") // also at Belay's own end
	if m.Error == nil || m.Error.Code != belay.CodeCancelled {
		t.Errorf("the client got %s", m.Raw)
	}
	w.Wait()
	if left := faketool.WaitDead(w.wit.Pids("server"), 500*time.Millisecond); len(left) > 0 {
		t.Errorf("left alive: %v", left)
	}
}

func wrapHalfLine(t *testing.T, bin string) {
	w := wrap(t, bin, nil)
	w.initialize("2025-11-25")
	if err := w.SendBytes([]byte(`{"jsonrpc":"2.0","id":1,"meth`)); err != nil {
		t.Fatal(err)
	}
	_ = w.CloseStdin()
	if code := w.Wait(); code != 0 || !strings.Contains(w.logs.String(), "in the middle of a message") {
		t.Errorf("it ended with %d", code)
	}
	if n := len(w.wit.Violations()); n != 0 {
		t.Error("half a line was passed on")
	}
}

func wrapNoCommand(t *testing.T, bin string) {
	w := &wrapped{link: &link{t: t}, bin: bin, runtime: t.TempDir()}
	for _, args := range [][]string{{"wrap"}, {"wrap", "--"}, {"wrap", "--", "/no/such/command"}, {"wrap", "--enforce", "maybe", "--", "true"}, {"wrap", "--grace", "x", "--", "true"}} {
		if out, code := w.run(args...); code != 2 || out != "" {
			t.Errorf("%v ended with %d: %s", args, code, out)
		}
	}
}

func wrapDies(t *testing.T, bin string) {
	w := wrap(t, bin, []string{"-die"})
	_ = w.Send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}`) // it may be gone already
	if code := w.Wait(); code != 1 || !strings.Contains(w.logs.String(), "exit code 41") {
		t.Errorf("it ended with %d", code)
	}
}

func wrapRefused(t *testing.T, bin string) {
	w := wrap(t, bin, nil, "--isolation", "call")
	w.send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`)
	if m := w.expect("0"); m.Error == nil || !strings.Contains(m.Error.Message, "isolation") {
		t.Errorf("the handshake was answered %s", m.Raw)
	}
	if code := w.Wait(); code == 0 || !strings.Contains(w.logs.String(), "resources.subscribe") {
		t.Errorf("it ended with %d", code)
	}
}

func wrapTransparent(t *testing.T, bin string) {
	w := wrap(t, bin, nil, "--enforce", "strict")
	w.initialize("2025-11-25")
	line := `{"jsonrpc":"2.0","extra":{"b":1,"a":2},"id":%s,"method":"tools/call","params":{"arguments":{"x":1.50,"big":1152921504606846977,"u":"\u00fc"},"name":"echo"}}`
	w.send(line, "1e0")
	m := w.expect("1e0")
	if m.Text() != `{"x":1.50,"big":1152921504606846977,"u":"\u00fc"}` {
		t.Errorf("the client got %s", m.Raw)
	}
	if list := w.gotWith(`"extra"`); len(list) != 1 || list[0] != fmt.Sprintf(line, `"b-2"`) {
		t.Errorf("the server got %v", list)
	}
}

func wrapMany(t *testing.T, bin string) {
	w := wrap(t, bin, nil)
	w.initialize("2025-11-25")
	const n = 2000
	for i := range n {
		if err := w.Call(fmt.Sprint(i), "echo", fmt.Sprintf(`{"i":%d}`, i), ""); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n {
		if m := w.expect(fmt.Sprint(i)); m.Text() != fmt.Sprintf(`{"i":%d}`, i) {
			t.Fatalf("call %d was answered %s", i, m.Raw)
		}
	}
}

// wrapBadRuntime: a place for the socket that cannot be used costs the view
// from outside, never the work.
func wrapBadRuntime(t *testing.T, bin string) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	argv := append([]string{bin, "wrap", "--"}, faketool.Command("server")...)
	var logs faketool.Text
	c, err := faketool.StartClient(argv, faketool.ClientOptions{Env: []string{"BELAY_RUNTIME_DIR=" + file, "BELAY_PARENT="}, Stderr: &logs})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Initialize("2025-11-25"); err != nil {
		t.Error(err)
	}
	if !strings.Contains(logs.String(), "cannot see") {
		t.Errorf("stderr says %s", &logs)
	}
}
