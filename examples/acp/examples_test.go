// Package examples_test runs the examples: the client, the proxy and the agent as
// three processes.
package examples_test

import (
	"bytes"
	"context"
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

const patience = 60 * time.Second

func build(t *testing.T) string {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("the agent runs commands by sh")
	}
	dir := t.TempDir()
	out, err := exec.Command("go", slices.Concat([]string{"build"}, need.BuildFlags(), []string{"-o", dir, "./agent", "./client", "./proxy"})...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

func client(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

func TestExamples(t *testing.T) {
	dir := build(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, agent := range map[string][]string{
		"agent":               {at("agent")},
		"proxy to agent":      {at("proxy"), at("agent")},
		"two proxies between": {at("proxy"), at("proxy"), at("agent")},
	} {
		t.Run(name, func(t *testing.T) {
			got := client(t, append([]string{at("client"), "-prompt", "echo hello there", "--"}, agent...)...)
			if !strings.Contains(got, `"text":"hello there"`) || !strings.Contains(got, "the turn has ended: end_turn") {
				t.Errorf("got %s", got)
			}
			// The witness: the tool itself writes as long as it lives.
			witness := filepath.Join(t.TempDir(), "witness")
			beat := "sh -c 'while echo beat >>" + witness + "; do sleep 0.05; done'"
			got = client(t, append([]string{at("client"), "-prompt", beat, "-stop-after", "700ms", "--"}, agent...)...)
			if !strings.Contains(got, "the turn has ended: cancelled") {
				t.Errorf("got %s", got)
			}
			before, err := os.ReadFile(witness)
			if err != nil || len(before) == 0 {
				t.Fatalf("the tool never ran: %v\n%s", err, got)
			}
			time.Sleep(300 * time.Millisecond) // nothing can be awaited: it is about what does not come
			after, err := os.ReadFile(witness)
			if err != nil || !bytes.Equal(before, after) {
				t.Errorf("the tool goes on: %v", err)
			}
		})
	}
}
