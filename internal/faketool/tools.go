package faketool

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// arguments of all tools; each takes what it needs.
type arguments struct {
	Key      string          `json:"key"`      // of the witness lines; default: the tool's name
	N        int             `json:"n"`        // ticks; default 20
	MS       int             `json:"ms"`       // milliseconds between ticks; default 20
	Deaf     bool            `json:"deaf"`     // ignore the cancel
	Busy     bool            `json:"busy"`     // burn processor time between ticks
	Quiet    bool            `json:"quiet"`    // no progress although a token was given
	Fork     []string        `json:"fork"`     // helpers to start first, see startHelper
	Bytes    int             `json:"bytes"`    // size of a result or a flood
	What     string          `json:"what"`     // kind of mischief
	Method   string          `json:"method"`   // ask: the method
	Params   json.RawMessage `json:"params"`   // ask: its params
	CancelMS int             `json:"cancelMs"` // ask: cancel the question after this time
	AskID    json.RawMessage `json:"askId"`    // ask: the id of the question; default 1, 2, …
	URI      string          `json:"uri"`
	Level    string          `json:"level"`
	Text     string          `json:"text"`
	Task     bool            `json:"task"` // become a task of the extension
}

// tool is one entry of the table. An inline tool answers from the reading loop,
// which keeps order and costs no goroutine; with -single all do.
type tool struct {
	about  string
	inline bool
	run    func(*server, *call, arguments, params)
}

// toolTable is filled by init to let the tools read it.
var toolTable map[string]tool

func init() {
	toolTable = map[string]tool{
		"echo":         {"returns its arguments", true, (*server).echo},
		"tick":         {"ticks n times, every ms milliseconds", false, (*server).tick},
		"fork":         {"as tick, with helper processes (fork: [" + forkKinds + "])", false, (*server).fork},
		"devserver":    {"starts a detached process that ticks, and returns at once", true, (*server).devserver},
		"bigresult":    {"returns a text of so many bytes", true, (*server).bigresult},
		"ask":          {"sends a request to the client and returns its answer", false, (*server).ask},
		"state":        {"returns what the server knows of its session", true, (*server).getState},
		"touch":        {"notifies that a resource changed, if subscribed", true, (*server).touch},
		"log":          {"sends a log message, if the level lets it", true, (*server).log},
		"list_changed": {"adds a tool and notifies", true, (*server).listChanged},
		"misbehave":    {"does one of: " + mischiefKinds, true, (*server).misbehave},
		"crash":        {"kills the server in the middle of the call", true, (*server).crash},
		"taskask":      {"as tick, as a task that needs an answer first", false, (*server).taskAsk},
		"shell":        {"runs text as a shell command and returns when the shell has ended", false, (*server).shell},
		"hang":         {"never answers, writes nothing, listens to nothing", false, (*server).hang},
	}
}

// callTool runs one tools/call.
func (s *server) callTool(c *call, p params) {
	t, ok := toolTable[p.Name]
	if !ok {
		c.fail(-32602, "no such tool: "+p.Name)
		c.finish()
		return
	}
	var a arguments
	if len(p.Arguments) > 0 {
		_ = json.Unmarshal(p.Arguments, &a) // echo takes anything
	}
	if a.Key == "" {
		a.Key = p.Name
	}
	if a.N == 0 {
		a.N = 20
	}
	if a.MS == 0 {
		a.MS = 20
	}
	c.key = a.Key // only the reading loop, which this is, touches it
	if a.Deaf {
		c.setDeaf()
	}
	if s.wantsTask(c, p, a) {
		s.startTask(c, p, a, t)
		return
	}
	if (t.inline || s.opt.single) && s.isReady() {
		defer c.finish()
		t.run(s, c, a, p)
		return
	}
	s.running.Go(func() {
		defer c.finish()
		<-s.ready
		t.run(s, c, a, p)
	})
}

func (s *server) isReady() bool {
	select {
	case <-s.ready:
		return true
	default:
		return false
	}
}

// tools is the answer to tools/list.
func (s *server) tools() []map[string]any {
	s.mu.Lock()
	extra := s.state.ExtraTools
	s.mu.Unlock()
	names := []string{
		"echo", "tick", "fork", "devserver", "bigresult", "ask", "state", "touch", "log",
		"list_changed", "misbehave", "crash", "hang",
	}
	var list []map[string]any
	schema := map[string]any{"type": "object"}
	for _, name := range names {
		list = append(list, map[string]any{"name": name, "description": toolTable[name].about, "inputSchema": schema})
	}
	for i := range extra {
		list = append(list, map[string]any{"name": fmt.Sprintf("extra%d", i+1), "description": "added later", "inputSchema": schema})
	}
	return list
}

func (s *server) echo(c *call, _ arguments, p params) {
	if len(p.Arguments) == 0 {
		p.Arguments = json.RawMessage("{}")
	}
	raw := []byte(`{"content":[{"type":"text","text":`)
	raw = append(raw, quote(string(p.Arguments))...)
	c.replyRaw(append(raw, `}]}`...))
}

// tick is the witness tool: it works, visibly, until it is done or told.
func (s *server) tick(c *call, a arguments, _ params) {
	s.wit.write(a.Key, "start", "")
	for _, how := range a.Fork {
		if err := startHelper(how, a.Key, a.MS, s.wit.path, &s.opt.deadline); err != nil {
			c.fail(-32602, err.Error())
			return
		}
	}
	if a.Quiet {
		c.token = nil
	}
	ctx := c.ctx
	for i := 1; i <= a.N; i++ {
		if !pause(ctx, time.Duration(a.MS)*time.Millisecond, a.Busy) {
			s.wit.write(a.Key, "stopped", fmt.Sprintf("after %d ticks", i-1))
			c.settle("")
			return
		}
		s.wit.write(a.Key, "tick", fmt.Sprint(i))
		c.progress(i, a.N)
	}
	s.wit.write(a.Key, "done", "")
	c.settle(fmt.Sprintf("%s: %d ticks", a.Key, a.N))
}

// fork is tick with one plain child if no other kind was chosen.
func (s *server) fork(c *call, a arguments, p params) {
	if len(a.Fork) == 0 {
		a.Fork = []string{"child"}
	}
	s.tick(c, a, p)
}

// devserver leaves a process behind on purpose, as a tool does that starts a
// development server: it belongs to the user and not to any later call.
func (s *server) devserver(c *call, a arguments, _ params) {
	if err := startHelper("setsid", a.Key, a.MS, s.wit.path, &s.opt.deadline); err != nil {
		c.fail(-32603, err.Error())
		return
	}
	c.text("started")
}

// shell runs a command line as tools of that name do. What it leaves in the
// background lives on; nothing of it holds the server's stdio.
func (s *server) shell(c *call, a arguments, _ params) {
	s.wit.write(a.Key, "start", "")
	if err := exec.Command("sh", "-c", a.Text).Run(); err != nil {
		c.fail(-32603, err.Error())
		return
	}
	c.text("done")
}

func (s *server) bigresult(c *call, a arguments, _ params) {
	raw := make([]byte, 0, a.Bytes+64)
	raw = append(raw, `{"content":[{"type":"text","text":"`...)
	const letters = "abcdefghijklmnopqrstuvwxyz012345"
	for n := a.Bytes; n > 0; n -= len(letters) {
		raw = append(raw, letters[:min(n, len(letters))]...)
	}
	c.replyRaw(append(raw, `"}]}`...))
}

func (s *server) getState(c *call, _ arguments, _ params) {
	s.mu.Lock()
	s.state.InFlight = len(s.calls)
	raw, err := json.Marshal(s.state)
	s.mu.Unlock()
	if err != nil {
		c.fail(-32603, err.Error())
		return
	}
	c.text(string(raw))
}

func (s *server) touch(c *call, a arguments, _ params) {
	s.mu.Lock()
	subscribed := strings.Contains("\x00"+strings.Join(s.state.Subscribed, "\x00")+"\x00", "\x00"+a.URI+"\x00")
	s.mu.Unlock()
	if subscribed {
		s.out.notify("notifications/resources/updated", fmt.Appendf(nil, `{"uri":%s}`, quote(a.URI)))
	}
	c.text(fmt.Sprintf("subscribed: %v", subscribed))
}

func (s *server) log(c *call, a arguments, _ params) {
	levels := "debug info notice warning error critical alert emergency"
	s.mu.Lock()
	least := s.state.Level
	s.mu.Unlock()
	passes := strings.Index(levels, a.Level) >= strings.Index(levels, least)
	if passes {
		s.out.notify("notifications/message", fmt.Appendf(nil, `{"level":%s,"data":%s}`, quote(a.Level), quote(a.Text)))
	}
	c.text(fmt.Sprintf("sent: %v", passes))
}

// listChanged adds a tool, tells legacy clients, and each modern subscription.
func (s *server) listChanged(c *call, _ arguments, _ params) {
	s.mu.Lock()
	s.state.ExtraTools++
	var ids []string
	for id := range s.listen {
		ids = append(ids, id)
	}
	s.mu.Unlock()
	if !c.modern {
		s.out.notify("notifications/tools/list_changed", []byte(`{}`))
	}
	for _, id := range ids {
		s.out.notify("notifications/tools/list_changed", fmt.Appendf(nil, `{"_meta":{%q:%s}}`, metaSubID, id))
	}
	c.text("added")
}

func (s *server) crash(_ *call, a arguments, _ params) {
	s.wit.write(a.Key, "crash", "")
	crash()
	select {} // the signal is on its way
}

func (s *server) hang(_ *call, a arguments, _ params) {
	s.wit.write(a.Key, "start", "")
	select {}
}

// mischiefKinds are the ways to break the wire.
const mischiefKinds = "noise, invalid, unknown-id, null-id, twice, huge, half-exit, exit, " +
	"close-stdout, flood-stderr, flood-stdout"

func (s *server) misbehave(c *call, a arguments, _ params) {
	s.mischief(a.What, a.Bytes, c)
	c.text("did " + a.What)
	if a.What == "twice" {
		s.out.result(c.id, []byte(`{"content":[{"type":"text","text":"a second answer"}]}`))
	}
}

// mischief breaks the wire in one way; c is nil at the start.
func (s *server) mischief(what string, bytes int, c *call) {
	switch what {
	case "noise":
		s.out.raw([]byte("Listening on stdio… (this line is noise)"))
	case "invalid":
		s.out.raw([]byte(`{"jsonrpc":"2.0","id":1,"result":`))
	case "unknown-id":
		s.out.result(json.RawMessage(`"never-asked"`), []byte(`{}`))
	case "null-id":
		s.out.fail(json.RawMessage("null"), -32700, "an error without an id")
	case "huge":
		s.out.notify("notifications/message",
			fmt.Appendf(nil, `{"level":"info","data":%s}`, quote(strings.Repeat("x", bytes))))
	case "half-exit":
		s.out.part([]byte(`{"jsonrpc":"2.0","id":1,"resu`))
		leave(exitCrash)
	case "exit":
		leave(exitCrash)
	case "close-stdout":
		_ = os.Stdout.Close()
	case "flood-stderr":
		flood(os.Stderr, bytes)
	case "flood-stdout":
		s.out.mu.Lock()
		flood(os.Stdout, bytes)
		s.out.mu.Unlock()
	case "twice":
	default:
		if c != nil {
			c.fail(-32602, "unknown mischief "+what)
		}
	}
}

// flood writes that many bytes in lines that are no JSON.
func flood(to *os.File, bytes int) {
	line := []byte(strings.Repeat("noise ", 20) + "\n")
	for ; bytes > 0; bytes -= len(line) {
		if _, err := to.Write(line); err != nil {
			return
		}
	}
}
