package jsonrpc

import (
	"bytes"
	"io"
	"runtime"
	"runtime/debug"
	"testing"
)

// again is a stream of one line, over and over.
type again struct {
	line []byte
	at   int
	left int
}

func (a *again) Read(p []byte) (int, error) {
	if a.left == 0 {
		return 0, io.EOF
	}
	n := copy(p, a.line[a.at:])
	if a.at += n; a.at == len(a.line) {
		a.at = 0
		a.left--
	}
	return n, nil
}

// DESIGN section 9 and the one-copy rule: what passes from Reader to Writer is
// copied once, into memory that is used again. With the collector off, whatever
// was copied into fresh memory would show.
func TestPassUsesMemoryAgain(t *testing.T) {
	if underRace {
		return // the race detector empties pools at random
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	for _, size := range []int{100, 20 << 10, 2 << 20} {
		frame := benchFrame(size, false)
		const lines = 40
		src := &again{line: append(bytes.Clone(frame), '\n'), left: lines}
		r, w := NewReader(src, ReaderOptions{}), NewWriter(io.Discard, WriterOptions{})
		var e Envelope
		var before, after runtime.MemStats
		for n := range lines {
			if n == 5 {
				runtime.ReadMemStats(&before)
			}
			line, err := r.Next()
			if err != nil {
				t.Fatal(err)
			}
			if err := Parse(line, &e); err != nil {
				t.Fatal(err)
			}
			seq, err := w.SendFrame(line, Edit{e.IDAt, []byte("7")})
			if err != nil {
				t.Fatal(err)
			}
			if err := w.Wait(t.Context(), seq); err != nil {
				t.Fatal(err)
			}
		}
		runtime.ReadMemStats(&after)
		mustClose(t, w)
		fresh := int(after.TotalAlloc-before.TotalAlloc) / (lines - 5)
		if fresh > 1024+size/100 {
			t.Errorf("%d bytes: %d bytes of fresh memory for each", size, fresh)
		}
		t.Logf("%d bytes: %d bytes of fresh memory for each", size, fresh)
	}
}

// DESIGN section 9, idle memory: a reader and a writer that have nothing to do.
func TestIdleIsSmall(t *testing.T) {
	g := newGate()
	g.open()
	w := NewWriter(g, WriterOptions{})
	for range 8 {
		if _, err := w.SendFrame(bytes.Repeat([]byte("x"), 1<<20)); err != nil {
			t.Fatal(err)
		}
		mustSend(t, w, "small")
	}
	last := mustSend(t, w, "last")
	if err := w.Wait(soon(t), last); err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	held := cap(w.q.home.data) + cap(w.q.lines)*64
	if w.q.tail != nil && w.q.tail != &w.q.home {
		held += cap(w.q.tail.data)
	}
	w.mu.Unlock()
	if held > 2*tinyBuf {
		t.Errorf("an idle writer holds %d bytes", held)
	}
	mustClose(t, w)
}

func TestSendDoesNotAllocate(t *testing.T) {
	if underRace {
		return
	}
	w := NewWriter(io.Discard, WriterOptions{})
	frame := []byte(cancelFrame)
	e := mustParse(t, cancelFrame)
	newID := []byte("7")
	n := testing.AllocsPerRun(200, func() {
		seq, err := w.SendFrame(frame, Edit{e.Params, newID}, Edit{e.MethodAt, newID})
		if err != nil {
			t.Fatal(err)
		}
		for w.Pending(seq) {
			runtime.Gosched()
		}
	})
	if n > 0 {
		t.Errorf("%v allocations", n)
	}
	mustClose(t, w)
}
