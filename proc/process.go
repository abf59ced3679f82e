package proc

import (
	"fmt"
	"syscall"
	"time"
)

// Stamp is a moment in nanoseconds on the clock that the system uses for the
// start of processes: since boot, suspended time included, on Linux; since
// 1970 elsewhere. Wall clock steps do not disturb it on Linux. Zero is "not
// set". Stamps of different machines or boots do not compare.
type Stamp int64

// ID names one process for ever: a pid alone may be used again.
type ID struct {
	PID  int
	Born Stamp
}

func (id ID) String() string { return fmt.Sprintf("pid %d", id.PID) }

// Process is one live process of a tree as it was seen at one moment.
type Process struct {
	PID, PPID, PGID, SID int
	// Comm is the kernel's short name, Command the arguments joined by
	// spaces, at most 512 bytes. Command can hold secrets: redact it before
	// it is stored or shown to others.
	Comm, Command string
	// Start names the process together with PID; Born is the same as time.
	Start Stamp
	Born  time.Time
	// CPU is the processor time it has used, without its children.
	CPU time.Duration
	UID int
	// State is the kernel's letter: R, S, D, T, ...
	State string
	// Spare says why the process is not harmed; "" when it may be.
	Spare string

	threads  int           // Linux: number of threads
	childCPU time.Duration // processor time of children it has reaped
}

// ID returns the lasting name of the process.
func (p Process) ID() ID { return ID{p.PID, p.Start} }

// live is false for a zombie. A process whose first thread ended while others
// run shows as Z too; it lives.
func (p Process) live() bool {
	switch p.State {
	case "Z":
		return p.threads > 1
	case "X", "x":
		return false
	}
	return true
}

// Means by which a Report's processes were ended.
const (
	MeansNone   = ""       // nothing had to be done
	MeansSignal = "signal" // SIGTERM only
	MeansCgroup = "cgroup" // cgroup.kill
	MeansSweep  = "sweep"  // stop all, look again, kill all
	MeansGroup  = "group"  // darwin: group and known descendants
	MeansJob    = "job"    // Windows: job object
)

// Report says what an operation did and what it saw.
type Report struct {
	// Gone: no selected process is left alive. Spared processes, and those
	// that the Selection left out, may be.
	Gone bool
	// Signalled were sent SIGTERM, Killed were killed; each process once, in
	// the order it happened, at most 1000 of each.
	Signalled, Killed []Process
	// Survivors are selected processes alive at the end; Spared those that
	// were not to be harmed, with the reason in Process.Spare.
	Survivors, Spared []Process
	// Means is the strongest means used, one of the Means constants.
	Means string
	// TakenOver: the guardian had died and P acted in its place.
	TakenOver bool
}

const (
	reportMax  = 1000     // bound of the lists of a Report
	commandMax = 512      // bound of Process.Command, in bytes
	cmdlineMax = 32 << 10 // of what spare rules look at
)

func appendOnce(list []Process, p Process) []Process {
	if len(list) >= reportMax {
		return list
	}
	for i := range list {
		if list[i].PID == p.PID && list[i].Start == p.Start {
			return list
		}
	}
	return append(list, p)
}

// Exit says how a leader ended.
type Exit struct {
	// Code is the exit code, -1 when a signal ended it.
	Code int `json:"code"`
	// Signal is the signal that ended it, 0 when it exited by itself.
	Signal syscall.Signal `json:"signal,omitempty"`
	// Core: a core image was written.
	Core bool `json:"core,omitempty"`
	// Unknown: it is dead, and how it ended could not be learnt (its
	// guardian died with the answer).
	Unknown bool `json:"unknown,omitempty"`
	// OutOfMemory: the kernel has ended processes of the tree, which had more
	// memory than Config.Memory.
	OutOfMemory bool `json:"outOfMemory,omitempty"`
}

// String is made for messages: "exit code 3", "signal: killed".
func (x Exit) String() string {
	switch {
	case x.OutOfMemory:
		return "out of memory"
	case x.Unknown:
		return "ended, exit code unknown"
	case x.Signal != 0:
		return "signal: " + x.Signal.String()
	}
	return fmt.Sprintf("exit code %d", x.Code)
}
