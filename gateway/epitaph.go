package gateway

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/mcp"
	"github.com/belayhq/belay/proc"
)

// Death is how a process of the server ended that nobody wanted to end.
type Death struct {
	Exit        proc.Exit
	Stderr      []byte // the last of what it said there; of a Go program that crashed, how that began
	OutOfMemory bool   // the kernel ended it, because it had more than Config.Memory
}

// maxLastWords is how much of a process's stderr is kept for its epitaph.
const maxLastWords = 8 << 10

// listener passes the stderr of a process on, line by line, and keeps the end.
type listener struct {
	from *os.File
	done chan struct{} // closed when there is nothing more to hear

	last    []byte // read when done is closed
	crashed bool   // last begins with the first words of a crash, and is not cut there
}

// listenLocked hears a process's stderr, where it comes to us.
func (u *upstream) listenLocked() {
	from := u.tree.Stderr()
	if from == nil {
		return
	}
	to := u.s.cfg.Stderr
	if to == nil {
		to = os.Stderr
	}
	l := &listener{from: from, done: make(chan struct{})}
	if u.s.goLocked(func() { l.run(to) }) {
		u.heard = l
	}
}

func (l *listener) run(to io.Writer) {
	defer close(l.done)
	defer l.from.Close()
	in := bufio.NewReaderSize(l.from, 4<<10)
	for {
		line, err := in.ReadSlice('\n') // what is longer is passed on in pieces
		if len(line) > 0 {
			l.keep(line)
			_, _ = to.Write(line)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

// crashes begin the last words of the Go runtime. What follows them, the state of
// each goroutine, may be longer than all that is kept.
var crashes = [][]byte{[]byte("fatal error: "), []byte("panic: "), []byte("runtime: out of memory")}

func (l *listener) keep(line []byte) {
	for _, words := range crashes {
		if bytes.HasPrefix(line, words) { // the last one counts: it may have been said by somebody else before
			l.last, l.crashed = l.last[:0], true
		}
	}
	if l.crashed {
		line = line[:min(len(line), maxLastWords-len(l.last))]
	}
	l.last = append(l.last, line...)
	if over := len(l.last) - maxLastWords; over > 0 {
		l.last = append(l.last[:0], l.last[over:]...)
	}
}

// until has nothing read any more after that moment.
func (l *listener) until(t time.Time) {
	if l != nil {
		_ = l.from.SetReadDeadline(t)
	}
}

// epitaph is what the callers of a process are told that has ended by itself; "":
// nothing in particular.
func (u *upstream) epitaph() string {
	if u.s.cfg.Epitaph == nil || u.tree == nil {
		return ""
	}
	select {
	case <-u.tree.Done():
	default:
		return "" // it has only closed its output
	}
	d := Death{Exit: u.tree.Exit()}
	d.OutOfMemory = d.Exit.OutOfMemory
	if l := u.heard; l != nil {
		l.until(time.Now().Add(lastOutput)) // a child that lives on may hold the pipe open
		<-l.done
		d.Stderr = l.last
	}
	return u.s.cfg.Epitaph(d)
}

// failTextLocked settles a call that could not be carried out with a tool's own
// error, which a model reads.
func (c *call) failTextLocked(text string) {
	s := c.s
	if !c.run.Finish(belay.Failed) {
		return
	}
	s.forgetLocked(c)
	if c.byCaller { // its own cancel came first: it is told nothing (MCP-G24)
		c.silenceLocked()
		return
	}
	c.answered = true
	frame := mcp.AppendToolError(nil, c.id, text, c.era)
	if s.cfg.NameRuns {
		frame = mcp.NameRun(frame, c.run.ID())
	}
	s.replyLocked(c, frame)
}
