package fakemodel

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// MaxBody bounds a request: agents send their instructions and tools with
	// each, a few hundred kilobytes.
	MaxBody = 16 << 20
	// MaxLog bounds the log; what comes later is not kept.
	MaxLog = 10_000
)

// hangBeat is how often a stream that never ends shows that it is alive.
const hangBeat = 500 * time.Millisecond

// Step is one thing that the model does, once.
type Step struct {
	Word string // in the prompt; required
	// Shell is the command line for the agent's shell tool, whatever its name.
	Shell string
	// Tool is a part of the name of another tool, called with Arguments. Used if
	// Shell is empty.
	Tool      string
	Arguments map[string]any
	// Hang: instead of a call, begin to answer and never come to an end.
	Hang bool
	// Ask makes a call of the shell tool one for which the agent has to ask, in
	// agents where the model says so.
	Ask bool
}

// Event is a line of the log.
type Event struct {
	Time time.Time
	// What: "call" (Detail: the tool), "text", "hang", "closed" (the client closed
	// a stream that hangs), "refused" (Detail: the address outside), "unknown"
	// (Detail: method and path).
	What, Detail string
}

// Server is the model. Its methods are safe for concurrent use.
type Server struct {
	listener net.Listener
	server   *http.Server
	done     chan struct{} // closed when server has ended
	ending   chan struct{} // closed by Close; ends the streams that hang
	close    sync.Once

	mu    sync.Mutex // guards the fields below
	steps []Step     // not yet taken
	given int        // answers
	log   []Event
}

// Start listens on a free port of loopback. The caller must call Close.
func Start(steps ...Step) (*Server, error) {
	for _, s := range steps {
		if s.Word == "" {
			return nil, errors.New("fakemodel: a step has no word that selects it")
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Server{
		listener: listener,
		done:     make(chan struct{}),
		ending:   make(chan struct{}),
		steps:    slices.Clone(steps),
	}
	s.server = &http.Server{
		Handler:           s,
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          log.New(io.Discard, "", 0), // agents that are killed break connections
	}
	go func() { // ends with Close
		defer close(s.done)
		_ = s.server.Serve(listener)
	}()
	return s, nil
}

// URL is the address without a path.
func (s *Server) URL() string { return "http://" + s.listener.Addr().String() }

// Close ends every connection and waits for the listener. It may be called more
// than once.
func (s *Server) Close() {
	s.close.Do(func() { close(s.ending) })
	_ = s.server.Close()
	<-s.done
}

// Log is what happened so far, oldest first.
func (s *Server) Log() []Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.log)
}

func (s *Server) note(what, detail string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.log) < MaxLog {
		s.log = append(s.log, Event{time.Now(), what, detail})
	}
}

// offer is a tool that a request offers.
type offer struct {
	name  string
	group string // of the responses interface: the entry that holds it
}

// request is what is read of any interface's request.
type request struct {
	model  string
	stream bool
	offers []offer
}

// reply is what the model says: a call, or a text.
type reply struct {
	offer
	arguments map[string]any
	text      string
	hang      bool
	number    int // of this answer: ids must differ within a session
}

// id makes an id of this answer.
func (r reply) id(prefix string) string { return fmt.Sprintf("%s_%d", prefix, r.number) }

// dialect is one interface.
type dialect struct {
	read  func(path string, body []byte) (request, error)
	write func(*wire, request, reply)
}

// dialectOf finds the interface by the path; nil: none.
func dialectOf(path string) *dialect {
	switch {
	case strings.HasSuffix(path, "/messages"):
		return &dialect{readMessages, writeMessages}
	case strings.HasSuffix(path, "/responses"):
		return &dialect{readResponses, writeResponses}
	case strings.HasSuffix(path, "/chat/completions"):
		return &dialect{readChat, writeChat}
	case strings.HasSuffix(path, "enerateContent"): // generate…, streamGenerate…
		return &dialect{readGemini, writeGemini}
	}
	return nil
}

// ServeHTTP answers one request; it is there for Start.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodConnect || (r.URL.Host != "" && r.URL.Host != s.listener.Addr().String()) {
		s.note("refused", r.Host)
		http.Error(w, "nothing leaves this machine", http.StatusForbidden)
		return
	}
	if d := dialectOf(r.URL.Path); d != nil && r.Method == http.MethodPost {
		s.answer(w, r, d)
		return
	}
	small := map[string]string{ //nolint:gosec // those tokens are words of a text
		"/messages/count_tokens": `{"input_tokens":1}`,
		":countTokens":           `{"totalTokens":1}`,
		"/models":                `{"object":"list","data":[{"id":"mock","object":"model"}],"models":[]}`,
	}
	for end, body := range small {
		if strings.HasSuffix(r.URL.Path, end) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, body) // a client that is gone needs no answer
			return
		}
	}
	if r.Method == http.MethodHead { // a probe for the connection
		return
	}
	s.note("unknown", r.Method+" "+r.URL.Path)
	http.Error(w, `{"error":{"message":"fakemodel has no such path"}}`, http.StatusNotFound)
}

// answer says what the next step wants, or that all is done.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, d *dialect) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	if err != nil {
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	q, err := d.read(r.URL.Path, body)
	if err != nil {
		s.note("unknown", r.URL.Path+": "+err.Error())
		http.Error(w, `{"error":{"message":"not a request of this interface"}}`, http.StatusBadRequest)
		return
	}
	rep := s.next(q, body)
	out := &wire{w: w}
	out.flusher, _ = w.(http.Flusher)
	d.write(out, q, rep)
	if rep.hang {
		s.hang(out, r)
	}
}

// next takes the first step that fits the request.
func (s *Server) next(q request, body []byte) reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	event := Event{time.Now(), "text", ""}
	rep := reply{text: "done."}
	for i, step := range s.steps {
		if !bytes.Contains(body, []byte(step.Word)) {
			continue
		}
		if tool, arguments, ok := step.pick(q.offers); ok {
			s.steps = slices.Delete(s.steps, i, i+1)
			rep, event.What = reply{text: "thinking.", hang: true}, "hang"
			if !step.Hang {
				rep = reply{offer: tool, arguments: arguments}
				event.What, event.Detail = "call", tool.name
			}
			break
		}
	}
	s.given++
	rep.number = s.given
	if len(s.log) < MaxLog {
		s.log = append(s.log, event)
	}
	return rep
}

// shells are the shell tools of the agents we know, each with its arguments. An
// agent would end a command that takes too long: the call asks for the longest
// time.
var shells = map[string]func(command string) map[string]any{
	"Bash": func(c string) map[string]any { // claude-agent-acp
		return map[string]any{"command": c, "description": "works", "timeout": 300_000}
	},
	"exec_command": func(c string) map[string]any { // codex-acp
		return map[string]any{"cmd": c, "yield_time_ms": 300_000}
	},
	"run_shell_command": func(c string) map[string]any { // gemini-cli
		return map[string]any{"command": c, "description": "works"}
	},
	"bash": func(c string) map[string]any { // opencode
		return map[string]any{"command": c, "description": "works", "timeout": 300_000}
	},
}

// pick finds the step's tool among those offered. A step that hangs takes any
// request with tools: it is the turn's, not one for a title.
func (p Step) pick(offers []offer) (offer, map[string]any, bool) {
	for _, o := range offers {
		switch arguments := shells[o.name]; {
		case p.Hang:
			return o, nil, true
		case p.Shell != "" && arguments != nil:
			list := arguments(p.Shell)
			if p.Ask && o.name == "exec_command" {
				list["sandbox_permissions"], list["justification"] = "require_escalated", "it works"
			}
			return o, list, true
		case p.Shell == "" && p.Tool != "" && strings.Contains(o.name, p.Tool):
			return o, p.Arguments, true
		}
	}
	return offer{}, nil, false
}

// hang keeps the stream open until the client closes it or the server ends.
func (s *Server) hang(out *wire, r *http.Request) {
	beat := time.NewTicker(hangBeat)
	defer beat.Stop()
	for {
		select {
		case <-beat.C:
			out.comment()
		case <-r.Context().Done():
			s.note("closed", r.URL.Path)
			return
		case <-s.ending:
			return
		}
	}
}

// wire writes one answer: a stream of server-sent events, or one JSON object.
// Errors of writing are the client's end, which the request's context tells.
type wire struct {
	w       http.ResponseWriter
	flusher http.Flusher
	begun   bool
}

// event sends one event of a stream; "" = without a name.
func (o *wire) event(name string, data any) {
	if !o.begun {
		o.begun = true
		o.w.Header().Set("Content-Type", "text/event-stream")
		o.w.Header().Set("Cache-Control", "no-cache")
	}
	if name != "" {
		fmt.Fprintf(o.w, "event: %s\n", name)
	}
	fmt.Fprintf(o.w, "data: %s\n\n", text(data))
	o.flush()
}

func (o *wire) comment() {
	fmt.Fprint(o.w, ": alive\n\n")
	o.flush()
}

func (o *wire) flush() {
	if o.flusher != nil {
		o.flusher.Flush()
	}
}

// whole sends the answer as one object.
func (o *wire) whole(data any) {
	o.w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(o.w, text(data))
}

// object is JSON in the making.
type object = map[string]any

// text is the JSON of what this package made: maps, slices and texts, which
// cannot fail.
func text(data any) string {
	if s, ok := data.(string); ok { // the end mark of a stream
		return s
	}
	raw, err := json.Marshal(data)
	if err != nil {
		panic(fmt.Sprintf("fakemodel: %v", err))
	}
	return string(raw)
}
