package jsonrpc

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// wireModel says what may stand where on the wire. The Writer under test has no
// goroutine of its own here: each write is one step of the test, so that every
// interleaving can be drawn.
type wireModel struct {
	w       *Writer
	text    map[uint64]string
	after   map[uint64]uint64 // urgent frames; 0 means nothing to wait for
	pending []uint64          // accepted, neither on the wire nor withdrawn, by seq
	gone    map[uint64]bool   // withdrawn
	wire    []uint64

	// With a pipe that senders write to themselves:
	room   int      // what the pipe takes; less than 0: nothing is tried
	piped  string   // what it has taken
	expect string   // the lines of wire
	open   []uint64 // on the wire in part, so that the Writer says they are pending
	held   int
}

func (m *wireModel) isPending(seq uint64) bool { return slices.Contains(m.pending, seq) }

func (m *wireModel) isUrgent(seq uint64) bool { _, ok := m.after[seq]; return ok }

func (m *wireModel) drop(seq uint64) {
	m.pending = slices.DeleteFunc(m.pending, func(s uint64) bool { return s == seq })
}

// body draws a text of some length around the sizes at which the queue behaves
// differently.
func body(t *rapid.T, n int) string {
	size := rapid.SampledFrom([]int{1, 20, 300, minRoom, tinyBuf, writeBatch, smallBuf / 2, smallBuf + 1}).Draw(t, "size")
	return fmt.Sprintf("%d:%s", n, strings.Repeat("x", size))
}

func (m *wireModel) send(t *rapid.T) {
	s := body(t, len(m.text))
	next := m.accept(s)
	var seq uint64
	var err error
	if rapid.Bool().Draw(t, "frame") {
		seq, err = m.w.SendFrame([]byte(s))
	} else {
		seq, err = m.w.Send(text(s))
	}
	if err != nil || seq != next {
		t.Fatalf("seq %d, %v", seq, err)
	}
}

func (m *wireModel) urgent(t *rapid.T) {
	s := body(t, len(m.text))
	after := uint64(rapid.IntRange(0, len(m.text)+1).Draw(t, "after"))
	next := m.accept(s)
	m.after[next] = after
	var seq uint64
	var err error
	if rapid.Bool().Draw(t, "frame") {
		seq, err = m.w.SendUrgentFrame(after, []byte(s))
	} else {
		seq, err = m.w.SendUrgent(after, text(s))
	}
	if err != nil || seq != next {
		t.Fatalf("seq %d, %v", seq, err)
	}
}

// accept takes down a frame before it is sent: the sender may write it.
func (m *wireModel) accept(s string) (seq uint64) {
	seq = uint64(len(m.text) + 1)
	m.text[seq] = s
	m.pending = append(m.pending, seq)
	return seq
}

// MCP-G16: exactly what is pending can be withdrawn.
func (m *wireModel) withdraw(t *rapid.T) {
	seq := uint64(rapid.IntRange(0, len(m.text)+1).Draw(t, "seq"))
	if got := m.w.Withdraw(seq); got != m.isPending(seq) {
		t.Fatalf("Withdraw(%d) = %v", seq, got)
	}
	if m.isPending(seq) {
		m.drop(seq)
		m.gone[seq] = true
	}
}

// write lets one Write happen.
func (m *wireModel) write(t *rapid.T) {
	if len(m.pending) == 0 {
		t.Skip("nothing to write")
	}
	line, ok := m.w.take()
	if !ok || len(m.w.batch) == 0 || len(line) > writeBatch && len(m.w.batch) > 1 {
		t.Fatalf("took %v: %d bytes in %d frames", ok, len(line), len(m.w.batch))
	}
	var text strings.Builder
	for _, f := range m.w.batch {
		m.mayBeNext(t, f.seq)
		m.drop(f.seq)
		m.wire = append(m.wire, f.seq)
		text.WriteString(m.text[f.seq] + "\n")
	}
	if text.String() != string(line) {
		t.Fatalf("wrote %.80q for frames %v", line, m.w.batch)
	}
	if m.w.Withdraw(m.w.batch[0].seq) || !m.w.Pending(m.w.batch[0].seq) {
		t.Fatal("a frame that is being written is pending and cannot be withdrawn")
	}
	// Senders go on while the write is under way.
	if rapid.Bool().Draw(t, "beside") {
		m.send(t)
	}
	if string(line) != text.String() {
		t.Fatal("bytes changed while they were written")
	}
	m.w.finish(nil)
}

// mayBeNext holds the rules of order (MCP-G19).
func (m *wireModel) mayBeNext(t *rapid.T, seq uint64) {
	if !m.isPending(seq) {
		t.Fatalf("frame %d is written but was written before, or withdrawn", seq)
	}
	if after := m.after[seq]; m.isUrgent(seq) && after < seq && m.isPending(after) {
		t.Fatalf("urgent frame %d goes before %d", seq, after)
	}
	for _, other := range m.pending {
		switch {
		case other == seq:
		case m.isUrgent(other) && !m.isPending(m.after[other]) && !m.isUrgent(seq):
			t.Fatalf("frame %d goes before the urgent frame %d", seq, other)
		case !m.isUrgent(other) && !m.isUrgent(seq) && other < seq:
			t.Fatalf("frame %d goes before %d", seq, other)
		case m.isUrgent(other) && m.isUrgent(seq) && m.after[other] == m.after[seq] && other < seq:
			t.Fatalf("urgent frame %d goes before %d, both after %d", seq, other, m.after[seq])
		}
	}
}

func (m *wireModel) check(t *rapid.T) {
	frames, size := m.w.Queued()
	sum := 0
	for _, seq := range m.pending {
		sum += len(m.text[seq])
	}
	if frames != len(m.pending) || size != sum {
		t.Fatalf("%d frames of %d bytes queued, want %d of %d", frames, size, len(m.pending), sum)
	}
	for seq := range uint64(len(m.text) + 2) {
		if m.w.Pending(seq) != (m.isPending(seq) || slices.Contains(m.open, seq)) {
			t.Fatalf("Pending(%d) is wrong", seq)
		}
	}
}

// MCP-G16, MCP-G19: every accepted frame goes out once, in an order that is
// allowed, or was withdrawn; and afterwards nothing is left behind.
func TestWriterOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &Writer{opts: WriterOptions{MaxQueued: 1 << 30}}
		w.wake.L = &w.mu
		m := &wireModel{w: w, text: map[uint64]string{}, after: map[uint64]uint64{}, gone: map[uint64]bool{}}
		t.Repeat(map[string]func(*rapid.T){
			"send":     m.send,
			"send2":    m.send,
			"urgent":   m.urgent,
			"withdraw": m.withdraw,
			"write":    m.write,
			"":         m.check,
		})
		for len(m.pending) > 0 {
			m.write(t)
		}
		m.check(t)
		if len(m.wire)+len(m.gone) != len(m.text) {
			t.Fatalf("%d written, %d withdrawn, %d accepted", len(m.wire), len(m.gone), len(m.text))
		}
		q := &w.q
		q.peek() // passes over withdrawn frames at the head
		if q.frames != 0 || q.cost != 0 || len(q.lines) != q.head || len(q.ready)+len(q.waiting)+len(q.follows) != 0 || q.home.refs != 0 || q.tail != nil && q.tail.refs != 0 {
			t.Fatalf("left behind: %+v", q)
		}
	})
}

// now is the pipe as a sender sees it.
func (m *wireModel) now(t *rapid.T) func([]byte) int {
	return func(line []byte) int {
		if !m.w.mu.TryLock() {
			t.Fatal("written with the lock held")
		}
		m.w.mu.Unlock()
		if len(m.open) > 0 {
			t.Fatalf("frames are written although %v are not through", m.open)
		}
		for _, f := range m.w.batch {
			m.mayBeNext(t, f.seq)
			m.drop(f.seq)
			m.wire = append(m.wire, f.seq)
			m.expect += m.text[f.seq] + "\n"
			m.open = append(m.open, f.seq)
			if m.w.Withdraw(f.seq) {
				t.Fatalf("withdrew %d, which is being written", f.seq)
			}
		}
		n := min(len(line), m.room)
		m.room -= n
		m.piped += string(line[:n])
		if n == len(line) {
			m.open = nil
		}
		return n
	}
}

// drain makes room in the pipe and gives the writing goroutine its turn.
func (m *wireModel) drain(t *rapid.T) {
	m.room = rapid.SampledFrom([]int{0, 1, 1000, writeBatch, 1 << 20}).Draw(t, "room")
	m.goroutine(t)
}

// goroutine does what the writing goroutine does until it has to wait for
// something.
func (m *wireModel) goroutine(t *rapid.T) {
	for m.w.rest != nil || m.w.due && m.w.q.frames > 0 {
		first := m.w.rest == nil
		line, ok := m.w.take()
		if !ok {
			t.Fatal("ended")
		}
		if first {
			for _, f := range m.w.batch {
				m.mayBeNext(t, f.seq)
				m.drop(f.seq)
				m.wire = append(m.wire, f.seq)
				m.expect += m.text[f.seq] + "\n"
			}
		}
		m.piped += string(line)
		m.w.finish(nil)
		m.open = nil
	}
	m.w.due = false // as take does before it waits
}

func (m *wireModel) hold(*rapid.T) {
	m.held++
	m.w.Hold()
}

func (m *wireModel) release(t *rapid.T) {
	if m.held == 0 {
		t.Skip("nothing is held")
	}
	m.held--
	m.w.Release()
	if m.room > 1<<18 && len(m.open) > 0 {
		t.Fatal("an empty pipe was not used")
	}
}

// quiet holds that nothing is forgotten: what waits is held, or somebody is due.
func (m *wireModel) quiet(t *rapid.T) {
	m.check(t)
	if m.w.writing || m.w.q.frames > 0 && m.held == 0 && !m.w.due {
		t.Fatalf("%d frames wait for nobody", m.w.q.frames)
	}
}

// MCP-G16, MCP-G19 hold also for what senders write themselves, with a pipe that
// takes anything from nothing to all of it.
func TestWriterOrderWhenSendersWrite(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &Writer{opts: WriterOptions{MaxQueued: 1 << 30}}
		w.wake.L = &w.mu
		m := &wireModel{w: w, text: map[uint64]string{}, after: map[uint64]uint64{}, gone: map[uint64]bool{}}
		w.now = m.now(t)
		t.Repeat(map[string]func(*rapid.T){
			"send":     m.send,
			"send2":    m.send,
			"urgent":   m.urgent,
			"withdraw": m.withdraw,
			"drain":    m.drain,
			"hold":     m.hold,
			"release":  m.release,
			"":         m.quiet,
		})
		for m.held > 0 {
			m.release(t)
		}
		m.goroutine(t)
		m.quiet(t)
		if len(m.pending) > 0 || len(m.wire)+len(m.gone) != len(m.text) {
			t.Fatalf("%d written, %d withdrawn, %d accepted, %v left", len(m.wire), len(m.gone), len(m.text), m.pending)
		}
		if m.piped != m.expect {
			t.Fatalf("in the pipe %d bytes %.200q, want %d bytes %.200q", len(m.piped), m.piped, len(m.expect), m.expect)
		}
		if w.q.home.refs != 0 || w.q.tail != nil && w.q.tail.refs != 0 {
			t.Fatalf("left behind: %+v", w.q)
		}
	})
}

// DESIGN section 9: nothing that grows by use, neither by withdrawals in front of
// a peer that does not read nor by a queue that is never empty.
func TestQueueDoesNotGrowByUse(t *testing.T) {
	w := &Writer{opts: WriterOptions{MaxQueued: 1 << 20}}
	w.wake.L = &w.mu
	keep := mustSend(t, w, "keep")
	for range 20_000 {
		u := mustSend(t, w, "request")
		c := mustUrgent(t, w, u, "cancel")
		if !w.Withdraw(u) || !w.Withdraw(c) {
			t.Fatal("withdraw")
		}
	}
	if n := cap(w.q.lines); n > 4096 {
		t.Errorf("%d lines are kept for withdrawn frames", n)
	}
	if !w.Withdraw(keep) {
		t.Fatal("withdraw")
	}
	long := strings.Repeat("x", writeBatch/2+1) // one to a batch
	for range 50 {
		mustSend(t, w, long)
	}
	for range 6_000 {
		mustSend(t, w, long)
		if _, ok := w.take(); !ok || len(w.batch) != 1 {
			t.Fatalf("took %d frames", len(w.batch))
		}
		w.finish(nil)
	}
	if n, _ := w.Queued(); n != 50 || cap(w.q.lines) > 4096 {
		t.Errorf("room for %d lines is kept for %d frames", cap(w.q.lines), n)
	}
}

// An urgent frame that was to follow another urgent one goes when that is gone,
// and its own followers stay behind it.
func TestWithdrawnUrgentHoldsNothingUp(t *testing.T) {
	w := &Writer{opts: WriterOptions{MaxQueued: 1 << 20}}
	w.wake.L = &w.mu
	request := mustSend(t, w, "request")
	cancel := mustUrgent(t, w, request, "cancel")
	second := mustUrgent(t, w, cancel, "second")
	mustUrgent(t, w, request, "other")
	mustUrgent(t, w, second, "third")
	if !w.Withdraw(cancel) || w.Withdraw(cancel) {
		t.Fatal("withdraw")
	}
	var wire []string
	for frames, _ := w.Queued(); frames > 0; frames, _ = w.Queued() {
		lines, _ := w.take()
		wire = append(wire, strings.Fields(string(lines))...)
		w.finish(nil)
	}
	want(t, wire, "second", "third", "request", "other")
}
