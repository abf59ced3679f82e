package gateway

import (
	"errors"
	"io"

	"github.com/belayhq/belay/jsonrpc"
)

// Feed takes what the caller writes until it writes no more, and returns why
// that was: nil at a clean end, else the error of [jsonrpc.Reader.Next]. A line
// over the bound costs that line only. It is for one goroutine; it never waits
// for the server, only for the caller.
func (s *Session) Feed(in io.Reader) error {
	reader := jsonrpc.NewReader(in, jsonrpc.ReaderOptions{Max: s.cfg.MaxLine})
	var hold holder
	defer hold.release()
	for {
		if !reader.Ready() {
			hold.release() // what follows may take hours to come
		}
		line, err := reader.Next()
		if err == nil {
			s.rest.touch()
			hold.take(s.currentInput())
			s.Receive(line)
			continue
		}
		long, ok := errors.AsType[*jsonrpc.TooLongError](err)
		switch {
		case ok:
			s.TooLong(long)
		case errors.Is(err, io.EOF):
			return nil
		default:
			return err
		}
	}
}

// currentInput is where most of what the caller sends goes; nil at times.
func (s *Session) currentInput() *jsonrpc.Writer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil {
		return nil
	}
	p, _ := s.current.wire.(pipe)
	return p.in
}

// holder keeps what lines that came together become together, too: they leave
// in one write when the last of them was seen to. It belongs to one goroutine.
type holder struct{ w *jsonrpc.Writer }

func (h *holder) take(w *jsonrpc.Writer) {
	if h.w == w {
		return
	}
	h.release()
	if h.w = w; w != nil {
		w.Hold()
	}
}

func (h *holder) release() {
	if h.w != nil {
		h.w.Release()
		h.w = nil
	}
}
