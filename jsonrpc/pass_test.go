package jsonrpc

import (
	"bufio"
	"os"
	"strings"
	"testing"
	"time"
)

// lineNow reads one line that must be there already.
func lineNow(t *testing.T, r *os.File, in *bufio.Reader) string {
	t.Helper()
	if err := r.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	line, err := in.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(line, "\n")
}

func pipeWriter(t *testing.T) (*os.File, *Writer) {
	t.Helper()
	r, wr, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	w := NewWriter(wr, WriterOptions{})
	if w.now == nil {
		t.Skip("senders do not write on this system")
	}
	t.Cleanup(func() {
		_ = w.CloseNow()
		r.Close()
	})
	return r, w
}

// DESIGN section 9, latency: a frame is in the pipe when Send returns, without
// another goroutine.
func TestSenderWritesItself(t *testing.T) {
	r, w := pipeWriter(t)
	in := bufio.NewReader(r)
	for _, s := range []string{"one", "two", strings.Repeat("x", 20_000)} {
		if seq := mustSend(t, w, s); w.Pending(seq) {
			t.Error("not written by its sender")
		}
		if got := lineNow(t, r, in); got != s {
			t.Errorf("%.20q", got)
		}
	}
}

// What does not fit goes on in the goroutine, in order, and the sender does not
// wait for it.
func TestSenderLeavesTheRest(t *testing.T) {
	r, w := pipeWriter(t)
	long := strings.Repeat("x", 1<<20)
	first := mustSend(t, w, long)
	second := mustSend(t, w, "second")
	third := mustSend(t, w, "third")
	if !w.Pending(first) || !w.Withdraw(second) {
		t.Error("the pipe took more than it can")
	}
	in := bufio.NewReader(r)
	for _, s := range []string{long, "third"} {
		if got := lineNow(t, r, in); got != s {
			t.Errorf("%.20q, %d bytes", got, len(got))
		}
	}
	if err := w.Wait(soon(t), third); err != nil {
		t.Error(err)
	}
	mustSend(t, w, "fourth")
	if got := lineNow(t, r, in); got != "fourth" {
		t.Errorf("%.20q", got)
	}
}

// Held frames leave in one piece; urgent ones and a full batch do not wait.
func TestHold(t *testing.T) {
	r, w := pipeWriter(t)
	w.Hold()
	w.Hold()
	one := mustSend(t, w, "one")
	two := mustSend(t, w, "two")
	if n, _ := w.Queued(); n != 2 || !w.Withdraw(one) {
		t.Errorf("%d are held", n)
	}
	w.Release()
	if w.Pending(two) {
		t.Error("a Release leaves nothing behind")
	}
	held := mustSend(t, w, "held")
	mustUrgent(t, w, held, "cancel")
	if w.Pending(held) {
		t.Error("an urgent frame waits for a Release")
	}
	if seq := mustSend(t, w, strings.Repeat("x", writeBatch)); w.Pending(seq) {
		t.Error("a full batch waits for a Release")
	}
	mustSend(t, w, "at the end")
	mustClose(t, w)
	in := bufio.NewReader(r)
	for _, want := range []string{"two", "held", "cancel", strings.Repeat("x", writeBatch), "at the end"} {
		if got := lineNow(t, r, in); got != want {
			t.Errorf("%.20q, want %.20q", got, want)
		}
	}
}
