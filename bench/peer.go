package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"
)

// peer is the leanest stdio client there can be: one goroutine, no JSON
// decoding, ids found by their text. What it measures is the other side.
type peer struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	seq int
	buf []byte
	err *tail // the last of its stderr
}

// tail keeps the last bytes written to it, for error messages.
type tail struct {
	mu  sync.Mutex // guards buf
	buf []byte
}

const maxTail = 2000

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, b...)
	t.buf = t.buf[max(0, len(t.buf)-maxTail):]
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.buf))
}

const limit = 30 * time.Second // for any one answer

// openPeer starts a command and does the handshake.
func openPeer(argv, env []string) (*peer, error) {
	p, err := startPeer(argv, env)
	if err != nil {
		return nil, err
	}
	if err := p.initialize(); err != nil {
		_ = p.close()
		return nil, err
	}
	return p, nil
}

func startPeer(argv, env []string) (*peer, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), env...)
	stderr := &tail{}
	cmd.Stderr = stderr
	cmd.WaitDelay = time.Second
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		return nil, err
	}
	return &peer{cmd: cmd, in: in, out: bufio.NewReaderSize(out, 64<<10), err: stderr}, nil
}

func (p *peer) initialize() error {
	p.seq++
	err := p.send(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"initialize","params":{"protocolVersion":"2025-11-25",`+
		`"capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}`, p.seq))
	if err != nil {
		return err
	}
	if err := p.await(p.seq); err != nil {
		return fmt.Errorf("initialize: %w", err)
	}
	return p.send([]byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
}

// send writes one line in one write.
func (p *peer) send(line []byte) error {
	_, err := p.in.Write(append(line, '\n'))
	return err
}

// post sends a tools/call without waiting and returns its id.
func (p *peer) post(tool, args string) (int, error) {
	p.seq++
	return p.seq, p.send(fmt.Appendf(nil,
		`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"%s","arguments":%s}}`, p.seq, tool, args))
}

// call sends a tools/call and waits for its answer.
func (p *peer) call(tool, args string) (time.Duration, error) {
	start := time.Now()
	id, err := p.post(tool, args)
	if err != nil {
		return 0, err
	}
	err = p.await(id)
	return time.Since(start), err
}

func (p *peer) cancel(id int) error {
	return p.send(fmt.Appendf(nil,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d,"reason":"bench"}}`, id))
}

// await reads until the answer with this id, and passes over everything else.
func (p *peer) await(id int) error {
	for {
		got, failed, err := p.next()
		if err != nil {
			return fmt.Errorf("waiting for the answer %d: %w; stderr: %s", id, err, p.err)
		}
		if got == id && failed != "" {
			return fmt.Errorf("the answer %d is an error: %s", id, failed)
		}
		if got == id {
			return nil
		}
	}
}

// next reads one line and returns the number after its first "id", 0 if there
// is none, and the head of an error answer.
func (p *peer) next() (id int, failed string, err error) {
	line, err := p.line()
	if err != nil {
		return 0, "", err
	}
	head := line[:min(len(line), 200)]
	if bytes.Contains(head, []byte(`"error"`)) {
		failed = string(head)
	}
	_, after, ok := bytes.Cut(head, []byte(`"id":`))
	if !ok {
		_, after, ok = bytes.Cut(line[max(0, len(line)-40):], []byte(`"id":`))
	}
	if !ok {
		return 0, failed, nil
	}
	n := 0
	for n < len(after) && after[n] >= '0' && after[n] <= '9' {
		n++
	}
	id, _ = strconv.Atoi(string(after[:n])) // a string id is 0, nobody's
	return id, failed, nil
}

// line reads one line of any length into a buffer that is used again. A peer
// that hangs is killed after the limit, which ends the read.
func (p *peer) line() ([]byte, error) {
	guard := time.AfterFunc(limit, func() { _ = p.cmd.Process.Kill() })
	defer guard.Stop()
	p.buf = p.buf[:0]
	for {
		part, err := p.out.ReadSlice('\n')
		if err == nil && len(p.buf) == 0 {
			return part, nil
		}
		p.buf = append(p.buf, part...)
		if err == nil {
			return p.buf, nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
	}
}

func (p *peer) root() int { return p.cmd.Process.Pid }

// close ends the input and waits; a command that stays is killed.
func (p *peer) close() error {
	_ = p.in.Close()
	guard := time.AfterFunc(5*time.Second, func() { _ = p.cmd.Process.Kill() })
	defer guard.Stop()
	_, _ = io.Copy(io.Discard, p.out)
	_ = p.cmd.Wait() // the exit code of a measured process says nothing here
	return nil
}
