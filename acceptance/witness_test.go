//go:build unix

package acceptance

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// event is one line of a witness file: what a tool did, by its own word.
type event struct {
	at     time.Time
	pid    int
	key    string
	name   string
	detail string
}

// witness follows a witness file that many tests ask about at once, and reads
// each of its bytes once.
type witness struct {
	path string

	mu     sync.Mutex
	offset int64
	rest   []byte // of a line that is being written
	events map[string][]event
}

func newWitness(path string) *witness { return &witness{path: path, events: map[string][]event{}} }

// catchUpLocked reads what has come since.
func (w *witness) catchUpLocked() {
	f, err := os.Open(w.path)
	if err != nil {
		return // no tool has started yet
	}
	defer f.Close()
	more, err := io.ReadAll(io.NewSectionReader(f, w.offset, 1<<40))
	if err != nil {
		panic(err)
	}
	w.offset += int64(len(more))
	data := append(w.rest, more...)
	for {
		line, rest, whole := bytes.Cut(data, []byte("\n"))
		if !whole {
			w.rest = append([]byte(nil), data...)
			return
		}
		data = rest
		part := strings.SplitN(string(line), " ", 5)
		if len(part) < 4 {
			continue
		}
		nano, _ := strconv.ParseInt(part[0], 10, 64)
		pid, _ := strconv.Atoi(part[1])
		e := event{at: time.Unix(0, nano), pid: pid, key: part[2], name: part[3]}
		if len(part) == 5 {
			e.detail = part[4]
		}
		w.events[e.key] = append(w.events[e.key], e)
	}
}

// of is what was written under a key; an empty name means all.
func (w *witness) of(key, name string) (list []event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.catchUpLocked()
	for _, e := range w.events[key] {
		if name == "" || e.name == name {
			list = append(list, e)
		}
	}
	return list
}

func (w *witness) count(key, name string) int { return len(w.of(key, name)) }

// lastTick is when the key's newest tick was; zero for none.
func (w *witness) lastTick(key string) (at time.Time) {
	for _, e := range w.of(key, "tick") {
		at = e.at
	}
	return at
}

// wait waits until so many are there and returns the last of them.
func (w *witness) wait(key, name string, n int, within time.Duration) (event, error) {
	for end := time.Now().Add(within); ; time.Sleep(10 * time.Millisecond) {
		list := w.of(key, name)
		if len(list) >= n {
			return list[n-1], nil
		}
		if time.Now().After(end) {
			return event{}, fmt.Errorf("%d of %d times %q of %q within %v; all of it: %v", len(list), n, name, key, within, w.of(key, ""))
		}
	}
}

// grows reports whether a tick is written within the time.
func (w *witness) grows(key string, within time.Duration) bool {
	before := w.count(key, "tick")
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if w.count(key, "tick") > before {
			return true
		}
	}
	return false
}

// saw waits for an event in the witness.
func (s *server) saw(t testing.TB, key, name string) event {
	t.Helper()
	e, err := s.wit.wait(key, name, 1, 30*time.Second)
	if err != nil {
		t.Fatalf("%v\n%s", err, tail(s.log.String()))
	}
	return e
}

// still fails unless the key's call goes on.
func (s *server) still(t testing.TB, key string) {
	t.Helper()
	if !s.wit.grows(key, 5*time.Second) {
		t.Errorf("%s has stopped", key)
	}
}

// quiet waits until the key's witness has not grown for a while.
func (s *server) quiet(t testing.TB, key string) {
	t.Helper()
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end); { // force takes half a second, and more on a busy machine
		if !s.wit.grows(key, 250*time.Millisecond) { // a tick is due each 20 ms
			return
		}
	}
	t.Fatalf("%s goes on", key)
}
