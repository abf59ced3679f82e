package faketool

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// maxKept bounds the lines a client keeps; older ones are forgotten.
const maxKept = 200_000

// Message is one line that a [Client] received.
type Message struct {
	Time   time.Time       // when the line was complete
	Raw    string          // the line without its newline
	ID     string          // raw JSON of the id, "" if there is none
	Method string          // "" for a response
	Params json.RawMessage // of a request or notification
	Result json.RawMessage // of a response
	Error  *Error          // of a response
	JSON   bool            // false: the line was no JSON object
}

// Error is the error of a response.
type Error struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data"`
}

// IsResponse reports whether the message answers a request.
func (m Message) IsResponse() bool { return m.JSON && m.Method == "" }

// Text returns the first text of a tool result, "" if there is none.
func (m Message) Text() string {
	var r textResult
	if json.Unmarshal(m.Result, &r) != nil || len(r.Content) == 0 {
		return ""
	}
	return r.Content[0].Text
}

// Client is a stdio client that sends what it is told, well formed or not, and
// keeps every line it receives with its time. It answers nothing by itself.
// All methods may be called concurrently.
type Client struct {
	// Timeout bounds Expect, Await and the like; 0 means 30 s.
	Timeout time.Duration

	cmd    *exec.Cmd // nil: made by NewClient
	in     io.WriteCloser
	readOK chan struct{} // closed when the reader has ended

	sendMu sync.Mutex // guards writes to in

	waitMu sync.Mutex // guards waited; its own, so that reading goes on meanwhile
	waited bool

	mu     sync.Mutex    // guards the fields below
	got    []Message     // every line, oldest first
	change chan struct{} // closed and replaced at each change
	ended  error         // why reading ended; nil while it goes on
}

// NewClient returns a client that reads lines from r and writes to w. Close
// closes w; the reader ends when r does.
func NewClient(r io.Reader, w io.WriteCloser) *Client {
	c := &Client{in: w, change: make(chan struct{}), readOK: make(chan struct{})}
	go c.read(r)
	return c
}

// ClientOptions say how the command of a client is started.
type ClientOptions struct {
	Env    []string  // added to the environment of this process
	Alone  bool      // Env is the whole environment
	Dir    string    // working directory; "" = this process's
	Stderr io.Writer // nil = this process's stderr
}

// StartClient starts a command and talks to its stdio.
func StartClient(argv []string, opt ClientOptions) (*Client, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = opt.Env
	if !opt.Alone {
		cmd.Env = append(os.Environ(), opt.Env...)
	}
	cmd.Dir = opt.Dir
	cmd.Stderr = opt.Stderr
	if cmd.Stderr == nil {
		cmd.Stderr = os.Stderr
	}
	// A grandchild that kept stderr open must not hang Wait for ever.
	cmd.WaitDelay = time.Second
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	// A pipe of our own: Wait closes StdoutPipe's before everything is read.
	out, outW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout = outW
	err = cmd.Start()
	_ = outW.Close()
	if err != nil {
		_ = out.Close()
		return nil, fmt.Errorf("start %q: %w", argv[0], err)
	}
	c := NewClient(out, in)
	c.cmd = cmd
	return c, nil
}

// read keeps every line until the end.
func (c *Client) read(r io.Reader) {
	defer close(c.readOK)
	if closer, ok := r.(io.Closer); ok {
		defer closer.Close()
	}
	in := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := in.ReadString('\n')
		at := time.Now()
		c.mu.Lock()
		if line != "" {
			c.got = append(c.got, parseMessage(at, strings.TrimSuffix(line, "\n")))
			if len(c.got) > maxKept {
				c.got = c.got[len(c.got)/2:]
			}
		}
		c.ended = err
		close(c.change)
		c.change = make(chan struct{})
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func parseMessage(at time.Time, line string) Message {
	m := Message{Time: at, Raw: line}
	var raw struct {
		message
		Error *Error `json:"error"`
	}
	if json.Unmarshal([]byte(line), &raw) != nil {
		return m
	}
	m.JSON, m.ID, m.Method = true, string(raw.ID), raw.Method
	m.Params, m.Result, m.Error = raw.Params, raw.Result, raw.Error
	return m
}

// Pid returns the process id of the command.
func (c *Client) Pid() int { return c.cmd.Process.Pid }

// Send writes one line; the newline is added.
func (c *Client) Send(line string) error { return c.SendBytes([]byte(line + "\n")) }

// Sendf formats and sends one line.
func (c *Client) Sendf(format string, args ...any) error {
	return c.Send(fmt.Sprintf(format, args...))
}

// SendBytes writes bytes as they are, in one write: two lines together, or
// half of one.
func (c *Client) SendBytes(b []byte) error {
	c.sendMu.Lock()
	defer c.sendMu.Unlock()
	_, err := c.in.Write(b)
	return err
}

// Call sends a tools/call. id and args are raw JSON; token is the raw progress
// token or "".
func (c *Client) Call(id, tool, args, token string) error {
	meta := ""
	if token != "" {
		meta = `,"_meta":{"progressToken":` + token + `}`
	}
	return c.Sendf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"arguments":%s%s}}`, id, tool, args, meta)
}

// CallModern sends a tools/call of 2026-07-28.
func (c *Client) CallModern(id, tool, args, token string) error {
	if token != "" {
		token = `,"progressToken":` + token
	}
	return c.Sendf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"arguments":%s,"_meta":{%s%s}}}`,
		id, tool, args, ModernMeta, token)
}

// ModernMeta are the members that _meta of every 2026-07-28 request has.
const ModernMeta = `"` + metaVersion + `":"` + modernVersion + `","` + metaCaps + `":{}`

// Cancel sends notifications/cancelled for the raw id.
func (c *Client) Cancel(id, reason string) error {
	return c.Sendf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s,"reason":%s}}`, id, quote(reason))
}

// Initialize does the legacy handshake with the id "init" and returns the
// server's answer.
func (c *Client) Initialize(version string) (Message, error) {
	err := c.Sendf(`{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":%q,`+
		`"capabilities":{"roots":{"listChanged":true},"sampling":{},"elicitation":{}},"clientInfo":{"name":"raw","version":"1"}}}`, version)
	if err != nil {
		return Message{}, err
	}
	m, err := c.Expect(`"init"`)
	if err != nil {
		return m, err
	}
	return m, c.Send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

// Expect waits for the response with this raw id: 1 and "1" differ.
func (c *Client) Expect(id string) (Message, error) {
	return c.Await("a response with id "+id, func(m Message) bool { return m.IsResponse() && m.ID == id })
}

// Notification waits for a notification or request with this method.
func (c *Client) Notification(method string) (Message, error) {
	return c.Await("a message "+method, func(m Message) bool { return m.Method == method })
}

// Await waits for a message, past or to come, that match accepts. what names it
// in the error. When the stream ends first, the error wraps why (io.EOF).
func (c *Client) Await(what string, match func(Message) bool) (Message, error) {
	timeout := c.Timeout
	if timeout == 0 {
		timeout = 30 * time.Second
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	seen := 0
	for {
		c.mu.Lock()
		for seen = min(seen, len(c.got)); seen < len(c.got); seen++ {
			if match(c.got[seen]) {
				m := c.got[seen]
				c.mu.Unlock()
				return m, nil
			}
		}
		ended, change := c.ended, c.change
		c.mu.Unlock()
		if ended != nil {
			return Message{}, fmt.Errorf("waiting for %s: %w; last lines: %s", what, ended, c.tail())
		}
		select {
		case <-change:
		case <-timer.C:
			return Message{}, fmt.Errorf("waiting for %s: nothing within %v; last lines: %s", what, timeout, c.tail())
		}
	}
}

// Messages returns every line received so far, oldest first.
func (c *Client) Messages() []Message {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Message(nil), c.got...)
}

// Responses returns the responses received so far for this raw id.
func (c *Client) Responses(id string) []Message {
	var list []Message
	for _, m := range c.Messages() {
		if m.IsResponse() && m.ID == id {
			list = append(list, m)
		}
	}
	return list
}

func (c *Client) tail() string {
	all := c.Messages()
	var text []string
	for _, m := range all[max(0, len(all)-3):] {
		text = append(text, m.Raw[:min(len(m.Raw), 200)])
	}
	return strings.Join(text, " | ")
}

// CloseStdin ends the input of the peer.
func (c *Client) CloseStdin() error { return c.in.Close() }

// Signal sends a signal to the command's process alone.
func (c *Client) Signal(sig os.Signal) error { return c.cmd.Process.Signal(sig) }

// Ended waits until the peer has closed its output and reports whether it did
// so within the time.
func (c *Client) Ended(within time.Duration) bool {
	select {
	case <-c.readOK:
		return true
	case <-time.After(within):
		return false
	}
}

// Wait waits for the command to exit and returns its exit code, -1 if it was
// killed by a signal.
func (c *Client) Wait() int {
	c.waitMu.Lock()
	defer c.waitMu.Unlock()
	if !c.waited {
		_ = c.cmd.Wait() // the exit code below says it all
		c.waited = true
	}
	return c.cmd.ProcessState.ExitCode()
}

// Close ends the input, gives the command two seconds to exit, kills it
// otherwise, and waits for the reader. It returns an error when force was
// needed. A helper that kept the output open is given one more second.
func (c *Client) Close() error {
	_ = c.in.Close()
	if c.cmd == nil {
		<-c.readOK
		return nil
	}
	done := make(chan struct{})
	go func() { c.Wait(); close(done) }()
	var err error
	select {
	case <-done:
	case <-time.After(2 * time.Second):
		_ = c.cmd.Process.Kill()
		<-done
		err = errors.New("the command did not exit within 2s of its end of input and was killed")
	}
	if !c.Ended(time.Second) {
		err = errors.Join(err, errors.New("somebody still holds the command's output open"))
	}
	return err
}
