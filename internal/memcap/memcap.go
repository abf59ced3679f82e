package memcap

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

// ExitCode is how a process ends that found itself over its bound. It is none of
// those that shells, signals and the Go runtime use.
const ExitCode = 86

// words are said on stderr before that end.
const words = "belay: the memory bound of this process is exceeded"

// Least is the smallest bound: below it a Go program does not get far.
const Least = 32 << 20

const (
	every = 5 * time.Millisecond // the watch's pause
	awake = time.Second          // how long it goes on after a collection

	// margin is what the kernel allows beyond the bound: the runtime takes address
	// space in pieces of 64 MiB, and its own tables and stacks count as well.
	margin = 128 << 20
)

// Cap bounds the memory of this process; less than [Least] counts as Least. over is
// called once, from a goroutine of its own, when the bound is exceeded; nil ends the
// process with [ExitCode]. The kernel's bound, where there is one, does not ask.
// stop ends the watch and takes the collector's bound back; what the kernel was told
// stays. Call Cap once in the life of a process.
func Cap(limit int64, over func()) (stop func()) {
	limit = max(limit, Least)
	before := debug.SetMemoryLimit(limit - limit/8) // it is to be busy before the watch strikes
	debug.SetMaxStack(int(limit / 2))               // of one goroutine; the runtime's own bound is 1 GB
	refuse(limit + margin)
	if over == nil {
		over = func() {
			fmt.Fprintf(os.Stderr, "%s (%d MiB)\n", words, limit>>20)
			os.Exit(ExitCode)
		}
	}
	w := &watch{limit: limit, over: over, woken: make(chan struct{}, 1), end: make(chan struct{})}
	w.done.Go(w.run)
	var once sync.Once
	return func() {
		once.Do(func() {
			close(w.end)
			w.done.Wait()
			debug.SetMemoryLimit(before)
		})
	}
}

// Died reports whether a process that ended with this code and these last words on
// stderr did so because of its bound: by its own watch, or refused by the kernel.
// The words count only with the exit code that the runtime then has, so that a
// program that merely prints them has not died of anything.
func Died(code int, stderr []byte) bool {
	if code == ExitCode {
		return true
	}
	for _, w := range refused {
		if code == w.code && bytes.Contains(stderr, []byte(w.words)) {
			return true
		}
	}
	return false
}

// refused is how a Go program ends that gets no more memory, or may not have it.
var refused = []struct {
	code  int
	words string
}{
	{2, "fatal error: runtime: out of memory"},
	{2, "fatal error: runtime: cannot allocate memory"},
	{2, "fatal error: out of memory"},
	{2, "fatal error: pageAlloc: out of memory"},
	{2, "fatal error: newosproc"},              // a thread needs a stack
	{2, "runtime/cgo: pthread_create failed"},  // the same, where threads are C's
	{2, "fatal error: stack overflow"},         // of recursion in Go code, which nothing can catch
	{66, "ThreadSanitizer failed to allocate"}, // of a build with the race detector
}

// watch is the second line. It looks only while memory is used up: whoever takes much
// more than there is makes the collector work, and each collection wakes the watch.
type watch struct {
	limit int64
	over  func()
	woken chan struct{} // has room for one
	end   chan struct{}
	done  sync.WaitGroup
}

// sentinel is garbage from the beginning: its finalizer runs behind each collection.
type sentinel struct{ _ *byte } // with a pointer, to be an object of its own

// post has the next collection wake the watch, and post the next sentinel.
func (w *watch) post() {
	runtime.SetFinalizer(&sentinel{}, func(*sentinel) {
		select {
		case <-w.end:
			return
		case w.woken <- struct{}{}:
		default:
		}
		w.post()
	})
}

func (w *watch) run() {
	w.post()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for since := time.Now(); ; {
		select {
		case <-tick.C:
			if time.Since(since) > awake {
				tick.Stop()
			}
		case <-w.woken:
			since = time.Now()
			tick.Reset(every)
		case <-w.end:
			return
		}
		if used() <= w.limit {
			continue
		}
		// Most of it may be garbage. A collection that another allocates against
		// would not end for long; far beyond the bound there is no time for one.
		if used() < w.limit+w.limit/2 {
			runtime.GC()
			if used() <= w.limit {
				continue
			}
		}
		w.over()
		return
	}
}

// used is the memory that the runtime has of the system and has not given back,
// whatever it uses it for, less what is free for the taking: pages of the heap
// that are unused go back in their own time, and are no harm.
func used() int64 {
	sample := [3]metrics.Sample{
		{Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/released:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(sample[:])
	return int64(sample[0].Value.Uint64()) - int64(sample[1].Value.Uint64()) - int64(sample[2].Value.Uint64())
}
