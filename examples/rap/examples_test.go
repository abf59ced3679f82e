// Package examples_test runs the examples: the tool server, the runtime and the
// notifier as processes of their own.
package examples_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay/internal/need"
)

const token = "TOKEN=an-example-token-0123"

func build(t *testing.T) string {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("the tool server runs commands by sh")
	}
	dir := t.TempDir()
	out, err := exec.Command("go", slices.Concat([]string{"build"}, need.BuildFlags(), []string{"-o", dir, "./toolserver", "./runtime", "./notifier"})...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

// serve starts the tool server and returns its address.
func serve(ctx context.Context, t *testing.T, dir string) string {
	t.Helper()
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "toolserver"))
	cmd.Env = append(os.Environ(), token)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			t.Errorf("the tool server ended with %v", err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	var said struct{ Port int }
	if err != nil || json.Unmarshal([]byte(line), &said) != nil || said.Port == 0 {
		t.Fatalf("the tool server said %q, %v", line, err)
	}
	return fmt.Sprint("http://127.0.0.1:", said.Port)
}

// beat is a command that writes its own evidence as long as it lives.
func beat(witness string) string {
	// The one that writes has left the session and the group of its shell.
	text, _ := json.Marshal(map[string]string{"command": "echo working; $(command -v setsid) sh -c 'while echo beat >>" + witness + "; do sleep 0.05; done' & sleep 100"})
	return string(text)
}

// dead fails when the witness goes on growing.
func dead(t *testing.T, witness string) {
	t.Helper()
	before, err := os.ReadFile(witness)
	if err != nil || len(before) == 0 {
		t.Fatalf("the tool never ran: %v", err)
	}
	time.Sleep(300 * time.Millisecond) // nothing can be awaited: it is about what does not come
	if after, err := os.ReadFile(witness); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the tool goes on: %v", err)
	}
}

func TestExamples(t *testing.T) {
	dir := build(t)
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel) // after the tool server has ended in good order
	base := serve(ctx, t, dir)
	command := func(name string, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, filepath.Join(dir, name), args...)
		cmd.Env = append(os.Environ(), token)
		return cmd
	}
	for tool, args := range map[string]string{"run": `{"command":"echo hello there | cat; true"}`, "ask_and_run": `{"command":"echo hello there"}`} {
		out, err := command("runtime", base, tool, args).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "\nhello there\n") || strings.Contains(string(out), "asked:") != (tool == "ask_and_run") {
			t.Errorf("%s: %v\n%s", tool, err, out)
		}
	}

	// The runtime stops its own call.
	witness := filepath.Join(t.TempDir(), "witness")
	out, err := command("runtime", "-stop-after", "700ms", base, "run", beat(witness)).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "stopped; its work: stopped, acknowledged") || !strings.Contains(string(out), "what it had: ") {
		t.Errorf("%v\n%s", err, out)
	}
	dead(t, witness)

	// The notifier stops another's, by its ids and the same token.
	witness = filepath.Join(t.TempDir(), "witness")
	long := command("runtime", base, "run", beat(witness))
	pipe, err := long.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := long.Start(); err != nil {
		t.Fatal(err)
	}
	var thread, call string
	if _, err := fmt.Fscanf(pipe, "thread %s call %s\n", &thread, &call); err != nil {
		t.Fatal(err)
	}
	for ctx.Err() == nil { // it has begun
		if text, _ := os.ReadFile(witness); len(text) > 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	out, err = command("notifier", thread, call, base, "http://127.0.0.1:1").CombinedOutput()
	if err != nil || strings.Count(string(out), "\n") != 2 || !strings.Contains(string(out), " took it\n") || !strings.Contains(string(out), "was not told") {
		t.Errorf("%v\n%s", err, out)
	}
	rest, _ := bufio.NewReader(pipe).ReadString(0)
	if err := long.Wait(); err != nil || !strings.Contains(rest, "Cancelled by user") {
		t.Errorf("the runtime ended with %v: %s", err, rest)
	}
	dead(t, witness)
}
