//go:build linux || darwin

package proc

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// orphanLimit bounds how long a guardian without P goes on killing. Only a
// process in an uninterruptible sleep, or of another user, lasts.
const orphanLimit = 30 * time.Second

// Main makes this process a guardian if it was started as one, and then never
// returns. Call it first thing in main, and in TestMain of every package whose
// tests start trees. Otherwise it returns at once.
func Main() {
	if len(os.Args) != 4 || os.Args[0] != guardianName || os.Args[1] != guardianMark {
		return
	}
	g := &guard{}
	os.Exit(g.run())
}

// guardianEnv is the whole environment of a guardian: it tunes the Go runtime
// for a process that sleeps, and is never seen by the leader.
func guardianEnv() []string {
	// A binary built with the race detector would sleep a second at its exit.
	env := []string{"GOMAXPROCS=1", "GOGC=off", "GOMEMLIMIT=16MiB", "GOTRACEBACK=none", "GORACE=atexit_sleep_ms=0"}
	// A binary built for coverage complains without it.
	if dir, ok := os.LookupEnv("GOCOVERDIR"); ok {
		env = append(env, "GOCOVERDIR="+dir)
	}
	return env
}

// guard is a guardian: two blocked system calls, one that waits for children
// and one that waits for P.
type guard struct {
	order  order
	leader ID
	cg     *cgroup
}

func (g *guard) run() int {
	for fd := fdControl; fd <= fdStderr; fd++ {
		// P's ends came by exec; the leader gets copies of three of them and
		// none of the control socket.
		syscall.CloseOnExec(fd)
	}
	if err := becomeGuardian(); err != nil {
		return g.fail(stepOrder, err)
	}
	in := bufio.NewReaderSize(controlReader{}, 4096)
	if err := readLine(in, &g.order, orderMax); err != nil {
		// P died, or somebody started a guardian by hand.
		return 2
	}
	if err := g.start(); err != nil {
		return g.fail(stepExec, err)
	}
	born := Stamp(0)
	if p, ok := readProc(g.leader.PID); ok { // also as a zombie: nobody reaps but us
		born = p.Start
	}
	g.leader.Born = born
	say(notice{Started: &started{PID: g.leader.PID, Born: born, Cgroup: g.cg != nil}})
	// The order with its environment is garbage now; a guardian may sleep for
	// days.
	g.order.Env, g.order.Args = nil, nil
	go g.watch(in)
	debug.FreeOSMemory()
	Unload()
	g.reap()
	return 0
}

func (g *guard) fail(step string, err error) int {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		errno = syscall.EIO
	}
	say(notice{Failed: &failed{Step: step, Errno: int(errno)}})
	return 1
}

// start runs the leader, in the cgroup where that works.
func (g *guard) start() error {
	attr := &syscall.ProcAttr{
		Dir:   string(g.order.Dir),
		Env:   splitNUL(g.order.Env),
		Files: []uintptr{fdStdin, fdStdout, fdStderr},
		Sys:   &syscall.SysProcAttr{Setpgid: true, Pgid: g.order.Group},
	}
	args := splitNUL(g.order.Args)
	path := string(g.order.Path)
	if g.order.Cg != "" {
		if pid, err := forkInto(g.order.Cg, path, args, attr); err == nil {
			g.leader.PID, g.cg = pid, &cgroup{dir: g.order.Cg}
		}
		// Whatever failed, without the cgroup it either works or fails again
		// for its true reason.
	}
	if g.leader.PID == 0 {
		pid, err := syscall.ForkExec(path, args, attr)
		if err != nil {
			return err
		}
		g.leader.PID = pid
	}
	for fd := fdStdin; fd <= fdStderr; fd++ {
		_ = syscall.Close(fd)
	}
	// It must not keep a file system busy.
	_ = os.Chdir("/")
	// The guardian outlives signals meant for everybody (a service manager's
	// SIGTERM, a closed terminal): P decides, and its death is seen. Only
	// now, since ignored signals stay ignored in a new program.
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU)
	return nil
}

// reap waits for children until there is none left. As a subreaper it is the
// parent of every orphan, so no child left means no descendant left: the tree
// has ended.
func (g *guard) reap() {
	for {
		var ws syscall.WaitStatus
		pid, err := wait4Any(&ws)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			break
		}
		if pid == g.leader.PID && (ws.Exited() || ws.Signaled()) {
			x := exitOf(ws)
			x.OutOfMemory = g.cg.starved()
			say(notice{Exit: &x})
		}
	}
	awaitStrays(g.leader)
	g.cg.remove()
	say(notice{Empty: true})
}

func exitOf(ws syscall.WaitStatus) Exit {
	if ws.Signaled() {
		return Exit{Code: -1, Signal: ws.Signal(), Core: ws.CoreDump()}
	}
	return Exit{Code: ws.ExitStatus()}
}

// watch waits for P. A farewell means that who is left is spared: the guardian
// then only reaps, until they or P end. The end of the stream before it means
// that P died.
func (g *guard) watch(in *bufio.Reader) {
	var f farewell
	if err := readLine(in, &f, 4096); err == nil && f.End {
		_ = readLine(in, &f, 4096)
		os.Exit(0)
	}
	g.cleanUp()
	os.Exit(0)
}

// cleanUp ends the tree without P: SIGTERM to all, SIGKILL half a second
// later, until nobody but the spared is left. When the last one is gone, reap
// ends the process in the middle of this.
func (g *guard) cleanUp() {
	// One second is little on a machine that is busy, perhaps with this very
	// tree. Without the right to it this fails, and nothing is lost.
	runtime.LockOSThread() // the priority is one thread's
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, -10)
	e := newEngine(g.leader, os.Getpid(), g.cg, g.order.Spare)
	e.silent = true
	g.cg.thaw()
	track := newTracker(selfID(), g.leader)
	e.members = func(v *view) []Process { return v.pick(track.pids(v)) }
	ctx, cancel := context.WithTimeoutCause(context.Background(), endGrace, errors.New("grace is over"))
	r, _ := e.terminate(ctx, Selection{}, 0, nil)
	cancel()
	if !r.Gone {
		ctx, cancel = context.WithTimeoutCause(context.Background(), orphanLimit, errors.New("gave up"))
		_, _ = e.kill(ctx, Selection{})
		cancel()
	}
	if g.cg != nil {
		g.cg.evacuate()
		g.cg.remove()
	}
}

// controlReader reads the control socket with plain blocking reads: the
// runtime's poller would cost memory and a descriptor.
type controlReader struct{}

func (controlReader) Read(b []byte) (int, error) {
	for {
		n, err := syscall.Read(fdControl, b)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return 0, err
		}
		if n == 0 {
			return 0, io.EOF
		}
		return n, nil
	}
}

// say sends a notice. P may be gone; then watch knows.
func say(n notice) {
	b := line(n)
	for len(b) > 0 {
		w, err := unix.Write(fdControl, b)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return
		}
		b = b[w:]
	}
}

// readLine reads one JSON line of at most limit bytes.
func readLine(in *bufio.Reader, into any, limit int) error {
	var buf []byte
	for {
		part, err := in.ReadSlice('\n')
		if len(buf)+len(part) > limit {
			return errors.New("control line too long")
		}
		buf = append(buf, part...)
		if err == bufio.ErrBufferFull {
			continue
		}
		if err != nil {
			return err
		}
		return json.Unmarshal(buf, into)
	}
}
