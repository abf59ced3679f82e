package faketool

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// WitnessEnv names the environment variable with the witness file of fakes
// that were given no -witness flag.
const WitnessEnv = "FAKETOOL_WITNESS"

// witnessWriter appends events to a file. Each event is one write with
// O_APPEND, so that lines of many processes never mix. The zero value with an
// empty path drops everything.
type witnessWriter struct {
	path string
	file *os.File
}

func newWitnessWriter(path string) (*witnessWriter, error) {
	if path == "" {
		path = os.Getenv(WitnessEnv)
	}
	w := &witnessWriter{path: path}
	if path == "" {
		return w, nil
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open witness: %w", err)
	}
	w.file = file
	return w, nil
}

// write records one event of this process, now.
func (w *witnessWriter) write(key, name, detail string) {
	w.writeAt(time.Now(), key, name, detail)
}

func (w *witnessWriter) writeAt(at time.Time, key, name, detail string) {
	if w.file == nil {
		return
	}
	line := make([]byte, 0, 96)
	line = strconv.AppendInt(line, at.UnixNano(), 10)
	line = append(line, ' ')
	line = strconv.AppendInt(line, int64(os.Getpid()), 10)
	line = append(line, ' ')
	line = append(line, word(key)...)
	line = append(line, ' ')
	line = append(line, word(name)...)
	if detail != "" {
		line = append(line, ' ')
		line = append(line, strings.ReplaceAll(detail, "\n", " ")...)
	}
	line = append(line, '\n')
	_, _ = w.file.Write(line) // a full disk shows as a missing event
}

// word makes s fit for a column: not empty, without blanks.
func word(s string) string {
	if s == "" {
		return "-"
	}
	return strings.ReplaceAll(strings.ReplaceAll(s, " ", "_"), "\n", "_")
}

// Event is one line of a witness file: what a fake did, by its own word.
type Event struct {
	Time   time.Time // when, by the wall clock of this machine
	Pid    int       // which process
	Key    string    // which call or helper; "server" for the server itself
	Name   string    // start, tick, signal, stopped, done, …
	Detail string    // the tick's number, the reason of a cancel, …
}

// Witness reads a witness file. It keeps no state and may be used by many
// goroutines; a file that does not exist yet reads as empty.
type Witness struct{ Path string }

// NewWitness returns the reader of the witness file at path.
func NewWitness(path string) *Witness { return &Witness{Path: path} }

// Events returns every event in the order of the file. A line that is being
// written is left out.
func (w *Witness) Events() []Event { return w.with("") }

// with returns the events whose lines contain the text.
func (w *Witness) with(text string) []Event {
	data, err := os.ReadFile(w.Path)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			panic(fmt.Sprintf("faketool: read witness: %v", err))
		}
		return nil
	}
	var events []Event
	for want := []byte(text); ; {
		at := bytes.Index(data, want)
		if at < 0 {
			return events
		}
		data = data[bytes.LastIndexByte(data[:at], '\n')+1:]
		line, rest, whole := bytes.Cut(data, []byte{'\n'})
		if !whole {
			return events
		}
		if e, ok := parseEvent(string(line)); ok {
			events = append(events, e)
		}
		data = rest
	}
}

func parseEvent(line string) (Event, bool) {
	part := strings.SplitN(line, " ", 5)
	if len(part) < 4 {
		return Event{}, false
	}
	nano, err1 := strconv.ParseInt(part[0], 10, 64)
	pid, err2 := strconv.Atoi(part[1])
	if err1 != nil || err2 != nil {
		return Event{}, false
	}
	e := Event{Time: time.Unix(0, nano), Pid: pid, Key: part[2], Name: part[3]}
	if len(part) == 5 {
		e.Detail = part[4]
	}
	return e, true
}

// Of returns the events of one key; an empty name means any. Only lines that can
// be one are parsed: a test that polls must not take the machine from what it
// waits for.
func (w *Witness) Of(key, name string) []Event {
	return slices.DeleteFunc(w.with(" "+key+" "+name), func(e Event) bool {
		return e.Key != key || (name != "" && e.Name != name)
	})
}

// Last returns the newest event with this key and name.
func (w *Witness) Last(key, name string) (Event, bool) {
	all := w.Of(key, name)
	if len(all) == 0 {
		return Event{}, false
	}
	return all[len(all)-1], true
}

// Count returns how many events have this key and name.
func (w *Witness) Count(key, name string) int { return len(w.Of(key, name)) }

// LastTick returns the time of the newest tick of key, the zero time if there
// is none.
func (w *Witness) LastTick(key string) time.Time {
	e, _ := w.Last(key, "tick")
	return e.Time
}

// Pids returns every process that wrote under key, each once, oldest first.
// A key that ends in "/" or "/*" takes all keys below it, as the helpers of a
// call write under "<key>/<how>".
func (w *Witness) Pids(key string) []int {
	prefix, below := strings.CutSuffix(strings.TrimSuffix(key, "*"), "/")
	var pids []int
	for _, e := range w.Events() {
		match := e.Key == key || (below && strings.HasPrefix(e.Key, prefix+"/"))
		if match && !slices.Contains(pids, e.Pid) {
			pids = append(pids, e.Pid)
		}
	}
	return pids
}

// WaitFor waits until an event with this key and name exists and returns the
// first one; it gives up with an error after the time given.
func (w *Witness) WaitFor(key, name string, within time.Duration) (Event, error) {
	return w.WaitCount(key, name, 1, within)
}

// WaitCount waits until n events with this key and name exist and returns the
// n-th.
func (w *Witness) WaitCount(key, name string, n int, within time.Duration) (Event, error) {
	for end := time.Now().Add(within); ; time.Sleep(2 * time.Millisecond) {
		if all := w.Of(key, name); len(all) >= n {
			return all[n-1], nil
		}
		if time.Now().After(end) {
			return Event{}, fmt.Errorf("witness %s: %d of %q %q not seen within %v, but %s",
				w.Path, n, key, name, within, w.tail())
		}
	}
}

// StillTicking watches for the window given and reports whether anything was
// written under key in that time. Choose a window of several tick intervals.
func (w *Witness) StillTicking(key string, window time.Duration) bool {
	before := w.Count(key, "tick")
	for end := time.Now().Add(window); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if w.Count(key, "tick") > before {
			return true
		}
	}
	return false
}

// Violations returns what a fake saw that no peer may ever send, as the fake
// wrote it down.
func (w *Witness) Violations() []Event { return w.Of(serverKey, "violation") }

// tail describes the last events for an error message.
func (w *Witness) tail() string {
	events := w.Events()
	if len(events) == 0 {
		return "the file is empty"
	}
	var text []string
	for _, e := range events[max(0, len(events)-5):] {
		text = append(text, strings.TrimSpace(fmt.Sprintf("%d %s %s %s", e.Pid, e.Key, e.Name, e.Detail)))
	}
	return "last: " + strings.Join(text, "; ")
}

// Alive reports whether a process with this pid exists and is no zombie.
// Pids can be reused: ask soon.
func Alive(pid int) bool { return alive(pid) }

// WaitDead waits until none of the processes is alive and returns those that
// still are when the time is up.
func WaitDead(pids []int, within time.Duration) []int {
	for end := time.Now().Add(within); ; time.Sleep(2 * time.Millisecond) {
		left := slices.DeleteFunc(slices.Clone(pids), func(pid int) bool { return !alive(pid) })
		if len(left) == 0 || time.Now().After(end) {
			return left
		}
	}
}

// Record appends one event of this process to the witness file at path, for
// fakes that are not of this package. An empty path drops it.
func Record(path, key, name, detail string) {
	if path == "" {
		return
	}
	w, err := newWitnessWriter(path)
	if err != nil {
		return // shows as a missing event
	}
	w.write(key, name, detail)
	_ = w.file.Close()
}
