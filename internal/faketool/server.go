package faketool

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"
)

// serverKey is the witness key of the server's own events.
const serverKey = "server"

// errEOF is the cause of the calls that end with stdin.
var errEOF = errors.New("eof")

// told is the cause of a call that the peer cancelled; its text is the reason.
type told struct{ reason string }

func (t told) Error() string { return t.reason }

// options are the flags of a fake server. Zero values are a well-behaved
// server of both eras.
type options struct {
	deadline
	witness, log, starts            string
	era, name                       string
	deaf, single, deafEOF, deafTerm bool
	stay, mute, early, strict       bool
	reply                           string
	late, startDelay, clean         time.Duration
	startAsk, atStart               string
	bytes                           int
	dieOnStart, versions            bool
	toolsChange, noSubscribe        bool
	dieFrom                         int
	tasks, taskTwice, taskNotify    bool
	taskLate, taskTTL               time.Duration
	taskWhen                        bool
}

func (o *options) flags(fs *flag.FlagSet) {
	o.deadline.flags(fs)
	fs.StringVar(&o.witness, "witness", "", "witness file (default $"+WitnessEnv+")")
	fs.StringVar(&o.log, "log", "", "raw log of every line read and written")
	fs.StringVar(&o.starts, "starts", "", "file that counts the starts (default: the witness file + .starts)")
	fs.StringVar(&o.name, "name", "fake", "serverInfo.name")
	fs.StringVar(&o.era, "era", "both", "legacy (initialize), modern (2026-07-28) or both")
	fs.BoolVar(&o.deaf, "deaf", false, "all calls ignore a cancel")
	fs.BoolVar(&o.single, "single", false, "one thread: read nothing while a tool runs, not even its cancel")
	fs.BoolVar(&o.deafEOF, "deaf-eof", false, "go on at the end of stdin until all calls are done")
	fs.BoolVar(&o.deafTerm, "deaf-term", false, "ignore SIGTERM, SIGINT and SIGHUP")
	fs.BoolVar(&o.stay, "stay", false, "never exit at the end of stdin")
	fs.BoolVar(&o.mute, "mute", false, "deaf calls send no progress after their cancel")
	fs.BoolVar(&o.early, "early", false, "reply to a cancel at once, also when the call goes on")
	fs.BoolVar(&o.strict, "strict", true, "refuse calls before initialize and write down violations")
	fs.StringVar(&o.reply, "reply", "none", "answer to a cancelled call: none, result, iserror, error0 or -32800")
	fs.DurationVar(&o.late, "late", 0, "wait this long before that answer")
	fs.DurationVar(&o.startDelay, "start-delay", 0, "read nothing for this long")
	fs.DurationVar(&o.clean, "clean", 0, "on SIGTERM: clean up for this long, say so, exit 143")
	fs.StringVar(&o.startAsk, "start-ask", "", "ask the client after initialized, and answer no call before: roots, elicit or sampling")
	fs.StringVar(&o.atStart, "misbehave", "", "do this at the start (comma list): "+mischiefKinds)
	fs.IntVar(&o.bytes, "bytes", 1<<20, "size of floods and huge lines at the start")
	fs.BoolVar(&o.dieOnStart, "die", false, "exit at once with code 41")
	fs.IntVar(&o.dieFrom, "die-from", 0, "exit at once with code 41 from the n-th start on")
	fs.BoolVar(&o.versions, "versions", false, "serverInfo.version differs at each start")
	fs.BoolVar(&o.noSubscribe, "no-subscribe", false, "declare no resource subscriptions, which isolation call cannot have")
	fs.BoolVar(&o.tasks, "tasks", false, "calls may become tasks: those of 2025-11-25, and of the extension with the argument task")
	fs.DurationVar(&o.taskLate, "task-late", 0, "say so this long after the work has begun")
	fs.BoolVar(&o.taskWhen, "task-when", false, "say so when there is a file with the witness's name and .task")
	fs.BoolVar(&o.taskTwice, "task-twice", false, "say so twice")
	fs.BoolVar(&o.taskNotify, "task-notify", false, "notify of each state of a task")
	fs.DurationVar(&o.taskTTL, "task-ttl", time.Minute, "the time to live of tasks")
	fs.BoolVar(&o.toolsChange, "tools-change", false, "the list of tools differs at each start")
}

// server is one fake MCP server over stdio.
type server struct {
	opt   options
	out   wire
	wit   *witnessWriter
	start int // how many times a server with this starts file was started

	running sync.WaitGroup // one for each call in a goroutine

	mu     sync.Mutex // guards everything below
	calls  map[string]*call
	tasks  map[string]*fakeTask
	asks   map[string]chan message
	askSeq int
	listen map[string]bool // ids of subscriptions/listen
	state  state
	ready  chan struct{} // closed when calls may be answered
}

// state is what a client has told the server; the state tool returns it, so
// that a test can see whether a replayed session is the old one.
type state struct {
	Pid         int             `json:"pid"`
	Start       int             `json:"start"`
	Initialized int             `json:"initialized"` // how many initialize requests
	Ready       int             `json:"ready"`       // how many initialized notifications
	Version     string          `json:"version"`
	Client      json.RawMessage `json:"client"`
	Level       string          `json:"level"`
	Subscribed  []string        `json:"subscribed"`
	Answers     []string        `json:"answers"` // results of start-up questions
	InFlight    int             `json:"inFlight"`
	ExtraTools  int             `json:"extraTools"`
}

func runServer(args []string) int {
	var opt options
	fs := flag.NewFlagSet("faketool server", flag.ContinueOnError)
	opt.flags(fs)
	if code, ok := parse(fs, args); !ok {
		return code
	}
	if !strings.Contains(" none result iserror error0 -32800 ", " "+opt.reply+" ") {
		fmt.Fprintf(os.Stderr, "faketool server: unknown -reply %q; want none, result, iserror, error0 or -32800\n", opt.reply)
		return exitUsage
	}
	opt.arm()
	s := &server{
		opt: opt, calls: map[string]*call{}, tasks: map[string]*fakeTask{}, asks: map[string]chan message{},
		listen: map[string]bool{}, ready: make(chan struct{}),
	}
	s.out.out = os.Stdout
	if err := s.open(); err != nil {
		fmt.Fprintln(os.Stderr, "faketool server:", err)
		return 1
	}
	s.wit.write(serverKey, "start", fmt.Sprint(s.start))
	if opt.dieOnStart || (opt.dieFrom > 0 && s.start >= opt.dieFrom) {
		fmt.Fprintln(os.Stderr, "faketool server: dying at once, as told")
		return exitCrash
	}
	s.onSignals()
	for _, what := range splitList(opt.atStart) {
		s.mischief(what, opt.bytes, nil)
	}
	time.Sleep(opt.startDelay)
	if opt.startAsk == "" {
		close(s.ready)
	}
	s.read()
	return s.end()
}

// open opens the files and counts this start.
func (s *server) open() (err error) {
	if s.wit, err = newWitnessWriter(s.opt.witness); err != nil {
		return err
	}
	if err := s.out.openLog(s.opt.log); err != nil {
		return err
	}
	s.start = 1
	path := s.opt.starts
	if path == "" && s.wit.path != "" {
		path = s.wit.path + ".starts"
	}
	if path != "" {
		if s.start, err = countStart(path); err != nil {
			return err
		}
	}
	s.state.Pid, s.state.Start = os.Getpid(), s.start
	if s.opt.toolsChange {
		s.state.ExtraTools = s.start - 1
	}
	return nil
}

// countStart appends one byte to the file and returns its new length.
func countStart(path string) (int, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return 0, fmt.Errorf("count starts: %w", err)
	}
	defer file.Close()
	if _, err := file.WriteString("."); err != nil {
		return 0, fmt.Errorf("count starts: %w", err)
	}
	info, err := file.Stat()
	if err != nil {
		return 0, fmt.Errorf("count starts: %w", err)
	}
	return int(info.Size()), nil
}

// Starts returns how many times a server with this starts file was started.
// The default file is the witness file's path with ".starts" appended.
func Starts(path string) int {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return int(info.Size())
}

// onSignals writes SIGTERM down before it is obeyed, or not obeyed.
func (s *server) onSignals() {
	got := make(chan os.Signal, 8)
	signal.Notify(got, termSignals...)
	go func() {
		for sig := range got {
			s.wit.write(serverKey, "sigterm", sig.String())
			if s.opt.deafTerm {
				continue
			}
			if s.opt.clean > 0 {
				time.Sleep(s.opt.clean)
				s.wit.write(serverKey, "cleaned", "")
			}
			leave(exitTerm)
		}
	}()
}

// read takes lines until the end of stdin.
func (s *server) read() {
	in := bufio.NewReaderSize(os.Stdin, 64<<10)
	for {
		line, err := in.ReadBytes('\n')
		if len(line) > 0 && line[len(line)-1] == '\n' {
			s.line(line[:len(line)-1])
		} else if len(line) > 0 {
			s.violation("half a line at the end: " + string(line[:min(len(line), 80)]))
		}
		if err != nil {
			s.wit.write(serverKey, "eof", "")
			return
		}
	}
}

// end does what this server does at the end of its input.
func (s *server) end() int {
	if s.opt.stay {
		select {} // until SIGTERM, SIGKILL or the deadline
	}
	if s.opt.deafEOF {
		s.running.Wait()
		return s.exit(0)
	}
	s.mu.Lock()
	for _, c := range s.calls {
		if !c.deaf {
			c.cancel(errEOF)
		}
	}
	s.mu.Unlock()
	done := make(chan struct{})
	go func() { s.running.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(100 * time.Millisecond): // deaf calls die with the process
	}
	return s.exit(0)
}

func (s *server) exit(code int) int {
	s.wit.write(serverKey, "exit", fmt.Sprint(code))
	return code
}

// violation writes down what no peer may send.
func (s *server) violation(text string) {
	if s.opt.strict {
		s.wit.write(serverKey, "violation", text)
	}
}

// line handles one line from the client. Batches are taken apart, as a server
// of 2025-03-26 must.
func (s *server) line(line []byte) {
	s.out.record('>', line)
	if len(line) > 0 && line[0] == '[' {
		var batch []json.RawMessage
		if json.Unmarshal(line, &batch) == nil {
			for _, one := range batch {
				s.line(one)
			}
			return
		}
	}
	var m message
	if err := json.Unmarshal(line, &m); err != nil {
		s.violation("not JSON: " + string(line[:min(len(line), 80)]))
		s.out.fail(json.RawMessage("null"), -32700, "parse error")
		return
	}
	switch {
	case m.Method == "":
		s.answer(m)
	case m.ID == nil:
		s.notification(m)
	default:
		s.request(m)
	}
}

// answer hands a client's response to the tool that asked.
func (s *server) answer(m message) {
	s.mu.Lock()
	ask, ok := s.asks[string(m.ID)]
	delete(s.asks, string(m.ID))
	s.mu.Unlock()
	if !ok {
		s.violation("answer to an id never asked, or already answered or cancelled: " + string(m.ID))
		return
	}
	ask <- m // buffered for one, and only one is ever taken from the map
}

func (s *server) notification(m message) {
	switch m.Method {
	case "notifications/cancelled":
		s.cancelled(m)
	case "notifications/initialized":
		s.mu.Lock()
		s.state.Ready++
		again := s.state.Ready > 1
		s.mu.Unlock()
		s.wit.write(serverKey, "initialized", "")
		if again {
			s.violation("notifications/initialized twice")
		} else if s.opt.startAsk != "" {
			go s.askAtStart()
		}
	default:
		s.wit.write(serverKey, "notification", m.Method)
	}
}

// cancelled takes a cancel of the client: the moment it was read is evidence,
// whether the call listens or not.
func (s *server) cancelled(m message) {
	at := time.Now()
	var p struct {
		RequestID json.RawMessage `json:"requestId"`
		Reason    string          `json:"reason"`
	}
	_ = json.Unmarshal(m.Params, &p) // a reason of a wrong type is dropped
	id := string(p.RequestID)
	s.mu.Lock()
	c := s.calls[id]
	listening := s.listen[id]
	isTask := c != nil && c.becomes != nil
	delete(s.listen, id)
	s.mu.Unlock()
	switch {
	case listening:
		s.wit.writeAt(at, serverKey, "unlisten", id)
		c.finish()
	case c == nil:
		s.wit.writeAt(at, serverKey, "unknown-cancel", id)
	case isTask && !c.modern:
		s.violation("cancel of a request that is a task") // MCP-44
	case c.key == "initialize":
		s.violation("cancel of initialize")
	default:
		s.wit.writeAt(at, c.key, "signal", p.Reason)
		c.told(p.Reason)
		if s.opt.early {
			c.replyCancelled()
		}
	}
}

// begin registers a request, or says why not.
func (s *server) begin(m message) *call {
	ctx, cancel := context.WithCancelCause(context.Background())
	c := &call{s: s, id: m.ID, method: m.Method, key: m.Method, ctx: ctx, cancel: cancel, deaf: s.opt.deaf}
	id := string(m.ID)
	s.mu.Lock()
	_, twice := s.calls[id]
	s.calls[id] = c
	s.mu.Unlock()
	if twice {
		s.violation("id is already in flight: " + id)
	}
	if id == "null" || strings.HasPrefix(id, "{") || strings.HasPrefix(id, "[") {
		s.violation("id is no string and no number: " + id)
	}
	return c
}

func splitList(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}
