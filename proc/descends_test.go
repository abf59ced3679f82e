//go:build linux || darwin

package proc

import (
	"os"
	"os/exec"
	"testing"
)

func TestDescends(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	self, child := os.Getpid(), cmd.Process.Pid
	for _, tt := range []struct {
		pid, of int
		want    bool
	}{{self, self, true}, {child, self, true}, {child, os.Getppid(), true}, {self, child, false}, {os.Getppid(), self, false}} {
		if got := Descends(tt.pid, tt.of); got != tt.want {
			t.Errorf("%d below %d: %v, want %v", tt.pid, tt.of, got, tt.want)
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if !Descends(child, os.Getppid()+1_000_000) {
		t.Error("one that is gone was taken for somebody else")
	}
}
