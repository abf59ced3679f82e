package supervise

import (
	"slices"
	"strings"
	"time"

	"github.com/belayhq/belay/proc"
)

// Signs is what a tree shows of work that may not die with it, and of how it
// wants to be ended. It only grows while the tree is being looked at.
type Signs struct {
	Relay  string   // why the command, or a process in the tree, is a relay; ""
	Daemon string   // the container daemon's socket to which it held a connection; ""
	Remote []string // remote ends of network connections it held, at most 16
	Slow   string   // why somebody in it needs time to clean up; ""
}

const maxRemote = 16

// elsewhere is why the death of the local processes proves nothing; "" if it
// does prove the end.
func (s *Signs) elsewhere() string {
	if s.Relay != "" {
		return s.Relay
	}
	if s.Daemon != "" {
		return "it held a connection to " + s.Daemon
	}
	return ""
}

func (s *Signs) remote(more []string) {
	for _, r := range more {
		if len(s.Remote) < maxRemote && !slices.Contains(s.Remote, r) {
			s.Remote = append(s.Remote, r)
		}
	}
}

// Look collects the signs that the tree shows now and returns all that were
// ever seen. It reads the process table and the tree's connections: some
// milliseconds. The stopping methods call it before they act.
func (t *Tree) Look() Signs {
	list, _ := t.List() // without a list there are no more signs than before
	daemons := t.HeldDaemon()
	remote := t.RemoteConns()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.signs.Daemon == "" && len(daemons) > 0 {
		t.signs.Daemon = daemons[0]
	}
	t.signs.remote(remote)
	for _, p := range list {
		t.seeLocked(p)
	}
	return t.copySigns()
}

// seeLocked asks what is known about one process. Its arguments are joined by
// blanks, which is exact enough to find a word among them.
func (t *Tree) seeLocked(p proc.Process) {
	if p.Spare != "" || t.known[p.ID()] {
		return
	}
	if len(t.known) < maxKnown {
		t.known[p.ID()] = true
	}
	argv := strings.Fields(p.Command)
	if t.signs.Relay == "" {
		t.signs.Relay, _ = t.facts.Relay(argv)
	}
	if t.signs.Slow == "" {
		t.signs.Slow, _ = t.facts.Slow(argv)
	}
}

// maxKnown bounds the memory of processes that were asked about already.
const maxKnown = 4096

func (t *Tree) copySigns() Signs {
	s := t.signs
	s.Remote = slices.Clone(s.Remote)
	return s
}

// Born returns the live processes of the tree that were born at or after
// since, without the leader and the spared: one sign of life of a call, and
// what keeps its result from ending the ladder (DESIGN 11, 1 and 4).
func (t *Tree) Born(since proc.Stamp) []proc.Process {
	would, _ := t.Tree.Plan(Since(since))
	return would
}

// Signs of life by processor time (DESIGN 11, 1 and 12): above 5 % of a core
// over 500 ms.
const (
	LifeWindow = 500 * time.Millisecond
	lifeShare  = 20 // one twentieth of a core
)

// Meter measures whether a tree uses processor time. Its zero value is ready;
// it belongs to one goroutine.
type Meter struct {
	at   time.Time
	used time.Duration
}

// Sample notes the processor time at a moment. It reports whether at least
// LifeWindow has passed since the last noted sample and the tree used more
// than 5 % of a core in that time. A sample that comes too early is not noted.
func (m *Meter) Sample(now time.Time, used time.Duration) (alive, measured bool) {
	passed := now.Sub(m.at)
	if m.at.IsZero() {
		m.at, m.used = now, used
		return false, false
	}
	if passed < LifeWindow {
		return false, false
	}
	alive = used-m.used > passed/lifeShare
	m.at, m.used = now, used
	return alive, true
}
