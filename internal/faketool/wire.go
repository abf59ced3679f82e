package faketool

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// message is one JSON-RPC message with everything but the envelope left raw.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

// wire writes lines to a peer, each in one write, and keeps the raw log of
// both directions.
type wire struct {
	mu  sync.Mutex // guards the order of writes
	out io.Writer
	log *os.File // nil: no log
}

// openLog appends to the raw log: "<unix nanoseconds> <pid> > line" for what
// was read, "<" for what was written.
func (w *wire) openLog(path string) error {
	if path == "" {
		return nil
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open raw log: %w", err)
	}
	w.log = file
	return nil
}

func (w *wire) record(dir byte, line []byte) {
	if w.log == nil {
		return
	}
	head := fmt.Appendf(nil, "%d %d %c ", time.Now().UnixNano(), os.Getpid(), dir)
	_, _ = w.log.Write(append(append(head, line...), '\n'))
}

// raw writes a line as it is; nobody checks that it is JSON.
func (w *wire) raw(line []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.record('<', line)
	_, _ = w.out.Write(append(line, '\n'))
}

// part writes bytes without a newline: half a line.
func (w *wire) part(text []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.record('<', text)
	_, _ = w.out.Write(text)
}

func (w *wire) result(id json.RawMessage, result []byte) {
	line := make([]byte, 0, len(result)+len(id)+64)
	line = append(line, `{"jsonrpc":"2.0","id":`...)
	line = append(line, id...)
	line = append(line, `,"result":`...)
	line = append(line, result...)
	w.raw(append(line, '}'))
}

func (w *wire) fail(id json.RawMessage, code int, text string) {
	w.raw(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%s}}`, id, code, quote(text)))
}

func (w *wire) notify(method string, params []byte) {
	w.raw(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":%s,"params":%s}`, quote(method), params))
}

func (w *wire) request(id, method string, params []byte) {
	w.raw(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"method":%s,"params":%s}`, id, quote(method), params))
}

// quote returns s as a JSON string.
func quote(s string) []byte {
	b, err := json.Marshal(s)
	if err != nil {
		return []byte(`""`) // a Go string always marshals
	}
	return b
}
