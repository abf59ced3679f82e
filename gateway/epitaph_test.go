package gateway

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// TestListener passes on all that a process says, and keeps the end of it: of a crash
// the beginning, however long what follows is.
func TestListener(t *testing.T) {
	noise := strings.Repeat("a line of the log\n", 2000)
	for name, c := range map[string]struct{ said, begins, ends string }{
		"little":          {"one\ntwo", "one\n", "two"},
		"nothing":         {"", "", ""},
		"much":            {noise + "the end", "", "the end"},
		"a long line":     {strings.Repeat("x", 100_000) + "y", "xxx", "xy"},
		"a crash":         {noise + "runtime: out of memory: cannot allocate\nfatal error: out of memory\n\n" + noise, "fatal error: out of memory", ""},
		"a panic":         {"panic: one\n" + noise + "panic: two", "panic: two", ""},
		"words in a line": {noise + "not a fatal error: x\nthe end\n", "", "the end\n"},
	} {
		from, to, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		l := &listener{from: from, done: make(chan struct{})}
		var out bytes.Buffer
		go l.run(&out)
		if _, err := to.WriteString(c.said); err != nil {
			t.Fatal(err)
		}
		_ = to.Close()
		<-l.done
		if out.String() != c.said {
			t.Errorf("%s: %d bytes were passed on, want %d", name, out.Len(), len(c.said))
		}
		got := string(l.last)
		if len(got) > maxLastWords || !strings.HasPrefix(got, c.begins) || !strings.HasSuffix(got, c.ends) {
			t.Errorf("%s: kept %d bytes, %.60q", name, len(got), got)
		}
	}
}
