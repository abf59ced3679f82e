package bridge

import (
	"errors"
	"fmt"

	"github.com/belayhq/belay/jsonrpc"
)

// lane is the way to one peer: what is put in leaves in this order, also where one
// message has to wait until it may leave. Guarded by the bridge's lock, which is
// never held while something is written: who holds it queues, and what is queued
// goes out when it is given back.
type lane struct {
	w    *jsonrpc.Writer
	last uint64    // of the writer's sequence numbers: the frame that was queued last
	wait []*parcel // empty, or the first of them may not leave yet
	size int       // bytes in wait
}

// parcel is a message with a place in the order.
type parcel struct {
	frame []byte
	ready bool // may leave; with no frame there is nothing to leave

	lost func(error) // called, with the lock held, if it cannot leave after all; may be nil
}

// relay sends frame with edits applied, in its turn. The frame is not kept.
func (l *lane) relay(frame []byte, edits ...jsonrpc.Edit) error {
	if len(l.wait) == 0 {
		seq, err := l.w.SendFrame(frame, edits...)
		if err == nil {
			l.last = seq
		}
		return err
	}
	p, err := l.reserve(frame, edits...)
	if err == nil {
		p.ready = true
	}
	return err
}

// say sends what build appends, and goes past messages that wait here: a cancel
// names a request that has left, and an answer concerns nobody else. A full queue is
// when cancels matter most, so it may use the writer's reserve.
func (l *lane) say(build func(dst []byte) []byte) error {
	seq, err := l.w.Send(build)
	if errors.Is(err, jsonrpc.ErrQueueFull) {
		seq, err = l.w.SendUrgent(l.last, build)
	}
	if err == nil {
		l.last = seq
	}
	return err
}

// reserve gives frame, with edits applied, its place in the order. It leaves
// when it is released.
func (l *lane) reserve(frame []byte, edits ...jsonrpc.Edit) (*parcel, error) {
	if n := l.size + len(frame); n > jsonrpc.DefaultMaxQueued {
		return nil, fmt.Errorf("%w: %d messages wait for one that cannot leave yet", jsonrpc.ErrQueueFull, len(l.wait))
	}
	p := &parcel{frame: jsonrpc.AppendSplice(nil, frame, edits...)}
	l.wait = append(l.wait, p)
	l.size += len(p.frame)
	return p, nil
}

// release lets p leave, as soon as what is before it has left.
func (l *lane) release(p *parcel) {
	p.ready = true
	n := 0
	var lost []func()
	for ; n < len(l.wait) && l.wait[n].ready; n++ {
		next := l.wait[n]
		l.size -= len(next.frame)
		if next.frame == nil {
			continue
		}
		seq, err := l.w.SendFrame(next.frame)
		if err == nil {
			l.last = seq
		} else if next.lost != nil {
			lost = append(lost, func() { next.lost(err) })
		}
	}
	l.wait = append(l.wait[:0], l.wait[n:]...)
	for _, f := range lost { // they may send something themselves
		f()
	}
}

// replace changes what p will be.
func (l *lane) replace(p *parcel, frame []byte) {
	l.size += len(frame) - len(p.frame)
	p.frame = frame
}

// drop takes p out: it never leaves.
func (l *lane) drop(p *parcel) {
	l.replace(p, nil)
	l.release(p)
}
