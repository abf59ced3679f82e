package proc

import (
	"os"
	"path"
	"strings"
)

// CgroupMode says whether a tree gets a cgroup v2 of its own.
type CgroupMode int

const (
	// CgroupAuto uses a cgroup where one can be made and killed as a whole,
	// and does without where not.
	CgroupAuto CgroupMode = iota
	// CgroupOff never uses one. The guarantees are the same, a kill takes a
	// few milliseconds longer.
	CgroupOff
)

// Config describes one command. Only Path is required.
type Config struct {
	// Path is the command: a path with a slash (relative to Dir), or a name
	// looked up in the PATH of Env. Required. It is argv[0] as well.
	Path string
	// Args are the arguments after argv[0].
	Args []string
	// Env is the whole environment as name=value; nil means P's own.
	Env []string
	// Dir is the working directory; "" means P's own.
	Dir string
	// Label names the tree for others (a run id): GuardianLabel and InTree
	// return it. At most 128 bytes, visible to every user of the machine.
	Label string
	// Stdin, Stdout, Stderr are given to the leader as they are and stay the
	// caller's to close. nil makes a pipe, see Tree.Stdin and its siblings.
	Stdin, Stdout, Stderr *os.File
	// Foreground keeps the leader in P's process group, so that a program at
	// a terminal may read it and gets its Ctrl-C. False means a new group.
	Foreground bool
	// Cgroup: see CgroupMode; the zero value is CgroupAuto.
	Cgroup CgroupMode
	// Memory bounds the memory of all processes of the tree together, in bytes,
	// where they have a cgroup with a memory controller; the kernel then ends the
	// whole tree, see Exit.OutOfMemory. 0, and everywhere else: no bound.
	Memory int64
	// Spare lists who is not to be harmed, beside processes that moved to
	// another systemd scope or service, which are always spared.
	Spare []SpareRule
	// Marker is a name=value added to the leader's environment; "" means
	// BELAY_TREE=<unique>. It finds candidates when a guardian was lost.
	Marker string
}

// SpareRule matches processes of a tree that are to be left alone. It is plain
// data, so that it can come from a file and travel to the guardian. All
// conditions that are set must hold; a rule without Comm matches nothing. A
// rule that matches the leader itself is out of force for that tree: who runs
// a browser as the tool wants it stopped with its helpers.
type SpareRule struct {
	// Comm is a glob (path.Match) for the kernel's name of the process, at
	// most 15 bytes of it, for example "tmux: server" or "chrom*". Required.
	Comm string `json:"comm"`
	// Args are substrings that must all occur in the command line.
	Args []string `json:"args,omitempty"`
	// NotArgs are substrings of which none may occur in it, for example
	// "--headless", "--remote-debugging", and "--type=" for the helpers of a
	// browser (those of a spared one are spared as its descendants).
	NotArgs []string `json:"notArgs,omitempty"`
	// Why is said in reports; "" becomes "spared by rule <Comm>".
	Why string `json:"why,omitempty"`
}

// matches reports whether the rule covers a process with this name and
// command line. cmdline is only asked for when the name fits, since reading
// it is the expensive part.
func (r SpareRule) matches(comm string, cmdline func() string) bool {
	if r.Comm == "" {
		return false
	}
	if ok, err := path.Match(r.Comm, comm); err != nil || !ok {
		return false
	}
	if len(r.Args) == 0 && len(r.NotArgs) == 0 {
		return true
	}
	line := cmdline()
	for _, s := range r.Args {
		if !strings.Contains(line, s) {
			return false
		}
	}
	for _, s := range r.NotArgs {
		if strings.Contains(line, s) {
			return false
		}
	}
	return true
}

func (r SpareRule) why() string {
	if r.Why != "" {
		return r.Why
	}
	return "spared by rule " + r.Comm
}

// Selection says which processes of a tree an operation means. The zero value
// is all of them, except those spared by rule. The parts can be combined.
//
// Births are compared in the kernel's unit of 10 ms: a process born in the
// same unit as OnlySince counts as born since.
type Selection struct {
	// SpareFrom and SpareUntil spare processes born in [SpareFrom,
	// SpareUntil) and their descendants, with WhyEarlier: what earlier calls
	// left behind. Zero SpareUntil: no such window.
	SpareFrom, SpareUntil Stamp
	// OnlySince means only processes born at or after it, and never the
	// leader: the children of one call, the server kept alive. Zero: off.
	OnlySince Stamp
	// Pick, if set, says which processes are meant, and never the leader. It is
	// asked at every look, so that it sees who was born meanwhile, with all live
	// processes of the tree: the leader is among them, and who is spared has the
	// reason in Spare. A spared one that it returns is not harmed, and listed; one
	// that it does not return is neither. It may be called by several goroutines
	// at once and must not call methods of the tree.
	Pick func(live []Process) map[ID]bool
}

// WhyEarlier is Process.Spare for those spared by a Selection's window.
const WhyEarlier = "started by an earlier call"

// WhyScope begins Process.Spare for those found in another systemd scope.
const WhyScope = "in another scope"

// bornUnit is the resolution of start times in /proc (USER_HZ is 100 on every
// architecture that Go supports).
const bornUnit = Stamp(10_000_000)

func (s Stamp) unit() Stamp { return s - s%bornUnit }

// everything reports whether nothing is left out.
func (s Selection) everything() bool {
	return s.SpareUntil == 0 && s.OnlySince == 0 && s.Pick == nil
}

// spares reports whether the window spares a process born then.
func (s Selection) spares(born Stamp) bool {
	return s.SpareUntil != 0 && born.unit() >= s.SpareFrom.unit() && born.unit() < s.SpareUntil.unit()
}

// means reports whether the selection covers a process that is not spared.
func (s Selection) means(born Stamp, leader bool) bool {
	if s.OnlySince == 0 {
		return true
	}
	return !leader && born.unit() >= s.OnlySince.unit()
}
