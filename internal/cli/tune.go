package cli

import (
	"os"
	"runtime"
	"runtime/debug"

	"github.com/belayhq/belay/proc"
)

// tune fits the Go runtime to a process that passes messages on. GOMAXPROCS and
// GOGC in the environment win.
//
// One processor is enough to pass on tens of thousands of messages in a second,
// and with a second one every message makes the runtime look for a thread to
// share the work with, which takes time from the client and the server that
// are to do it. This holds only if nothing blocks a thread for long. Who serves
// many gets half of the processors, since those who call and those who are called
// need the others. procs of 0 leaves it to the runtime.
//
// What a call leaves behind is small and regular, so that a collection at every
// doubling of a few megabytes costs more than the memory is worth.
func tune(procs int) {
	if procs > 0 && os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(procs)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(collectAt)
	}
}

// half is half of the processors there are, at least one.
func half() int { return max(1, runtime.GOMAXPROCS(0)/2) }

// collectAt is the growth of the heap, in percent, at which it is collected.
const collectAt = 200

// kept is how much memory an idle process may keep for the next burst.
const kept = 8 << 20

// giveBack returns the memory of a burst to the operating system. The runtime
// does so by itself only little by little and after minutes, and wakes for it.
func giveBack() {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	if m.HeapSys-m.HeapReleased > kept {
		runtime.GC() // the first collection only asks the pools of buffers for theirs
		debug.FreeOSMemory()
	}
}

// fallIdle is what a process does that waits for its only session: it gives its
// memory back, and the pages of its code with it. Who serves many must not: the
// other sessions run on these pages.
func fallIdle() {
	giveBack()
	proc.Unload()
}
