package jsonrpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// gate is a destination that is a pipe nobody reads until it is told to: each
// Write waits for one token. What went through is recorded.
type gate struct {
	tokens  chan struct{}
	entered chan struct{} // one for each Write that has begun

	mu  sync.Mutex
	got bytes.Buffer
}

func newGate() *gate {
	return &gate{tokens: make(chan struct{}, 1<<20), entered: make(chan struct{}, 1<<20)}
}

func (g *gate) Write(p []byte) (int, error) {
	g.entered <- struct{}{}
	<-g.tokens // closed: open for good
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.got.Write(p)
}

func (g *gate) open() { close(g.tokens) }

func (g *gate) lines() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return strings.Split(strings.TrimSuffix(g.got.String(), "\n"), "\n")
}

func text(s string) func([]byte) []byte {
	return func(dst []byte) []byte { return append(dst, s...) }
}

func mustSend(t testing.TB, w *Writer, s string) uint64 {
	t.Helper()
	seq, err := w.Send(text(s))
	if err != nil {
		t.Fatalf("Send(%.40q): %v", s, err)
	}
	return seq
}

func mustUrgent(t testing.TB, w *Writer, after uint64, s string) uint64 {
	t.Helper()
	seq, err := w.SendUrgent(after, text(s))
	if err != nil {
		t.Fatalf("SendUrgent(%.40q): %v", s, err)
	}
	return seq
}

// soon returns a context for steps that take no time unless something is broken.
func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func mustClose(t testing.TB, w *Writer) {
	t.Helper()
	if err := w.Close(soon(t)); err != nil {
		t.Fatalf("Close: %v", err)
	}
}

func want(t testing.TB, got []string, lines ...string) {
	t.Helper()
	if strings.Join(got, "|") != strings.Join(lines, "|") {
		t.Errorf("on the wire:\n %q\nwant:\n %q", got, lines)
	}
}

func TestWriterWritesLinesInOrder(t *testing.T) {
	g := newGate()
	g.open()
	w := NewWriter(g, WriterOptions{})
	var lines []string
	for i := range 1000 {
		s := fmt.Sprintf("line %d %s", i, strings.Repeat("x", i%700*(i%7)))
		lines = append(lines, s)
		if i%2 == 0 {
			mustSend(t, w, s)
		} else if _, err := w.SendFrame([]byte(s)); err != nil {
			t.Fatal(err)
		}
	}
	mustClose(t, w)
	want(t, g.lines(), lines...)
	if _, err := w.Send(text("x")); !errors.Is(err, ErrClosed) {
		t.Errorf("Send after Close: %v", err)
	}
}

// MCP-G19: the cancel has its own way, never before its request, never behind the
// queue.
func TestUrgentOvertakesTheQueueButNotItsRequest(t *testing.T) {
	g := newGate()
	w := NewWriter(g, WriterOptions{})
	first := mustSend(t, w, "request 1")
	<-g.entered // it is being written
	for i := 2; i <= 4; i++ {
		mustSend(t, w, fmt.Sprint("request ", i))
	}
	req5 := mustSend(t, w, "request 5")
	mustSend(t, w, "request 6")
	mustUrgent(t, w, req5, "cancel 5")
	u := mustUrgent(t, w, first, "cancel 1")
	mustUrgent(t, w, u, "after cancel 1")
	mustUrgent(t, w, 0, "now")
	g.open()
	mustClose(t, w)
	want(t, g.lines(), "request 1", "cancel 1", "after cancel 1", "now", "request 2", "request 3", "request 4", "request 5", "cancel 5", "request 6")
}

// MCP-G16: a frame that is still queued can be taken back; one that was handed to
// the pipe cannot.
func TestWithdraw(t *testing.T) {
	g := newGate()
	w := NewWriter(g, WriterOptions{})
	first := mustSend(t, w, "request 1")
	<-g.entered
	second := mustSend(t, w, "request 2")
	third := mustSend(t, w, "request 3")
	cancel2 := mustUrgent(t, w, second, "cancel 2")
	big := mustSend(t, w, strings.Repeat("b", 3*smallBuf))
	if w.Withdraw(first) {
		t.Error("withdrew a frame that is being written")
	}
	if !w.Withdraw(second) || w.Withdraw(second) {
		t.Error("a queued frame can be withdrawn once")
	}
	if !w.Withdraw(big) || !w.Withdraw(cancel2) || w.Withdraw(99) || w.Withdraw(0) {
		t.Error("Withdraw")
	}
	if !w.Pending(first) || w.Pending(second) || !w.Pending(third) {
		t.Error("Pending")
	}
	if n, size := w.Queued(); n != 1 || size != len("request 3") {
		t.Errorf("Queued: %d, %d", n, size)
	}
	g.open()
	if err := w.Wait(soon(t), third); err != nil {
		t.Fatal(err)
	}
	if w.Withdraw(third) || w.Pending(third) {
		t.Error("withdrew a frame that was written")
	}
	mustClose(t, w)
	want(t, g.lines(), "request 1", "request 3")
}

func TestWriterBoundsItsQueue(t *testing.T) {
	g := newGate()
	w := NewWriter(g, WriterOptions{MaxQueued: 10_000})
	mustSend(t, w, "first")
	<-g.entered
	mustSend(t, w, strings.Repeat("x", 9_800))
	if _, err := w.Send(text(strings.Repeat("x", 200))); !errors.Is(err, ErrQueueFull) {
		t.Errorf("Send over the bound: %v", err)
	}
	if _, err := w.SendFrame(bytes.Repeat([]byte("x"), 200_000)); !errors.Is(err, ErrQueueFull) {
		t.Errorf("SendFrame over the bound: %v", err)
	}
	mustUrgent(t, w, 0, strings.Repeat("u", 200))
	if _, err := w.SendUrgent(0, text(strings.Repeat("u", urgentReserve))); !errors.Is(err, ErrQueueFull) {
		t.Errorf("SendUrgent over the reserve: %v", err)
	}
	g.open()
	mustClose(t, w)
	if n := len(g.lines()); n != 3 {
		t.Errorf("%d lines", n)
	}
}

// MCP-24: no newline inside a message.
func TestWriterKeepsAFrameOnOneLine(t *testing.T) {
	g := newGate()
	g.open()
	w := NewWriter(g, WriterOptions{})
	mustSend(t, w, "{\n  \"a\": 1\r\n}\n")
	if _, err := w.SendFrame(append(bytes.Repeat([]byte{' '}, 2*smallBuf), "{\n}\r"...)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Send(text("")); !errors.Is(err, ErrEmptyFrame) {
		t.Errorf("empty frame: %v", err)
	}
	if _, err := w.SendFrame(nil); !errors.Is(err, ErrEmptyFrame) {
		t.Errorf("empty frame: %v", err)
	}
	mustClose(t, w)
	lines := g.lines()
	if len(lines) != 2 || lines[0] != `{   "a": 1  } ` || strings.TrimSpace(lines[1]) != "{ }" {
		t.Errorf("%.60q", lines)
	}
}

func TestWriterErrorIsFinal(t *testing.T) {
	r, wr, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	w := NewWriter(wr, WriterOptions{})
	seq := mustSend(t, w, "x")
	<-w.Done()
	if w.Err() == nil || w.Withdraw(seq) {
		t.Errorf("Err %v", w.Err())
	}
	if _, err := w.Send(text("y")); err == nil || err.Error() != w.Err().Error() {
		t.Errorf("Send after the error: %v", err)
	}
	if err := w.Wait(soon(t), seq); err == nil {
		t.Error("Wait for a lost frame says nil")
	}
	if err := w.Close(soon(t)); err == nil {
		t.Error("Close after the error says nil")
	}
}

// A peer that does not read cannot hold the end up.
func TestCloseInterruptsABlockedPipe(t *testing.T) {
	r, wr, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	w := NewWriter(wr, WriterOptions{})
	stuck := mustSend(t, w, strings.Repeat("x", 1<<20))
	for n, _ := w.Queued(); n > 0; n, _ = w.Queued() {
		time.Sleep(time.Millisecond)
	}
	never := mustSend(t, w, "never sent")
	cause := errors.New("enough")
	ctx, cancel := context.WithTimeoutCause(context.Background(), 10*time.Millisecond, cause)
	defer cancel()
	if err := w.Close(ctx); !errors.Is(err, ErrClosed) || !errors.Is(err, cause) {
		t.Errorf("Close: %v", err)
	}
	<-w.Done()
	if w.Withdraw(stuck) || !w.Withdraw(never) {
		t.Error("after the end Withdraw must still know what never left")
	}
	if err := w.CloseNow(); err != nil {
		t.Error(err)
	}
}

func TestOnWrittenTellsEveryFrameInWireOrder(t *testing.T) {
	var seqs []uint64
	r, wr := io.Pipe()
	go io.Copy(io.Discard, r)
	begin := time.Now()
	w := NewWriter(wr, WriterOptions{OnWritten: func(seq uint64, at time.Time) {
		if at.Before(begin) {
			t.Error("time goes back")
		}
		seqs = append(seqs, seq)
	}})
	for range 100 {
		mustSend(t, w, "x")
	}
	mustClose(t, w)
	for i, seq := range seqs {
		if seq != uint64(i+1) {
			t.Fatalf("%v", seqs)
		}
	}
	if len(seqs) != 100 {
		t.Errorf("%d calls", len(seqs))
	}
}

// Say what did not stop: a destination that cannot be interrupted is reported,
// and its goroutine still ends once it can.
func TestCloseNowReportsAStuckWrite(t *testing.T) {
	g := newGate()
	w := NewWriter(g, WriterOptions{KeepOpen: true})
	mustSend(t, w, "stuck")
	<-g.entered
	if err := w.CloseNow(); !errors.Is(err, ErrWriteStuck) {
		t.Errorf("CloseNow: %v", err)
	}
	g.open()
	<-w.Done()
	if err := w.Close(soon(t)); !errors.Is(err, ErrClosed) {
		t.Errorf("Close: %v", err)
	}
}

// A writer that is done leaves its destination as it was told to.
func TestWriterClosesItsDestination(t *testing.T) {
	for _, keep := range []bool{false, true} {
		r, wr, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		w := NewWriter(wr, WriterOptions{KeepOpen: keep})
		mustSend(t, w, "x")
		mustClose(t, w)
		if _, err := wr.WriteString("y"); (err == nil) != keep {
			t.Errorf("KeepOpen %v: %v", keep, err)
		}
		wr.Close()
		if got, _ := io.ReadAll(r); !strings.HasPrefix(string(got), "x\n") {
			t.Errorf("%q", got)
		}
		r.Close()
	}
}

func TestWaitHeedsItsContext(t *testing.T) {
	g := newGate()
	w := NewWriter(g, WriterOptions{})
	mustSend(t, w, "first")
	seq := mustSend(t, w, "second")
	cause := errors.New("enough")
	ctx, cancel := context.WithTimeoutCause(context.Background(), time.Millisecond, cause)
	defer cancel()
	if err := w.Wait(ctx, seq); err != cause {
		t.Errorf("Wait: %v", err)
	}
	if len(w.waiters) != 0 {
		t.Error("a waiter stays behind")
	}
	g.open()
	mustClose(t, w)
}

type shortWriter struct{}

func (shortWriter) Write(p []byte) (int, error) { return len(p) - 1, nil }

func TestShortWriteIsAnError(t *testing.T) {
	w := NewWriter(shortWriter{}, WriterOptions{})
	mustSend(t, w, "x")
	<-w.Done()
	if err := w.Err(); !errors.Is(err, io.ErrShortWrite) {
		t.Error(err)
	}
}
