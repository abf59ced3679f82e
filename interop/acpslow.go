package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/belayhq/belay/internal/faketool"
)

// The MCP server of the agents' sessions: one tool, slow, that works until its
// time is over or it is told to stop. It writes every message and signal that
// reaches it into its witness, and each tenth of a second of its work.

// slowMarker is the first argument that makes this binary the server.
const slowMarker = "acp-slow"

// slowKey is the key of its lines in the witness.
const slowKey = "mcp"

// slowBeat is how often the tool shows that it works.
const slowBeat = 100 * time.Millisecond

// slowServer is one server; its witness is the only thing that outlives it.
type slowServer struct {
	witness string

	mu    sync.Mutex // guards stdout and the field below
	calls map[string]chan struct{}
}

// slow serves until its input ends.
func slow(args []string) int {
	if len(args) != 1 {
		fmt.Fprintln(os.Stderr, "usage:", slowMarker, "WITNESS")
		return 2
	}
	s := &slowServer{witness: args[0], calls: map[string]chan struct{}{}}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, os.Interrupt)
	go func() {
		got := <-signals
		s.note("signal", got.String())
		os.Exit(143)
	}()
	time.AfterFunc(2*time.Minute, func() { os.Exit(99) }) // a failed row leaves nothing that lives longer
	s.note("start", "")
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		s.read(lines.Bytes())
	}
	s.note("eof", "")
	return 0
}

func (s *slowServer) note(name, detail string) {
	faketool.Record(s.witness, slowKey, name, detail)
}

// read handles one message.
func (s *slowServer) read(line []byte) {
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params struct {
			ProtocolVersion string          `json:"protocolVersion"`
			RequestID       json.RawMessage `json:"requestId"`
			Arguments       struct {
				Seconds float64 `json:"seconds"`
			} `json:"arguments"`
		} `json:"params"`
	}
	if err := json.Unmarshal(line, &m); err != nil {
		s.note("garbage", err.Error())
		return
	}
	s.note("message", m.Method)
	switch {
	case m.Method == "notifications/cancelled":
		s.stop(string(m.Params.RequestID))
	case m.ID == nil:
	case m.Method == "initialize":
		version, _ := json.Marshal(m.Params.ProtocolVersion) // a text
		s.reply(m.ID, `{"protocolVersion":`+string(version)+`,"capabilities":{"tools":{}},"serverInfo":{"name":"witness","version":"1"}}`)
	case m.Method == "tools/list":
		s.reply(m.ID, `{"tools":[{"name":"slow","description":"works slowly","inputSchema":{"type":"object","properties":{"seconds":{"type":"number"}}}}]}`)
	case m.Method == "tools/call":
		s.call(string(m.ID), time.Duration(m.Params.Arguments.Seconds*float64(time.Second)))
	case m.Method == "ping":
		s.reply(m.ID, `{}`)
	default:
		s.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`, m.ID))
	}
}

// call starts the tool; a cancelled call is not answered.
func (s *slowServer) call(id string, work time.Duration) {
	told := make(chan struct{})
	s.mu.Lock()
	s.calls[id] = told
	s.mu.Unlock()
	s.note("begin", id)
	go func() { // ends with the work, or with the process
		beat := time.NewTicker(slowBeat)
		defer beat.Stop()
		for end := time.Now().Add(work); time.Now().Before(end); {
			select {
			case <-told:
				s.note("stopped", id)
				return
			case <-beat.C:
				s.note("tick", id)
			}
		}
		s.note("done", id)
		s.reply(json.RawMessage(id), `{"content":[{"type":"text","text":"done"}]}`)
	}()
}

func (s *slowServer) stop(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if told := s.calls[id]; told != nil {
		close(told)
		delete(s.calls, id)
	}
}

func (s *slowServer) reply(id json.RawMessage, result string) {
	s.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result))
}

func (s *slowServer) send(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Println(line)
}
