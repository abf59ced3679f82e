package gateway

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"sync"
	"time"
)

// maxLastWords is how much of a process's stderr is kept for its epitaph.
const maxLastWords = 16 << 10

// crashTime is how long after the first words of a crash a process may live for them
// to be those of a crash.
const crashTime = 2 * time.Second

// listener passes the stderr of a process on, line by line, and keeps the end.
//
// What the Go runtime says at a crash is the state of every goroutine, which may be
// very long. It is held back until it is known what the process died of: where that
// has a name, nobody needs it.
type listener struct {
	from *os.File
	to   io.Writer
	done chan struct{} // closed when there is nothing more to hear

	mu      sync.Mutex // guards the fields below
	ending  bool       // the read deadline is the end
	last    []byte     // of what was said; it changes no more when done is closed
	crashed bool       // last begins with the first words of a crash, is not cut there, and was not passed on
}

// listenLocked hears a process's stderr, where it comes to us.
func (u *upstream) listenLocked() {
	from := u.tree.Stderr()
	if from == nil {
		return
	}
	l := &listener{from: from, to: os.Stderr, done: make(chan struct{})}
	if to := u.s.cfg.Stderr; to != nil {
		l.to = to
	}
	if u.s.goLocked(l.run) {
		u.heard = l
	}
}

func (l *listener) run() {
	defer close(l.done)
	defer l.from.Close()
	in := bufio.NewReaderSize(l.from, 4<<10)
	for {
		line, err := in.ReadSlice('\n') // what is longer is passed on in pieces
		if len(line) > 0 {
			l.take(line)
		}
		switch {
		case err == nil, errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, os.ErrDeadlineExceeded) && l.lives():
		default:
			return
		}
	}
}

// crashes begin the last words of the Go runtime.
var crashes = [][]byte{[]byte("fatal error: "), []byte("panic: "), []byte("runtime: out of memory"), []byte("runtime/cgo: ")}

// lives passes on what was held back of a process that lives: those were only words.
// It is false when the time to listen is over.
func (l *listener) lives() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ending {
		return false
	}
	_ = l.from.SetReadDeadline(time.Time{})
	l.passOnLocked()
	return true
}

func (l *listener) take(line []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, words := range crashes {
		if bytes.HasPrefix(line, words) { // the last one counts: it may have been said by somebody else before
			l.passOnLocked()
			l.last, l.crashed = l.last[:0], true
			if !l.ending {
				_ = l.from.SetReadDeadline(time.Now().Add(crashTime))
			}
		}
	}
	if l.crashed {
		l.last = append(l.last, line[:min(len(line), maxLastWords-len(l.last))]...)
		return
	}
	_, _ = l.to.Write(line)
	l.last = append(l.last, line...)
	if over := len(l.last) - maxLastWords; over > 0 {
		l.last = append(l.last[:0], l.last[over:]...)
	}
}

// passOnLocked passes on what was held back.
func (l *listener) passOnLocked() {
	if l.crashed {
		l.crashed = false
		_, _ = l.to.Write(l.last)
	}
}

// until has nothing read any more after that moment.
func (l *listener) until(t time.Time) {
	if l != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.ending = true
		_ = l.from.SetReadDeadline(t)
	}
}

// words waits for the end of what the process says, which has died, and returns the
// last of it.
func (l *listener) words() []byte {
	if l == nil {
		return nil
	}
	l.until(time.Now().Add(lastOutput)) // a child that lives on may hold the pipe open
	<-l.done
	return l.last
}

// bury ends the listening and passes on what was held back: all of it, or where the
// death has a name, the first line.
func (l *listener) bury(named bool) {
	if l == nil {
		return
	}
	l.until(time.Now())
	<-l.done
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.crashed && named {
		first, _, _ := bytes.Cut(l.last, []byte{'\n'})
		l.last = append(first, '\n')
	}
	l.passOnLocked()
}
