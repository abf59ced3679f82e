package acp

import (
	"bytes"
	"io"
	"sync"
)

// pipeRoom is how many messages fit into a pipe before its writer waits.
const pipeRoom = 64

// NewPipe returns the two ends of a pipe in memory: what is written to one is read
// from the other. What was written before a Close can still be read.
func NewPipe() (Transport, Transport) {
	there, back := newLane(), newLane()
	return &pipe{in: back, out: there}, &pipe{in: there, out: back}
}

// lane is one direction of a pipe.
type lane struct {
	messages chan []byte
	ended    chan struct{} // closed by whichever end closes first
	once     sync.Once
}

func newLane() *lane {
	return &lane{messages: make(chan []byte, pipeRoom), ended: make(chan struct{})}
}

func (l *lane) end() { l.once.Do(func() { close(l.ended) }) }

type pipe struct{ in, out *lane }

func (p *pipe) Read() ([]byte, error) {
	select {
	case m := <-p.in.messages:
		return m, nil
	default:
	}
	select {
	case m := <-p.in.messages:
		return m, nil
	case <-p.in.ended:
	}
	select { // both may have been there at once
	case m := <-p.in.messages:
		return m, nil
	default:
		return nil, io.EOF
	}
}

func (p *pipe) Write(message []byte) error {
	select {
	case <-p.out.ended:
		return io.ErrClosedPipe
	default:
	}
	select {
	case p.out.messages <- bytes.Clone(message):
		return nil
	case <-p.out.ended:
		return io.ErrClosedPipe
	}
}

func (p *pipe) Close() error {
	p.in.end()
	p.out.end()
	return nil
}
