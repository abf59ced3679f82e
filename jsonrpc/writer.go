package jsonrpc

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync"
	"time"
)

const (
	// DefaultMaxQueued bounds what waits in a Writer when WriterOptions.MaxQueued
	// is 0, in bytes.
	DefaultMaxQueued = 32 << 20
	// urgentReserve is how far urgent frames may go over the bound: a full queue is
	// when cancels matter most.
	urgentReserve = 1 << 20
	// frameCost is added to a frame's length in the accounting of the queue, so that
	// many tiny frames cannot hold more memory than a few large ones.
	frameCost = 64
	// writeBatch is about how much is handed to the pipe at once. It is far below a
	// pipe's capacity: what was handed over can neither be withdrawn nor
	// overtaken. It is still more than a hundred usual frames.
	writeBatch = 16 << 10
	// closeWait is how long an interrupted write may take to return. Pipes and
	// sockets return at once; a terminal or a plain file cannot be interrupted.
	closeWait = time.Second
)

// WriterOptions are the settings of a [Writer]; zero values mean defaults.
type WriterOptions struct {
	// MaxQueued bounds the bytes that wait to be written, with 64 more for each
	// frame; 0 means DefaultMaxQueued. One frame is always taken into an empty
	// queue, however long it is.
	MaxQueued int
	// KeepOpen leaves the destination open when the writer ends. Otherwise it is
	// closed if it is an io.Closer: closing a child's stdin is how it is told that
	// there is no more (MCP-25).
	KeepOpen bool
	// OnWritten, if set, is called for each frame when the operating system has
	// taken all of its bytes, in the order of the wire, by the goroutine that wrote
	// it, which may be a sender's. It must be quick, must not use the Writer, and
	// must not need a lock that is held while sending.
	OnWritten func(seq uint64, at time.Time)
}

// Writer writes frames as lines (MCP-24). Senders put bytes into its queue and
// never wait for the pipe. When nobody else is writing, the sender itself hands
// over what is queued, as far as the pipe takes it at once; all the rest is the
// work of one goroutine, owned by the Writer, which sleeps while there is none.
// Either writes many queued frames at once.
//
// Each accepted frame gets a sequence number. Frames go out in that order,
// except urgent ones, which overtake all that is queued save the frame they must
// follow (MCP-G19). Lines are never mixed. All methods may be called
// concurrently. A Writer must be ended with Close or CloseNow.
type Writer struct {
	dst  io.Writer
	opts WriterOptions
	now  func([]byte) int // how a sender writes, see writeNow; nil: only the goroutine does
	done chan struct{}    // closed when the goroutine has ended
	end  sync.Once        // closes dst

	wake sync.Cond // on mu: something for the goroutine to write, or the end
	mu   sync.Mutex
	// The fields below are guarded by mu.
	q       queue
	batch   []queued // being written, or failed to be
	writing bool     // somebody is writing the batch, without mu
	rest    []byte   // of the batch: what the pipe did not take from a sender
	due     bool     // the goroutine is to write all that is queued
	held    int      // Holds without their Release
	last    uint64   // last sequence number given out
	closing bool     // no more frames are taken
	err     error    // why writing ended; final
	waiters []waiter
}

type waiter struct {
	seq uint64
	ch  chan struct{} // closed when seq is no longer pending, or never will be written
}

// NewWriter starts a Writer to dst. An *os.File is taken as it is from here on:
// its method Fd, which puts it into blocking mode, must not be called any more.
func NewWriter(dst io.Writer, opts WriterOptions) *Writer {
	if opts.MaxQueued <= 0 {
		opts.MaxQueued = DefaultMaxQueued
	}
	w := &Writer{dst: dst, opts: opts, now: writeNow(dst), done: make(chan struct{})}
	w.wake.L = &w.mu
	go w.run()
	return w
}

// Send queues the frame that build appends to the slice it is given and returns.
// build runs under the writer's lock: it must be short and must not use the
// Writer. The writer adds the newline. A line break inside a frame, which in JSON
// can only be white space, is turned into a space, since it would end the line.
//
// Errors: [ErrQueueFull] when the peer does not read, [ErrEmptyFrame],
// [ErrClosed], or the error that ended writing. Then nothing was queued.
func (w *Writer) Send(build func(dst []byte) []byte) (seq uint64, err error) {
	return w.build(false, 0, build)
}

// SendUrgent is Send for a frame that overtakes what is queued, but not the frame
// with sequence number after, nor urgent frames queued before. An after that was
// written or withdrawn, or 0, holds nothing up. Urgent frames are still taken when
// the queue is full, within a reserve of 1 MiB.
func (w *Writer) SendUrgent(after uint64, build func(dst []byte) []byte) (seq uint64, err error) {
	return w.build(true, after, build)
}

// SendFrame queues a copy of frame with edits applied, see [AppendSplice]: the one
// copy between a Reader and the pipe. Large frames are copied outside the
// writer's lock. Errors are those of Send.
func (w *Writer) SendFrame(frame []byte, edits ...Edit) (seq uint64, err error) {
	return w.copy(false, 0, frame, edits)
}

// SendUrgentFrame is SendFrame with the order of [Writer.SendUrgent].
func (w *Writer) SendUrgentFrame(after uint64, frame []byte, edits ...Edit) (seq uint64, err error) {
	return w.copy(true, after, frame, edits)
}

func (w *Writer) build(urgent bool, after uint64, build func([]byte) []byte) (uint64, error) {
	seq, err := w.queueBuilt(urgent, after, build)
	if err == nil {
		w.pass(urgent)
	}
	return seq, err
}

func (w *Writer) queueBuilt(urgent bool, after uint64, build func([]byte) []byte) (uint64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.admitLocked(urgent, 0); err != nil {
		return 0, err
	}
	c, free := w.q.room(minRoom)
	frame := build(free)
	if err := w.admitLocked(urgent, len(frame)); err != nil {
		return 0, err
	}
	f, err := w.q.place(c, free, frame)
	if err != nil {
		return 0, err
	}
	return w.enqueueLocked(urgent, after, f), nil
}

func (w *Writer) copy(urgent bool, after uint64, frame []byte, edits []Edit) (uint64, error) {
	seq, err := w.queueCopy(urgent, after, frame, edits)
	if err == nil {
		w.pass(urgent)
	}
	return seq, err
}

func (w *Writer) queueCopy(urgent bool, after uint64, frame []byte, edits []Edit) (uint64, error) {
	n := splicedLen(frame, edits)
	if n < smallBuf/2 {
		w.mu.Lock()
		defer w.mu.Unlock()
		if err := w.admitLocked(urgent, n); err != nil {
			return 0, err
		}
		c, free := w.q.room(n + 1)
		f, err := w.q.place(c, free, appendSorted(free, frame, edits))
		if err != nil {
			return 0, err
		}
		return w.enqueueLocked(urgent, after, f), nil
	}
	// The first look spares the copy; the second decides.
	w.mu.Lock()
	err := w.admitLocked(urgent, n)
	w.mu.Unlock()
	if err != nil {
		return 0, err
	}
	line := appendSorted(getBuf(n+1), frame, edits)
	oneLine(line)
	c := &chunk{data: append(line, '\n'), refs: 1}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.admitLocked(urgent, n); err != nil {
		putBuf(c.data)
		return 0, err
	}
	return w.enqueueLocked(urgent, after, queued{c: c, end: len(c.data)}), nil
}

// oneLine replaces line breaks by spaces. In JSON they can only stand between
// tokens. A lone carriage return counts as a line break for readers with
// universal newlines, as Python's.
func oneLine(frame []byte) {
	for _, c := range [...]byte{'\n', '\r'} {
		for i := bytes.IndexByte(frame, c); i >= 0; {
			frame[i] = ' '
			n := bytes.IndexByte(frame[i+1:], c)
			if n < 0 {
				break
			}
			i += 1 + n
		}
	}
}

// admitLocked says whether a frame of n bytes may be queued.
func (w *Writer) admitLocked(urgent bool, n int) error {
	switch {
	case w.err != nil:
		return w.err
	case w.closing:
		return ErrClosed
	}
	limit := w.opts.MaxQueued
	if urgent {
		limit += urgentReserve
	}
	if w.q.frames > 0 && w.q.cost+n+frameCost > limit {
		return fmt.Errorf("%w: %d frames with %d bytes wait, at most %d bytes are allowed; the other side does not read",
			ErrQueueFull, w.q.frames, w.q.cost-w.q.frames*frameCost, w.opts.MaxQueued)
	}
	return nil
}

func (w *Writer) enqueueLocked(urgent bool, after uint64, f queued) uint64 {
	w.last++
	f.seq = w.last
	if urgent {
		w.q.addUrgent(f, after)
	} else {
		w.q.add(f)
	}
	return f.seq
}

// Withdraw takes a frame out of the queue. True means that not one byte of it was
// or will be handed to the pipe: the peer never sees it (MCP-G16). False means
// that it is being written, was written, or was never queued. It also works after
// writing has failed.
func (w *Writer) Withdraw(seq uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.q.withdraw(seq) {
		return false
	}
	w.notifyLocked()
	return true
}

// Pending reports whether a frame is queued or being written. Frames that were
// lost because writing ended stay pending for ever.
func (w *Writer) Pending(seq uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pendingLocked(seq)
}

// Wait waits until a frame is no longer pending: all of its bytes were taken by
// the operating system, or it was withdrawn. It returns nil then, the error that
// ended writing if the frame was lost by it, or ctx's cause.
func (w *Writer) Wait(ctx context.Context, seq uint64) error {
	w.mu.Lock()
	if !w.pendingLocked(seq) {
		w.mu.Unlock()
		return nil
	}
	if w.err != nil {
		defer w.mu.Unlock()
		return w.err
	}
	wt := waiter{seq, make(chan struct{})}
	w.waiters = append(w.waiters, wt)
	w.mu.Unlock()
	select {
	case <-wt.ch:
	case <-ctx.Done():
		w.forget(wt)
		return context.Cause(ctx)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pendingLocked(seq) {
		return w.err
	}
	return nil
}

func (w *Writer) forget(gone waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, wt := range w.waiters {
		if wt == gone {
			w.waiters = append(w.waiters[:i], w.waiters[i+1:]...)
			return
		}
	}
}

// pendingLocked reports whether seq is queued or being written.
func (w *Writer) pendingLocked(seq uint64) bool {
	for _, f := range w.batch {
		if f.seq == seq {
			return true
		}
	}
	return w.q.has(seq)
}

// notifyLocked lets go of the waiters that have nothing left to wait for.
func (w *Writer) notifyLocked() {
	kept := w.waiters[:0]
	for _, wt := range w.waiters {
		if w.err == nil && w.pendingLocked(wt.seq) {
			kept = append(kept, wt)
			continue
		}
		close(wt.ch)
	}
	clear(w.waiters[len(kept):])
	w.waiters = kept
}

// Queued returns how many frames wait and how many bytes they have, without the
// frames that are just being written.
func (w *Writer) Queued() (frames, bytes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.q.frames, w.q.cost - w.q.frames*frameCost
}

// Done is closed when the writing goroutine has ended: after Close, CloseNow, or
// an error of the destination.
func (w *Writer) Done() <-chan struct{} { return w.done }

// Err returns nil while writing goes on and after everything was written in a
// Close; else the error that ended it.
func (w *Writer) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// run is the writing goroutine.
func (w *Writer) run() {
	defer close(w.done)
	defer w.closeDst()
	for {
		line, ok := w.take()
		if !ok {
			return
		}
		n, err := w.dst.Write(line)
		if err == nil && n < len(line) {
			err = io.ErrShortWrite
		}
		if !w.finish(err) {
			return
		}
	}
}

// take waits for work for the goroutine and takes it; false at the end.
func (w *Writer) take() ([]byte, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		switch {
		case w.writing: // a sender, which never waits, and says when it is done
		case w.err != nil:
			w.failLocked(w.err)
			return nil, false
		case w.rest != nil:
			line := w.rest
			w.rest, w.writing = nil, true
			return line, true
		case w.q.frames > 0 && (w.due || w.closing):
			return w.takeLocked(), true
		case w.closing:
			w.failLocked(nil)
			return nil, false
		default:
			w.due = false
		}
		w.wake.Wait()
	}
}

// takeLocked takes the next batch out of the queue, which is not empty. Whoever
// takes it writes it, without the lock, and then settles it.
func (w *Writer) takeLocked() []byte {
	w.batch = w.q.take(w.batch[:0], writeBatch)
	w.writing = true
	first, end := w.batch[0], w.batch[len(w.batch)-1].end
	return first.c.data[first.start:end:end]
}

// finish settles the batch that the goroutine has written; false when writing
// has ended.
func (w *Writer) finish(err error) bool {
	if err == nil {
		w.tell()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.writing = false
		if w.err == nil {
			w.err = fmt.Errorf("write to peer: %w", err)
		}
		w.failLocked(w.err)
		return false
	}
	w.settleLocked()
	return true
}

// tell reports the batch as written. Only who writes changes it.
func (w *Writer) tell() {
	if w.opts.OnWritten == nil {
		return
	}
	now := time.Now()
	for _, f := range w.batch {
		w.opts.OnWritten(f.seq, now)
	}
}

// settleLocked lets go of a batch that was written.
func (w *Writer) settleLocked() {
	w.writing = false
	for _, f := range w.batch {
		w.q.release(f.c)
	}
	clear(w.batch)
	w.batch = w.batch[:0]
	w.notifyLocked()
}

// failLocked frees the memory of frames that will never be written but keeps
// their numbers, so that Withdraw can still tell which never left.
func (w *Writer) failLocked(err error) {
	w.err = err
	w.closing = true
	w.rest = nil
	w.q.drop()
	w.notifyLocked()
}

// Close takes no more frames, waits until those queued are written, ends the
// goroutine, and closes the destination. When ctx ends first it gives up like
// CloseNow and returns an error that wraps ctx's cause. Close may be called again
// and concurrently.
func (w *Writer) Close(ctx context.Context) error {
	w.mu.Lock()
	w.closing = true
	w.wake.Broadcast()
	w.mu.Unlock()
	select {
	case <-w.done:
		return w.Err()
	case <-ctx.Done():
	}
	if err := w.abort(fmt.Errorf("%w: %d frames unwritten: %w", ErrClosed, w.unwritten(), context.Cause(ctx))); err != nil {
		return err
	}
	return w.Err()
}

// CloseNow ends the goroutine without writing what is queued, interrupts a write
// that is under way, and closes the destination. It returns [ErrWriteStuck] when
// that write could not be interrupted within a second; the goroutine then ends
// with it.
func (w *Writer) CloseNow() error { return w.abort(ErrClosed) }

func (w *Writer) unwritten() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.q.frames + len(w.batch)
}

func (w *Writer) abort(cause error) error {
	w.mu.Lock()
	w.closing = true
	if w.err == nil && (w.q.frames > 0 || len(w.batch) > 0) {
		w.err = cause
	}
	w.wake.Broadcast()
	w.mu.Unlock()
	select {
	case <-w.done:
		return nil
	default:
	}
	if d, ok := w.dst.(interface{ SetWriteDeadline(time.Time) error }); ok {
		_ = d.SetWriteDeadline(time.Unix(1, 0)) // long past; not every file can
		if w.opts.KeepOpen {
			defer func() { _ = d.SetWriteDeadline(time.Time{}) }()
		}
	}
	w.closeDst()
	t := time.NewTimer(closeWait)
	defer t.Stop()
	select {
	case <-w.done:
		return nil
	case <-t.C:
		return fmt.Errorf("%w after %v", ErrWriteStuck, closeWait)
	}
}

// closeDst closes the destination once. Its error is not reported: whoever reads
// from there has everything or is gone, and Err tells which.
func (w *Writer) closeDst() {
	if c, ok := w.dst.(io.Closer); ok && !w.opts.KeepOpen {
		w.end.Do(func() { _ = c.Close() })
	}
}
