package proc

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestMemory sees that a tool has memory, and none when it has ended.
func TestMemory(t *testing.T) {
	tree, err := Start(t.Context(), Config{Path: "sleep", Args: []string{"60"}, Cgroup: CgroupOff})
	if err != nil {
		t.Fatal(err)
	}
	m := tree.Memory()
	for end := time.Now().Add(10 * time.Second); m < 100<<10 && time.Now().Before(end); m = tree.Memory() {
		time.Sleep(10 * time.Millisecond) // it was executed, and has touched nothing yet
	}
	if m < 100<<10 || m > 1<<30 {
		t.Errorf("sleep has %d bytes", m)
	}
	if _, err := tree.Kill(t.Context(), Selection{}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-tree.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("it lives on")
	}
	if m := tree.Memory(); m != 0 {
		t.Errorf("what has ended has %d bytes", m)
	}
	if _, err := tree.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestCgroupMemory writes the bound where the controller is, and reads whether the
// kernel has acted on it. The folder stands for a cgroup, which few machines let a
// test make with that controller.
func TestCgroupMemory(t *testing.T) {
	c := &cgroup{dir: t.TempDir()}
	c.bound(1 << 20) // no controller: nothing is written
	if list, err := os.ReadDir(c.dir); err != nil || len(list) != 0 {
		t.Fatalf("%v, %v", list, err)
	}
	if c.starved() || (*cgroup)(nil).starved() {
		t.Error("starved without a controller")
	}
	for name, text := range map[string]string{"memory.max": "max\n", "memory.swap.max": "max\n", "memory.oom.group": "0\n", "memory.events": "low 0\noom 0\noom_kill 0\n"} {
		if err := os.WriteFile(filepath.Join(c.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if c.bound(0); read(t, c.file("memory.max")) != "max\n" {
		t.Error("no bound was written as one")
	}
	c.bound(7 << 20)
	for name, want := range map[string]string{"memory.max": "7340032", "memory.swap.max": "0", "memory.oom.group": "1"} {
		if got := read(t, c.file(name)); got[:len(want)] != want {
			t.Errorf("%s is %q, want %s", name, got, want)
		}
	}
	if c.starved() {
		t.Error("starved with oom_kill 0")
	}
	if err := os.WriteFile(c.file("memory.events"), []byte("low 0\noom 1\noom_kill 2\noom_group_kill 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if !c.starved() {
		t.Error("not starved with oom_kill 2")
	}
	if got := (Exit{Code: -1, Signal: 9, OutOfMemory: true}).String(); got != "out of memory" {
		t.Errorf("it ended %q", got)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
