package acp

import (
	"bytes"
	"errors"
	"io"

	"github.com/belayhq/belay/jsonrpc"
)

// Transport moves whole messages between two sides: lines, the frames of a
// WebSocket, a pipe in memory. A [Conn] owns its transport and is the only one to
// use it.
type Transport interface {
	// Read returns the next message. It is called by one goroutine at a time, and
	// what it returned before is not used any more. At the end it returns io.EOF. An
	// error that matches [jsonrpc.ErrTooLong] costs one message; every other one is
	// the end.
	Read() ([]byte, error)

	// Write sends one message, which has no line breaks in it. It is called by one
	// goroutine at a time and must not keep the message. It may wait for the peer.
	Write(message []byte) error

	// Close ends both directions; Read and Write that wait then return. It may be
	// called more than once, and concurrently with everything.
	Close() error
}

// streamer is a transport that is a stream of lines beneath: then messages need
// not be cut out of the stream again.
type streamer interface{ stream() io.WriteCloser }

// outlet is what a [jsonrpc.Writer] writes to.
func outlet(t Transport) io.WriteCloser {
	if s, ok := t.(streamer); ok {
		return s.stream()
	}
	return &unliner{to: t}
}

// unliner cuts what the writer hands over, which is always whole lines, into
// messages.
type unliner struct{ to Transport }

func (u *unliner) Write(lines []byte) (int, error) {
	n := 0
	for len(lines) > n {
		end := bytes.IndexByte(lines[n:], '\n')
		if end < 0 {
			return n, io.ErrShortWrite
		}
		if err := u.to.Write(lines[n : n+end]); err != nil {
			return n, err
		}
		n += end + 1
	}
	return n, nil
}

func (u *unliner) Close() error { return u.to.Close() }

// NewStdio is the transport over two pipes, one message per line (ACP-73): for an
// agent os.Stdin and os.Stdout, for a client the pipes of the agent's process.
// Both are the transport's own from here on. A line of more than
// [jsonrpc.DefaultMaxLine] bytes costs that line only.
func NewStdio(in io.ReadCloser, out io.WriteCloser) Transport {
	return &stdio{r: jsonrpc.NewReader(in, jsonrpc.ReaderOptions{}), in: in, out: out}
}

type stdio struct {
	r   *jsonrpc.Reader
	in  io.ReadCloser
	out io.WriteCloser
}

func (s *stdio) Read() ([]byte, error) { return s.r.Next() }

func (s *stdio) Write(message []byte) error {
	_, err := s.out.Write(append(bytes.Clone(message), '\n'))
	return err
}

func (s *stdio) Close() error { return errors.Join(s.out.Close(), s.in.Close()) }

func (s *stdio) stream() io.WriteCloser { return s.out }
