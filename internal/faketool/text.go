package faketool

import (
	"bytes"
	"sync"
)

// Text keeps what is written to it, a log for example, for a test to look at
// while it is being written. Safe for concurrent use; its zero value is empty.
type Text struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (t *Text) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.buf.Write(p)
}

// String is all that was written so far.
func (t *Text) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.buf.String()
}
