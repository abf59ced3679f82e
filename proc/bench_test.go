//go:build linux

package proc

import (
	"context"
	"os/exec"
	"testing"
	"time"
)

// BenchmarkStart compares the start of a tree with a bare os/exec start, both
// until the program was executed.
func BenchmarkStart(b *testing.B) {
	b.Run("os-exec", func(b *testing.B) {
		for range b.N {
			cmd := exec.Command("sleep", "1000")
			if err := cmd.Start(); err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			cmd.Process.Kill()
			cmd.Wait()
			b.StartTimer()
		}
	})
	for _, m := range modes {
		b.Run(m.name, func(b *testing.B) {
			for range b.N {
				tree, err := Start(context.Background(), Config{Path: "sleep", Args: []string{"1000"}, Cgroup: m.mode})
				if err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				_, _ = tree.Kill(context.Background(), Selection{})
				closeTree(b, tree)
				b.StartTimer()
			}
		})
	}
}

// BenchmarkKill measures from the call of Kill until five processes, two of
// them in sessions of their own, are seen dead; and until the guardian has
// reaped them (ms/gone).
func BenchmarkKill(b *testing.B) {
	for _, m := range modes {
		b.Run(m.name, func(b *testing.B) {
			var gone time.Duration
			for range b.N {
				b.StopTimer()
				tree, err := Start(context.Background(), Config{Path: "sh", Args: []string{
					"-c",
					"sleep 1000 & sleep 1000 & setsid sleep 1000 & setsid sleep 1000 & wait",
				}, Cgroup: m.mode})
				if err != nil {
					b.Fatal(err)
				}
				eventually(b, 5*time.Second, "five processes", func() bool { l, _ := tree.List(); return len(l) == 5 })
				b.StartTimer()
				begun := time.Now()
				if r, err := tree.Kill(context.Background(), Selection{}); err != nil || !r.Gone {
					b.Fatal(err)
				}
				b.StopTimer()
				<-tree.Gone()
				gone += time.Since(begun)
				closeTree(b, tree)
				b.StartTimer()
			}
			b.ReportMetric(float64(gone.Microseconds())/1000/float64(b.N), "ms/gone")
		})
	}
}

// BenchmarkCPU measures one question for the tree's processor time.
func BenchmarkCPU(b *testing.B) {
	for _, m := range modes {
		b.Run(m.name, func(b *testing.B) {
			tree := startTree(b, Config{Path: "sleep", Args: []string{"1000"}, Cgroup: m.mode})
			for b.Loop() {
				tree.CPU()
			}
		})
	}
}

// BenchmarkList measures one look at a tree of one process.
func BenchmarkList(b *testing.B) {
	tree := startTree(b, Config{Path: "sleep", Args: []string{"1000"}})
	for b.Loop() {
		if _, err := tree.List(); err != nil {
			b.Fatal(err)
		}
	}
}
