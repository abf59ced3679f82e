//go:build linux || darwin

package proc

import (
	"bytes"
	"os"
	"strconv"
	"strings"
)

// guardianName is argv[0] of every guardian and guardianMark its argv[1].
const (
	guardianName = "belay-guardian"
	guardianMark = "--guards-one-tree"
	labelMax     = 128
)

// guardianArgs is the command line: name, mark, pid of P, label. The label is
// last and always present, so that it can hold anything but NUL.
func guardianArgs(label string) []string {
	label = strings.ReplaceAll(label, "\x00", "")
	if len(label) > labelMax {
		label = label[:labelMax]
	}
	return []string{guardianName, guardianMark, strconv.Itoa(os.Getpid()), label}
}

// parseGuardian recognises a guardian by its raw command line.
func parseGuardian(cmdline []byte) (label string, ok bool) {
	f := bytes.Split(bytes.TrimSuffix(cmdline, []byte{0}), []byte{0})
	if len(f) != 4 || string(f[0]) != guardianName || string(f[1]) != guardianMark {
		return "", false
	}
	return string(f[3]), true
}

// cmdline returns the arguments joined by spaces, at most limit bytes.
func cmdline(pid, limit int) string {
	b := bytes.TrimRight(rawCmdline(pid, limit), "\x00")
	return string(bytes.ReplaceAll(b, []byte{0}, []byte{' '}))
}

// GuardianLabel reports whether the process is a guardian, and the
// Config.Label of its tree. Anybody can dress a process up as one, so it may
// be used to take rights away, never to grant them.
func GuardianLabel(pid int) (label string, ok bool) {
	return parseGuardian(rawCmdline(pid, 4096))
}

// Unseen is the label that [InTree] gives to a process that went away while it
// was looked at. It is no run's id.
const Unseen = "a process that is gone"

// InTree returns the labels of the trees that the process lies in, innermost
// first; none when it is in no tree. A process cannot leave: it remains a
// descendant of its guardian as long as that lives. One that is gone, or whose
// parents end faster than they can be read, gets the label [Unseen]: whoever
// does not stay to be looked at is not taken for somebody outside of the trees.
func InTree(pid int) (labels []string) {
	child, at := 0, pid // child is the last link that was read, 0: none
	for range 1000 {    // no real chain is longer; a race could make a circle
		p, ok := readProc(at)
		if ok && p.PPID == 0 {
			// So does one look that is being taken out of the table, and one whose
			// parent lives where we cannot see it; only the latter stays.
			p, ok = readProc(at)
		}
		switch {
		case ok && p.PPID <= 1:
			return labels
		case ok:
			child, at = at, p.PPID
			if label, ok := GuardianLabel(at); ok {
				labels = append(labels, label)
			}
		case at == pid:
			return []string{Unseen}
		default:
			// Orphans have their new parent before the old one is out of the table:
			// a parent that is still named is hidden from this user, and so is no
			// guardian.
			if c, ok := readProc(child); ok && c.PPID == at {
				return labels
			}
			child, at, labels = 0, pid, nil
		}
	}
	return append(labels, Unseen)
}
