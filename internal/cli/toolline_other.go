//go:build !linux && !darwin

package cli

import (
	"bufio"
	"context"
	"io"
	"os"
	"sync"
)

// lineReader reads lines from a terminal.
type lineReader struct {
	from *os.File

	begin sync.Once
	lines chan string // closed when no more can come
}

// read hands on what is typed. It ends with the input, or with the program: here a
// read from a terminal cannot be taken back.
func (r *lineReader) read() {
	defer close(r.lines)
	in := bufio.NewScanner(r.from)
	for in.Scan() {
		r.lines <- in.Text()
	}
}

// next is the next line; [io.EOF] if there is none, the cause of ctx if it ends.
func (r *lineReader) next(ctx context.Context) (string, error) {
	r.begin.Do(func() { r.lines = make(chan string); go r.read() })
	select {
	case <-ctx.Done():
		return "", context.Cause(ctx)
	case line, ok := <-r.lines:
		if !ok {
			return "", io.EOF
		}
		return line, nil
	}
}
