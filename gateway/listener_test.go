package gateway

import (
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// said is what a listener passed on.
type said struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// TestListener passes on all that a process says, and keeps the end of it: of a crash
// the beginning, however long what follows is; and passes that on only where nobody
// has a name for it.
func TestListener(t *testing.T) {
	noise := strings.Repeat("a line of the log\n", 2000)
	for name, c := range map[string]struct {
		said, begins, ends string
		held               bool // for the name
	}{
		"little":          {"one\ntwo", "one\n", "two", false},
		"nothing":         {"", "", "", false},
		"much":            {noise + "the end", "", "the end", false},
		"a long line":     {strings.Repeat("x", 100_000) + "y", "xxx", "xy", false},
		"a crash":         {noise + "runtime: out of memory: cannot allocate\nfatal error: out of memory\n\n" + noise, "fatal error: out of memory", "", true},
		"a panic":         {"panic: one\n" + noise + "panic: two", "panic: two", "", true},
		"words in a line": {noise + "not a fatal error: x\nthe end\n", "", "the end\n", false},
	} {
		for _, named := range []bool{false, true} {
			from, to, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			out := &said{}
			l := &listener{from: from, to: out, done: make(chan struct{})}
			go l.run()
			if _, err := to.WriteString(c.said); err != nil {
				t.Fatal(err)
			}
			_ = to.Close()
			<-l.done // a busy machine takes longer than is given to the last words of the dead
			got := string(l.words())
			if len(got) > maxLastWords || !strings.HasPrefix(got, c.begins) || !strings.HasSuffix(got, c.ends) {
				t.Errorf("%s: kept %d bytes, %.60q", name, len(got), got)
			}
			l.bury(named)
			l.bury(false) // the end of the process's session comes later
			passed := out.String()
			switch {
			case !c.held && passed != c.said:
				t.Errorf("%s: %d bytes were passed on, want %d", name, len(passed), len(c.said))
			case c.held && named && !strings.HasSuffix(strings.TrimSpace(passed), c.begins):
				t.Errorf("%s has a name, and its state was passed on: %.100q", name, passed[strings.LastIndex(passed, c.begins):])
			case c.held && !named && !strings.HasSuffix(passed, got):
				t.Errorf("%s has no name, and was not passed on", name)
			}
		}
	}
}

// TestListenerWords: a process that says the words of a crash and lives is heard all
// the same.
func TestListenerWords(t *testing.T) {
	t.Parallel()
	from, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out := &said{}
	l := &listener{from: from, to: out, done: make(chan struct{})}
	go l.run()
	const words = "panic: that is the name of a button\nthe next line\n"
	if _, err := to.WriteString(words); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); out.String() != words; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("passed on: %q", out.String())
		}
	}
	if _, err := to.WriteString("and on\n"); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(30 * time.Second); !strings.HasSuffix(out.String(), "and on\n"); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("passed on: %q", out.String())
		}
	}
	l.bury(false) // although the other end is open
	_ = to.Close()
}
