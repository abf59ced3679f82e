package proc

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// TestUnload: the pages of the program's code leave the memory, and it runs on.
func TestUnload(t *testing.T) {
	resident := func() int {
		text, err := os.ReadFile("/proc/self/smaps_rollup")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) > 1 && f[0] == "Rss:" {
				n, err := strconv.Atoi(f[1])
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
		}
		t.Fatal("no Rss")
		return 0
	}
	before := resident()
	Unload()
	if after := resident(); after >= before {
		t.Errorf("%d KiB were resident, now %d", before, after)
	}
}
