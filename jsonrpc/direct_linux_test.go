package jsonrpc

import (
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// socketPair returns the two ends of a connection as files.
func socketPair(t *testing.T) (*os.File, *os.File) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if err := syscall.SetNonblock(fd, true); err != nil {
			t.Fatal(err)
		}
	}
	return os.NewFile(uintptr(fds[0]), "a"), os.NewFile(uintptr(fds[1]), "b")
}

var ends = map[string]func(*testing.T) (r, w *os.File){
	"pipe": func(t *testing.T) (*os.File, *os.File) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		return r, w
	},
	"socket": socketPair,
}

// What passes through files directly is what package os would pass, and ends the
// same way.
func TestDirectFiles(t *testing.T) {
	for name, open := range ends {
		t.Run(name, func(t *testing.T) {
			rf, wf := open(t)
			defer rf.Close()
			w := NewWriter(wf, WriterOptions{})
			r := NewReader(rf, ReaderOptions{})
			if _, ok := r.src.(*direct); !ok || w.now == nil {
				t.Fatal("package os is between")
			}
			long := strings.Repeat("x", 3<<20)
			go func() {
				for _, s := range []string{"one", long, "two"} {
					mustSend(t, w, s)
				}
				if err := w.Close(soon(t)); err != nil {
					t.Error(err)
				}
			}()
			for _, want := range []string{"one", long, "two"} {
				line, err := r.Next()
				if err != nil || string(line) != want {
					t.Fatalf("%.10q, %v", line, err)
				}
			}
			if _, err := r.Next(); err != io.EOF {
				t.Errorf("at the end: %v", err)
			}
		})
	}
}

// A deadline and a Close end a read that waits, with the errors of package os.
func TestDirectReadIsInterrupted(t *testing.T) {
	for name, open := range ends {
		for want, interrupt := range map[error]func(*os.File){
			os.ErrDeadlineExceeded: func(f *os.File) { _ = f.SetReadDeadline(time.Now().Add(5 * time.Millisecond)) },
			os.ErrClosed:           func(f *os.File) { _ = f.Close() },
		} {
			rf, wf := open(t)
			r := NewReader(rf, ReaderOptions{})
			got := make(chan error, 1)
			go func() {
				_, err := r.Next()
				got <- err
			}()
			time.Sleep(5 * time.Millisecond) // either order is right
			interrupt(rf)
			select {
			case err := <-got:
				if !errors.Is(err, want) {
					t.Errorf("%s: %v, want %v", name, err, want)
				}
			case <-time.After(10 * time.Second):
				t.Errorf("%s: a read was not ended by %v", name, want)
			}
			rf.Close()
			wf.Close()
		}
	}
}

// A socket whose mode somebody else has changed does not block a sender.
func TestDirectSocketNeverBlocks(t *testing.T) {
	rf, wf := socketPair(t)
	defer rf.Close()
	now := writeNow(wf)
	if raw, err := wf.SyscallConn(); err != nil || raw.Control(func(fd uintptr) { _ = syscall.SetNonblock(int(fd), false) }) != nil {
		t.Fatal(err)
	}
	piece := make([]byte, 64<<10)
	begin := time.Now()
	for now(piece) > 0 {
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Error(took)
	}
	wf.Close()
}
