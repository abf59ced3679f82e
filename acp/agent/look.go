package agent

import (
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/belayhq/belay/internal/peers"
	"github.com/belayhq/belay/proc"
)

// kind is how a process of the tree is treated.
type kind int

const (
	unknown kind = iota // not decided yet
	ours                // the agent itself and what runs its own programs
	behind              // an MCP server behind Belay, its wrap, and who launched that
	kept                // named by Config.Keep, or below such
	foreign             // a tool, or what a tool has left
)

// program is what a process runs. A process runs something else after an exec,
// which takes place when it is young, or changes its name.
type program struct {
	exe  string
	argv []string
	comm string
	at   time.Time // when it was read
	born time.Time
	gone int   // looks in a row that did not find the process
	seen bool  // by an earlier look
	own  owner // whether it is of the agent's home; costs reads of folders
}

// owner is what is known of whose program one is.
type owner uint8

const (
	notAsked owner = iota
	ownsIt
	ownsNot
)

// settled is the age from which on a process is taken for what it is: before, it
// may still be its parent's copy.
const settled = 2 * time.Second

// node is one process in a survey.
type node struct {
	proc.Process
	program
	parent *node // nil: none that is alive and of the tree
	kind   kind
	known  bool // it was there at an earlier look
}

// survey is the tree at one moment, with what is known about each process.
type survey struct {
	nodes []*node // parents before their children, where the births say so
	at    map[proc.ID]*node
}

// surveyLocked makes out who is who.
func (a *Agent) surveyLocked(live []proc.Process) *survey {
	s := &survey{nodes: make([]*node, 0, len(live)), at: make(map[proc.ID]*node, len(live))}
	byPID := make(map[int]*node, len(live))
	for _, p := range live {
		n := &node{Process: p, program: a.programs[p.ID()]}
		n.known, n.seen = n.seen, true
		n.gone = 0
		a.programs[p.ID()] = n.program
		n.Command = strings.Join(n.argv, " ")
		if n.Command == "" {
			n.Command = "[" + p.Comm + "]"
		}
		s.nodes = append(s.nodes, n)
		s.at[p.ID()], byPID[p.PID] = n, n
	}
	for _, n := range s.nodes {
		if n.PPID != n.PID {
			n.parent = byPID[n.PPID]
		}
	}
	slices.SortFunc(s.nodes, func(x, y *node) int {
		if x.Start != y.Start {
			return int(min(max(x.Start-y.Start, -1), 1))
		}
		return x.PID - y.PID
	})
	if a.home == nil {
		a.home = a.homeLocked(s)
	}
	for _, n := range s.nodes {
		a.judgeLocked(n, 0)
	}
	a.forgetLocked(s)
	return s
}

// fresh reports whether what is known of a process can still be believed.
func (k program) fresh(p proc.Process, now time.Time) bool {
	return k.comm == p.Comm && (k.at.Sub(k.born) > settled || now.Sub(k.at) < again)
}

// again is the least time between two looks at what one process runs: one strike
// looks at all several times.
const again = 5 * time.Millisecond

// learn reads what the processes run of whom that is not known. It is called without
// the lock, for it takes time, before a survey of the same processes.
func (a *Agent) learn(live []proc.Process) {
	now := time.Now()
	var ask []proc.Process
	a.mu.Lock()
	for _, p := range live {
		if !a.programs[p.ID()].fresh(p, now) {
			ask = append(ask, p)
		}
	}
	a.mu.Unlock()
	if len(ask) == 0 {
		return
	}
	read := make([]program, len(ask))
	for i, p := range ask {
		read[i] = program{comm: p.Comm, at: now, born: p.Born}
		read[i].exe, read[i].argv = proc.Program(p.PID)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, p := range ask {
		old := a.programs[p.ID()]
		read[i].seen, read[i].gone = old.seen, old.gone
		if old.exe == read[i].exe && slices.Equal(old.argv, read[i].argv) {
			read[i].own = old.own
		}
		a.programs[p.ID()] = read[i]
	}
}

// missing is how many looks in a row a process must not be found in before what is
// known of it is forgotten: the table is not read in one moment.
const missing = 3

// forgetLocked drops what is known of the dead.
func (a *Agent) forgetLocked(s *survey) {
	for id, p := range a.programs {
		if s.at[id] != nil {
			continue
		}
		if p.gone++; p.gone < missing {
			a.programs[id] = p
			continue
		}
		if o := a.origins[id]; o != nil && o.fam != nil {
			o.fam.buryLocked(id)
		}
		delete(a.programs, id)
		delete(a.origins, id)
	}
}

// leader reports whether a process is the one that was started.
func (a *Agent) leader(p *node) bool {
	return p.PID == a.tree.PID() && p.Start == a.tree.StartTime()
}

// maxDepth bounds the walk along parents: no real chain is longer, and a table
// that is not read in one moment could show a circle.
const maxDepth = 200

// judgeLocked says how a process is treated, its parents first.
func (a *Agent) judgeLocked(n *node, depth int) kind {
	if n.kind != unknown || depth > maxDepth {
		return n.kind
	}
	n.kind = foreign // what a circle sees
	above := ours    // of those without a parent the guardian has become the parent
	if n.parent != nil {
		above = a.judgeLocked(n.parent, depth+1)
	}
	switch {
	case a.leader(n):
		n.kind = ours
	case above == behind:
		n.kind = behind
	case a.wraps(n) && (a.helpsLocked(n.parent) || a.launches(n.parent)):
		n.kind = behind
		for up := n.parent; up != nil && up.kind == foreign && !a.helpsLocked(up); up = up.parent {
			up.kind = behind
		}
	case above == kept, a.keeps(n):
		n.kind = kept
	case a.helpsLocked(n.parent) && a.ownsLocked(n):
		n.kind = ours
	}
	return n.kind
}

// helpsLocked reports whether a process belongs to the agent's own machinery: the
// agent, or what it had before any turn, such as the launcher between it and its
// first process.
func (a *Agent) helpsLocked(n *node) bool {
	switch {
	case n == nil || n.kind == ours:
		return true
	case n.kind != foreign:
		return false
	}
	if o := a.origins[n.ID()]; o != nil {
		return len(o.turns) == 0
	}
	turns, _ := a.bornLocked(n.Start)
	return len(turns) == 0
}

// ownsLocked reports whether a process runs one of the agent's own programs.
func (a *Agent) ownsLocked(n *node) bool {
	if a.home == nil {
		return false
	}
	if n.own == notAsked {
		n.own = ownsNot
		if a.home.owns(n.exe, n.argv) {
			n.own = ownsIt
		}
		a.programs[n.ID()] = n.program
	}
	return n.own == ownsIt
}

// wraps reports whether a process is the Belay in front of an MCP server: our own
// program, or one of its name (after an update), called as `belay wrap`.
func (a *Agent) wraps(n *node) bool {
	return len(n.argv) > 1 && n.argv[1] == "wrap" && a.self != "" &&
		(n.exe == a.self || filepath.Base(n.exe) == filepath.Base(a.self))
}

// launches reports whether a process is there for the sake of such a Belay alone: a
// shell or the like with it on its command line, below the agent.
func (a *Agent) launches(n *node) bool {
	if n == nil || n.kind != foreign {
		return false
	}
	for up := n; up != nil && !a.helpsLocked(up); up = up.parent {
		line := strings.Join(up.argv, " ")
		if !strings.Contains(line, filepath.Base(a.self)) || !strings.Contains(line, "wrap") {
			return false
		}
	}
	return true
}

// keeps reports whether the user's patterns name a process.
func (a *Agent) keeps(n *node) bool {
	if len(a.cfg.Keep) == 0 {
		return false
	}
	names := []string{n.Comm, n.Command, filepath.Base(n.exe)}
	if len(n.argv) > 0 {
		names = append(names, filepath.Base(n.argv[0]))
	}
	for _, pattern := range a.cfg.Keep {
		if slices.ContainsFunc(names, func(name string) bool { return glob(pattern, name) }) {
			return true
		}
	}
	return false
}

// glob matches a pattern in which * stands for anything, also for slashes.
func glob(pattern, s string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == s
	}
	first, last := parts[0], parts[len(parts)-1]
	if !strings.HasPrefix(s, first) {
		return false
	}
	s = s[len(first):]
	for _, part := range parts[1 : len(parts)-1] {
		i := strings.Index(s, part)
		if i < 0 {
			return false
		}
		s = s[i+len(part):]
	}
	return strings.HasSuffix(s, last)
}

// homeLocked finds where the agent is installed. The command line may be that of a
// launcher (npx, a shell, env), which has the agent as its only child: it is looked
// for along that way, among those who lived before the first turn.
func (a *Agent) homeLocked(s *survey) *home {
	var at *node
	children := map[*node][]*node{}
	for _, n := range s.nodes {
		if a.leader(n) {
			at = n
		}
		if n.parent != nil && (a.first == 0 || n.Start+grain <= a.first) {
			children[n.parent] = append(children[n.parent], n) // what a turn has started is no agent
		}
	}
	if at == nil {
		return nil // gone, or not to be seen just now
	}
	argv := a.cfg.Command // npm gives its process another title
	for range maxDepth {
		if !launcher(at.exe, argv, a.cfg.Dir) {
			return findHome(at.exe, argv, a.cfg.Dir)
		}
		if len(children[at]) != 1 {
			break
		}
		at = children[at][0]
		argv = at.argv
	}
	return nil // a launcher's own home holds other people's programs; what it launches is not there yet
}

// launcher reports whether a command line starts another program, and is no
// interpreter with a program's own script, as in `node /there/index.js`.
func launcher(exe string, argv []string, dir string) bool {
	if len(peers.Commands(argv)) < 2 {
		return false
	}
	script := scriptOf(exe, argv, dir)
	if script == "" {
		return true
	}
	switch filepath.Base(resolved(script)) {
	case "npx-cli.js", "npm-cli.js", "npx", "npm", "yarn.js", "pnpm.cjs", "pnpx", "corepack.js", "uvx":
		return true
	}
	return false
}
