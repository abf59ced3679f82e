package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// The eras of the protocol: a session of the newest revision that has one, or
// each request on its own.
const (
	eraLegacy = "2025-11-25"
	eraModern = "2026-07-28"
)

// web is the leanest HTTP client there can be: raw HTTP/1.1 on connections that
// are kept, each with one request at a time, answers searched and not decoded.
type web struct {
	name    string
	host    string
	path    string
	era     string
	session string // what a legacy server named its session
	token   string // who calls; empty: nobody asks
	mid     *service
	seq     atomic.Int64
	lines   []*line
}

// line is one connection.
type line struct {
	conn net.Conn
	in   *bufio.Reader
	out  []byte
	body []byte
}

// openWeb does the handshake of the era, if it has one, and makes a call.
func openWeb(name, address, era, token string, mid *service) (*web, error) {
	at, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	w := &web{name: name, host: at.Host, path: at.Path, era: era, token: token, mid: mid}
	if era == eraLegacy {
		if err := w.initialize(); err != nil {
			return nil, errors.Join(err, w.close())
		}
	}
	if _, err := w.call("echo", `{"text":"x"}`); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

func (w *web) initialize() error {
	l, err := w.line(0)
	if err != nil {
		return err
	}
	head, err := w.exchange(l, "initialize", "", fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"initialize","params":{"protocolVersion":"%s",`+
		`"capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}`, w.seq.Add(1), eraLegacy))
	if err != nil {
		return fmt.Errorf("initialize: %w", err)
	}
	w.session = head.session
	return w.notify(l, "notifications/initialized", `{}`)
}

// notify posts a notification.
func (w *web) notify(l *line, method, params string) error {
	if err := w.post(l, method, "", fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"%s","params":%s}`, method, params)); err != nil {
		return err
	}
	head, err := l.read()
	if err == nil && head.status/100 != 2 {
		err = fmt.Errorf("%s: status %d: %s", method, head.status, l.body[:min(200, len(l.body))])
	}
	return err
}

// line returns the n-th connection, made if it is not there yet.
func (w *web) line(n int) (*line, error) {
	for len(w.lines) <= n {
		w.lines = append(w.lines, nil)
	}
	if w.lines[n] == nil {
		conn, err := net.DialTimeout("tcp", w.host, limit)
		if err != nil {
			return nil, err
		}
		w.lines[n] = &line{conn: conn, in: bufio.NewReaderSize(conn, 4<<10)}
	}
	return w.lines[n], nil
}

// hangUp closes the n-th connection.
func (w *web) hangUp(n int) error {
	err := w.lines[n].conn.Close()
	w.lines[n] = nil
	return err
}

func (w *web) root() int {
	if w.mid == nil {
		return 0
	}
	return w.mid.pid()
}

func (w *web) close() error {
	for n, l := range w.lines {
		if l != nil {
			_ = w.hangUp(n)
		}
	}
	return nil
}

// modernMeta is what each request of 2026-07-28 says about its caller.
const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"` + eraModern + `",` +
	`"io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`

// toolCall is the body of a call.
func (w *web) toolCall(dst []byte, id int64, tool, args string) []byte {
	dst = fmt.Appendf(dst, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"%s","arguments":%s`, id, tool, args)
	if w.era == eraModern {
		dst = append(dst, ","+modernMeta...)
	}
	return append(dst, "}}"...)
}

// call makes one call on the first connection.
func (w *web) call(tool, args string) (time.Duration, error) {
	l, err := w.line(0)
	if err != nil {
		return 0, err
	}
	return w.callOn(l, tool, args)
}

func (w *web) callOn(l *line, tool, args string) (time.Duration, error) {
	body := w.toolCall(make([]byte, 0, 512), w.seq.Add(1), tool, args)
	start := time.Now()
	_, err := w.exchange(l, "tools/call", tool, body)
	return time.Since(start), err
}

// pump makes so many calls on 64 connections and returns how long it took.
func (w *web) pump(calls int) (time.Duration, error) {
	for n := range inFlight {
		if _, err := w.line(n); err != nil {
			return 0, err
		}
	}
	args := `{"text":"` + strings.Repeat("x", 70) + `"}`
	var left atomic.Int64
	left.Store(int64(calls))
	errs := make([]error, inFlight)
	var wg sync.WaitGroup
	start := time.Now()
	for n := range inFlight {
		l := w.lines[n]
		wg.Go(func() {
			for errs[n] == nil && left.Add(-1) >= 0 {
				_, errs[n] = w.callOn(l, "echo", args)
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return 0, err // the others say the same
		}
	}
	return time.Since(start), nil
}

// exchange posts a request and reads its answer, which must be a result.
func (w *web) exchange(l *line, method, name string, body []byte) (head, error) {
	if err := w.post(l, method, name, body); err != nil {
		return head{}, err
	}
	h, err := l.read()
	if err == nil && (h.status != 200 || !bytes.Contains(l.body, []byte(`"result"`))) {
		err = fmt.Errorf("status %d: %s", h.status, l.body[:min(300, len(l.body))])
	}
	return h, err
}

// post writes a request in one write.
func (w *web) post(l *line, method, name string, body []byte) error {
	_ = l.conn.SetDeadline(time.Now().Add(limit))
	b := append(l.out[:0], "POST "...)
	b = append(b, w.path...)
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = append(b, w.host...)
	b = append(b, "\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"...)
	if w.token != "" {
		b = append(b, "Authorization: Bearer "...)
		b = append(b, w.token...)
		b = append(b, "\r\n"...)
	}
	if w.session != "" {
		b = append(b, "Mcp-Session-Id: "...)
		b = append(b, w.session...)
		b = append(b, "\r\n"...)
	}
	if method != "initialize" {
		b = append(b, "Mcp-Protocol-Version: "...)
		b = append(b, w.era...)
		b = append(b, "\r\n"...)
	}
	if w.era == eraModern {
		b = append(b, "Mcp-Method: "...)
		b = append(b, method...)
		b = append(b, "\r\nMcp-Name: "...)
		b = append(b, name...)
		b = append(b, "\r\n"...)
	}
	b = append(b, "Content-Length: "...)
	b = strconv.AppendInt(b, int64(len(body)), 10)
	b = append(b, "\r\n\r\n"...)
	l.out = append(b, body...)
	_, err := l.conn.Write(l.out)
	return err
}

// head is what matters of a response's head.
type head struct {
	status  int
	length  int // -1: chunked
	session string
}

// read reads one response to its end; the body stands in l.body until the next.
func (l *line) read() (head, error) {
	h, err := l.readHead()
	if err != nil {
		return h, err
	}
	l.body = l.body[:0]
	if h.length >= 0 {
		return h, l.more(h.length)
	}
	for {
		text, err := l.text()
		if err != nil {
			return h, err
		}
		size, err := strconv.ParseUint(string(text), 16, 31)
		if err != nil {
			return h, fmt.Errorf("a chunk of size %q", text)
		}
		if err := l.more(int(size)); err != nil {
			return h, err
		}
		if _, err := l.text(); err != nil || size == 0 {
			return h, err
		}
	}
}

func (l *line) readHead() (head, error) {
	text, err := l.text()
	if err != nil {
		return head{}, err
	}
	const status = len("HTTP/1.1 ")
	var h head
	if len(text) < status+3 {
		return h, fmt.Errorf("no status line: %q", text)
	}
	h.status, _ = strconv.Atoi(string(text[status : status+3]))
	for {
		text, err := l.text()
		if err != nil || len(text) == 0 {
			return h, err
		}
		name, value, _ := bytes.Cut(text, []byte{':'})
		switch {
		case bytes.EqualFold(name, []byte("Content-Length")):
			h.length, _ = strconv.Atoi(string(bytes.TrimSpace(value)))
		case bytes.EqualFold(name, []byte("Transfer-Encoding")):
			h.length = -1
		case bytes.EqualFold(name, []byte("Mcp-Session-Id")):
			h.session = string(bytes.TrimSpace(value))
		}
	}
}

// text reads one line without its end.
func (l *line) text() ([]byte, error) {
	text, err := l.in.ReadSlice('\n')
	return bytes.TrimSuffix(bytes.TrimSuffix(text, []byte{'\n'}), []byte{'\r'}), err
}

// more appends so many bytes to the body.
func (l *line) more(n int) error {
	have := len(l.body)
	if cap(l.body) < have+n {
		l.body = append(make([]byte, 0, 2*(have+n)), l.body...)
	}
	l.body = l.body[:have+n]
	_, err := io.ReadFull(l.in, l.body[have:])
	return err
}
