package fakeagent

import (
	"bufio"
	"encoding/json"
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

// Mode is what an agent does when its turn is stopped.
type Mode string

// The modes. The sheet's section 4 says where they were seen.
const (
	Obedient   Mode = "obedient"    // ends its tool and its questions, then says cancelled
	ShellOn    Mode = "shell-on"    // says cancelled at once; its tool runs on
	Deaf       Mode = "deaf"        // ignores every cancel; the turn goes on
	EndTurn    Mode = "end-turn"    // says end_turn
	Internal   Mode = "internal"    // answers -32603
	Cancelled  Mode = "cancelled"   // answers -32800
	Twice      Mode = "twice"       // answers twice
	Late       Mode = "late"        // answers after Delay, with updates before
	WrongID    Mode = "wrong-id"    // answers under an id that nobody has used
	Flood      Mode = "flood"       // sends updates as fast as it can, then says cancelled
	Dies       Mode = "dies"        // exits
	HalfLine   Mode = "half-line"   // exits within a line
	Waits      Mode = "waits"       // waits for the answers to its questions, as long as it takes
	NoResult   Mode = "no-result"   // answers with neither result nor error
	NoReason   Mode = "no-reason"   // answers without a stop reason
	KeepsGoing Mode = "keeps-going" // says cancelled, then goes on with updates
	ByRequest  Mode = "by-request"  // ignores session/cancel, obeys a cancel of the request
)

// Modes lists them all.
var Modes = []Mode{
	Obedient, ShellOn, Deaf, EndTurn, Internal, Cancelled, Twice, Late, WrongID, Flood, Dies, HalfLine, Waits,
	NoResult, NoReason, KeepsGoing, ByRequest,
}

// Turn is what happens after a prompt, until it is stopped.
type Turn struct {
	Mode       Mode     `json:"mode,omitempty"`       // default: the options'
	Updates    int      `json:"updates,omitempty"`    // message chunks at the start
	Tool       []string `json:"tool,omitempty"`       // a command that is run as a tool call
	ToolCall   string   `json:"toolCall,omitempty"`   // the id of a tool call that is opened; default tc_N with a Tool
	Permission bool     `json:"permission,omitempty"` // asks for one before the tool
	Elicit     bool     `json:"elicit,omitempty"`     // asks for data
	Read       bool     `json:"read,omitempty"`       // asks for a file
	Write      bool     `json:"write,omitempty"`      // asks for a file to be written
	Terminal   bool     `json:"terminal,omitempty"`   // has the editor run a command and waits for it
	EndAfter   int      `json:"endAfter,omitempty"`   // ms, then end_turn; 0: only when it is stopped
	Delay      int      `json:"delay,omitempty"`      // ms before the answer to a Stop
}

// Options are how an agent behaves.
type Options struct {
	Version int           `json:"version,omitempty"` // the newest that it speaks; default 1
	NoClose bool          `json:"noClose,omitempty"` // does not advertise session/close
	Cancel  string        `json:"cancel,omitempty"`  // capability cancellation.request: "true", "false", or none
	Poison  bool          `json:"poison,omitempty"`  // a second session/cancel ends the next turn at once
	Turn    Turn          `json:"turn"`              // the default
	Witness string        `json:"witness,omitempty"` // file; default $FAKEAGENT_WITNESS, none without
	Life    time.Duration `json:"life,omitempty"`    // of a process; default and most two minutes
}

// agent is one connection.
type agent struct {
	o    Options
	wit  *witness
	exit func(code int) // ends the process, or the connection

	mu       sync.Mutex
	out      io.Writer
	closed   bool
	version  int
	seq      int
	sessions map[string]*session
	asks     map[string]func(answer message)
	turns    sync.WaitGroup
}

type session struct {
	id       string
	turn     *turn
	cancels  int // since the last prompt
	poisoned bool
}

// turn is one prompt in flight.
type turn struct {
	a  *agent
	s  *session
	id json.RawMessage
	Turn
	stopped chan struct{} // closed by the first Stop that the mode obeys
	once    sync.Once
	open    map[string]func() // questions, with what withdraws them
	tool    *exec.Cmd
}

type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		SessionID       string          `json:"sessionId"`
		ProtocolVersion int             `json:"protocolVersion"`
		RequestID       json.RawMessage `json:"requestId"`
		ID              json.RawMessage `json:"id"`
		Prompt          []struct {
			Text string `json:"text"`
		} `json:"prompt"`
	} `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

// errDied ends an agent that is no process.
var errDied = errors.New("the fake agent has died, as it was told to")

// Serve is an agent on in and out. It returns at the end of in, or with an error
// when it was to die, and closes both as the end of a process would.
func Serve(in io.Reader, out io.Writer, o Options) error {
	died := make(chan struct{})
	var once sync.Once
	a := newAgent(out, o)
	a.exit = func(int) {
		once.Do(func() { close(died) })
		closeOne(out)
		closeOne(in)
	}
	defer a.wit.close()
	err := a.read(in)
	a.end()
	closeOne(out)
	select {
	case <-died:
		return errDied
	default:
		return err
	}
}

func closeOne(pipe any) {
	if c, ok := pipe.(io.Closer); ok {
		_ = c.Close()
	}
}

func newAgent(out io.Writer, o Options) *agent {
	if o.Version == 0 {
		o.Version = 1
	}
	return &agent{o: o, wit: newWitness(o.Witness), out: out, sessions: map[string]*session{}, asks: map[string]func(message){}}
}

func (a *agent) read(in io.Reader) error {
	lines := bufio.NewReaderSize(in, 1<<16)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 1 {
			var m message
			if json.Unmarshal(line, &m) == nil {
				a.take(m)
			} else {
				a.wit.write("agent", "bad-line", string(line))
			}
		}
		if err != nil {
			a.wit.write("agent", "eof", "")
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrClosedPipe) {
				return nil
			}
			return err
		}
	}
}

// end ends every turn, with its tool: the input is closed. A deaf one ends too, for
// a test is not to leave goroutines.
func (a *agent) end() {
	a.mu.Lock()
	a.closed = true
	var all []*turn
	for _, s := range a.sessions {
		if s.turn != nil {
			all = append(all, s.turn)
		}
	}
	a.mu.Unlock()
	for _, t := range all {
		t.once.Do(func() { close(t.stopped) })
	}
	a.turns.Wait()
}

// sendf writes one line.
func (a *agent) sendf(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sendLockedf(format, args...)
}

func (a *agent) sendLockedf(format string, args ...any) {
	if !a.closed {
		_, _ = fmt.Fprintf(a.out, format+"\n", args...)
	}
}

func (a *agent) take(m message) {
	switch m.Method {
	case "":
		a.answered(m)
	case "initialize":
		a.greet(m)
	case "session/new":
		a.mu.Lock()
		a.seq++
		s := &session{id: "s_" + strconv.Itoa(a.seq)}
		a.sessions[s.id] = s
		a.sendLockedf(`{"jsonrpc":"2.0","id":%s,"result":{"sessionId":%s}}`, m.ID, quote(s.id))
		a.mu.Unlock()
	case "session/prompt":
		a.prompt(m)
	case "session/cancel":
		a.wit.write(m.Params.SessionID, "cancel", "")
		a.cancel(m.Params.SessionID)
	case "$/cancel_request", "$/cancelRequest":
		id := m.Params.RequestID
		if id == nil {
			id = m.Params.ID
		}
		a.wit.write("agent", "request-cancel", string(id))
		a.cancelRequest(id)
	case "session/close":
		a.wit.write(m.Params.SessionID, "close", "")
		a.cancel(m.Params.SessionID)
		a.sendf(`{"jsonrpc":"2.0","id":%s,"result":{}}`, m.ID)
	default:
		if m.ID != nil {
			a.sendf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"Method not found"}}`, m.ID)
		}
	}
}

func (a *agent) greet(m message) {
	v := min(m.Params.ProtocolVersion, a.o.Version)
	a.mu.Lock()
	a.version = v
	a.mu.Unlock()
	var caps []string
	if !a.o.NoClose {
		caps = append(caps, `"sessionCapabilities":{"close":{}}`)
	}
	if a.o.Cancel != "" {
		caps = append(caps, `"cancellation":{"request":`+a.o.Cancel+`}`)
	}
	list := "{" + strings.Join(caps, ",") + "}"
	if v >= 2 {
		a.sendf(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":%d,"info":{"name":"fake","version":"1"},"capabilities":%s}}`, m.ID, v, list)
		return
	}
	a.sendf(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":%d,"agentInfo":{"name":"fake","version":"1"},"agentCapabilities":%s}}`, m.ID, v, list)
}

func (a *agent) prompt(m message) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.sessions[m.Params.SessionID]
	if s == nil {
		a.sendLockedf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"unknown session"}}`, m.ID)
		return
	}
	t := &turn{a: a, s: s, id: m.ID, Turn: a.o.Turn, stopped: make(chan struct{}), open: map[string]func(){}}
	for _, p := range m.Params.Prompt {
		if strings.HasPrefix(p.Text, "{") {
			t.Turn = Turn{}
			_ = json.Unmarshal([]byte(p.Text), &t.Turn)
		}
	}
	if t.Mode == "" {
		t.Mode = Obedient
	}
	a.wit.write(s.id, "prompt", string(t.Mode))
	s.turn, s.cancels = t, 0
	if s.poisoned {
		s.poisoned = false
		t.once.Do(func() { close(t.stopped) })
	}
	a.turns.Go(t.run)
}

// cancel is session/cancel.
func (a *agent) cancel(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.sessions[id]
	if s == nil {
		return
	}
	s.cancels++
	if a.o.Poison && s.cancels > 1 {
		s.poisoned = true
	}
	t := s.turn
	if t == nil || t.Mode == Deaf || t.Mode == ByRequest {
		return
	}
	t.once.Do(func() { close(t.stopped) })
}

// cancelRequest is the cancel of a prompt.
func (a *agent) cancelRequest(id json.RawMessage) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.sessions {
		if t := s.turn; t != nil && string(t.id) == string(id) && t.Mode != Deaf {
			t.once.Do(func() { close(t.stopped) })
		}
	}
}

// ask sends a request to the editor; then gets the answer, if one comes.
func (t *turn) ask(method, params string, then func(message)) {
	a := t.a
	a.mu.Lock()
	defer a.mu.Unlock()
	a.seq++
	id := strconv.Itoa(a.seq) // numbers like the editor's: ids of two directions must not meet
	answered := make(chan struct{})
	a.asks[id] = func(m message) {
		delete(t.open, id)
		close(answered)
		a.wit.write(t.s.id, "answer", method+" "+string(m.Result)+string(m.Error))
		if then != nil {
			a.turns.Go(func() { then(m) })
		}
	}
	t.open[id] = func() { a.sendLockedf(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":%s}}`, id) }
	a.sendLockedf(`{"jsonrpc":"2.0","id":%s,"method":%s,"params":%s}`, id, quote(method), params)
}

func (a *agent) answered(m message) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f := a.asks[string(m.ID)]
	if f == nil {
		a.wit.write("agent", "violation", "an answer to nobody's request: "+string(m.ID))
		return
	}
	delete(a.asks, string(m.ID))
	f(m)
}

func (a *agent) update(s, body string) {
	a.sendf(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":%s,"update":%s}}`, quote(s), body)
}

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string can be written
	}
	return string(b)
}

// Main is the agent as a process; args[0], if it is there, are [Options] in JSON. It
// returns the exit code.
func Main(args []string) int {
	var o Options
	if len(args) > 0 {
		if err := json.Unmarshal([]byte(args[0]), &o); err != nil {
			fmt.Fprintln(os.Stderr, "fakeagent: the options are no JSON:", err)
			return 2
		}
	}
	if o.Life <= 0 || o.Life > maxLife {
		o.Life = maxLife
	}
	time.AfterFunc(o.Life, func() { os.Exit(99) })
	a := newAgent(os.Stdout, o)
	a.exit = os.Exit
	_ = a.read(os.Stdin)
	a.end()
	return 0
}

const maxLife = 2 * time.Minute

// Marker is the first argument that makes a process an agent.
const Marker = "fakeagent"

// MaybeRun turns this process into an agent and exits when its first argument is
// [Marker]; otherwise it changes nothing. Call it before flags are parsed.
func MaybeRun() {
	if len(os.Args) > 1 && os.Args[1] == Marker {
		os.Exit(Main(os.Args[2:]))
	}
}

// Command is the command line that runs this executable as an agent with these
// options. It works in binaries that call [MaybeRun].
func Command(o Options) []string {
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	text, err := json.Marshal(o)
	if err != nil {
		panic(err) // plain fields can be written
	}
	return []string{self, Marker, string(text)}
}
