package jsonrpc

// This file is the senders' part of a Writer: to hand over to the pipe at once
// what it takes without waiting. A message that passes then costs one system
// call, and no goroutine has to wake for it.

// passBatches is how many batches one sender writes in a row. What is queued
// beyond that comes from others, and is the goroutine's.
const passBatches = 4

// Hold keeps back what is sent until Release, so that the frames of a sender who
// has several of them leave in one piece. Whoever holds must come to Release
// without waiting for anything. Urgent frames, a full batch and Close do not
// wait; a frame that is held can be withdrawn. Holds of several senders add up.
func (w *Writer) Hold() {
	w.mu.Lock()
	w.held++
	w.mu.Unlock()
}

// Release ends a Hold and sends what was kept back, also for the other senders.
func (w *Writer) Release() {
	w.mu.Lock()
	w.held--
	w.mu.Unlock()
	w.pass(true)
}

// pass sees to it that what is queued will be written: now, by this goroutine,
// as far as the pipe takes it without waiting, else by the writing goroutine.
// now means that a Hold does not count.
func (w *Writer) pass(now bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.held > 0 && !now && w.q.cost < writeBatch || w.q.frames == 0 || w.err != nil {
		return
	}
	if w.now != nil && !w.due && !w.closing {
		if w.writing {
			return // a sender is at it, and will see our frames
		}
		for n := 0; n < passBatches && w.q.frames > 0 && w.passOneLocked(); n++ {
		}
		if w.closing || w.err != nil {
			w.wake.Broadcast() // the goroutine has waited for us to end it all
		}
		if w.q.frames == 0 && w.rest == nil {
			return
		}
	}
	w.due = true
	w.wake.Signal()
}

// passOneLocked writes one batch without waiting, and without the lock; false
// when the pipe is full or broken, or writing has ended.
func (w *Writer) passOneLocked() bool {
	line := w.takeLocked()
	w.mu.Unlock()
	n := w.now(line)
	if n == len(line) {
		w.tell()
	}
	w.mu.Lock()
	if n < len(line) {
		w.rest, w.writing = line[n:], false
		return false
	}
	w.settleLocked()
	return w.err == nil && !w.closing
}
