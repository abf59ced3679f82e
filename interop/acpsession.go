package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/belayhq/belay/internal/fakemodel"
	"github.com/belayhq/belay/internal/faketool"
)

// How long an agent may take for a step that is not measured, on a machine that
// stalls.
const (
	acpStart = 90 * time.Second // for each step from its start to the MCP server's list of tools
	acpWork  = 60 * time.Second // from the prompt to the tool's first sign
)

// acpProcess is a process of a session.
type acpProcess struct {
	pid     int
	command string
}

// acpSession is an editor, by hand: a raw client that speaks to an agent, or to
// Belay before it. It answers nothing that it was not told to answer.
type acpSession struct {
	*faketool.Client
	agent   acpAgent
	version int
	dir     string // of this row; every process of the session carries it
	env     []string
	id      string // sessionId
	witness *faketool.Witness
	model   *fakemodel.Server
	stderr  *tail
	record  *acpRecord // nil: not recorded
	init    json.RawMessage

	asked int // requests sent
}

// acpTick is how often the commands under test show that they are alive.
const acpTick = "-ms=100"

// open starts agent in a place of its own, bare or under Belay, and brings it to
// where a prompt can be sent: session open, mode set, MCP server known.
func (h *harness) open(a acpAgent, version int, belay, ask bool, steps func(s *acpSession) []fakemodel.Step) (_ *acpSession, err error) {
	dir, err := os.MkdirTemp(h.dir, "acp-")
	if err != nil {
		return nil, err
	}
	s := &acpSession{
		agent: a, version: version, dir: dir, stderr: &tail{},
		witness: faketool.NewWitness(filepath.Join(dir, "witness")),
	}
	place := acpPlace{home: filepath.Join(dir, "home"), work: filepath.Join(dir, "repo")}
	for _, d := range []string{place.home, place.work, filepath.Join(dir, "tmp")} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return nil, err
		}
	}
	if out, err := exec.Command("git", "init", "-q", place.work).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("git init: %w: %s", err, out)
	}
	if s.model, err = fakemodel.Start(steps(s)...); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w; stderr: %s", err, s.stderr.last(600))
			s.end()
		}
	}()
	place.model = s.model.URL()
	settings, err := a.settings(place, ask)
	if err != nil {
		return nil, err
	}
	argv := a.command(&h.peers, h.cache)
	if belay {
		argv = append([]string{h.belay, "acp", "--"}, argv...)
	}
	s.env = append(h.acpEnv(s, place), settings...)
	opt := faketool.ClientOptions{Dir: place.work, Env: s.env, Alone: true, Stderr: s.stderr}
	if s.Client, err = faketool.StartClient(argv, opt); err != nil {
		return nil, err
	}
	s.Timeout = acpStart
	if h.record != "" {
		s.record = &acpRecord{}
	}
	return s, s.greet(place, ask)
}

// acpEnv is what every agent gets: nothing of this process's environment but
// what programs need to be found, and the model as the only way out.
func (h *harness) acpEnv(s *acpSession, p acpPlace) []string {
	path := os.Getenv("PATH")
	if h.peers.acpNode != "" {
		path = filepath.Dir(h.peers.acpNode) + string(os.PathListSeparator) + path
	}
	env := []string{
		"PATH=" + path, "HOME=" + p.home, "LANG=C.UTF-8", "TERM=dumb", "SHELL=/bin/bash", "USER=" + os.Getenv("USER"),
		"TMPDIR=" + filepath.Join(s.dir, "tmp"), "BELAY_RUNTIME_DIR=" + filepath.Join(s.dir, "run"),
	}
	if h.record != "" {
		env = append(env, "BELAY_LOG=debug")
	}
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"} {
		env = append(env, name+"="+s.model.URL())
	}
	return append(env, "NO_PROXY=127.0.0.1,localhost", "no_proxy=127.0.0.1,localhost")
}

// greet does what an editor does before the first prompt.
func (s *acpSession) greet(p acpPlace, ask bool) error {
	hello := `{"protocolVersion":1,"clientCapabilities":{}}`
	if s.version == 2 {
		hello = `{"protocolVersion":2,"capabilities":{},"info":{"name":"interop","version":"1"}}`
	}
	var answer struct {
		ProtocolVersion int `json:"protocolVersion"`
	}
	raw, err := s.call("initialize", hello, &answer)
	if err != nil {
		return err
	}
	if s.init = raw; answer.ProtocolVersion != s.version {
		return fmt.Errorf("it speaks version %d, not %d", answer.ProtocolVersion, s.version)
	}
	server := map[string]any{
		"name": "wit", "command": executable(), "args": []string{slowMarker, s.witness.Path},
		// Some agents hand nothing down to MCP servers: the mark of this session.
		"env": []map[string]string{{"name": "INTEROP_ROW", "value": s.dir}},
	}
	if s.version == 2 {
		server["type"] = "stdio"
	}
	open, err := json.Marshal(map[string]any{"cwd": p.work, "mcpServers": []any{server}})
	if err != nil {
		return err
	}
	var opened struct {
		SessionID string `json:"sessionId"`
	}
	if _, err := s.call("session/new", string(open), &opened); err != nil {
		return err
	}
	s.id = opened.SessionID
	if mode := map[bool]string{false: s.agent.free, true: s.agent.ask}[ask]; mode != "" {
		method, params := "session/set_mode", `{"sessionId":%q,"modeId":%q}`
		if s.version == 2 {
			method, params = "session/set_config_option", `{"sessionId":%q,"configId":"mode","type":"id","value":%q}`
		}
		if _, err := s.call(method, fmt.Sprintf(params, s.id, mode), nil); err != nil {
			return err
		}
	}
	_, err = s.within(acpStart, "the MCP server's tools were not asked for", func() bool {
		for _, e := range s.witness.Of(slowKey, "message") {
			if e.Detail == "tools/list" {
				return true
			}
		}
		return false
	})
	return err
}

// within waits for a condition that no message tells.
func (s *acpSession) within(limit time.Duration, otherwise string, ok func() bool) (time.Time, error) {
	for end := time.Now().Add(limit); ; time.Sleep(10 * time.Millisecond) {
		if ok() {
			return time.Now(), nil
		}
		if time.Now().After(end) {
			return time.Time{}, fmt.Errorf("%s within %v", otherwise, limit)
		}
	}
}

// say sends one line, and keeps it if the session is recorded.
func (s *acpSession) say(line string) error {
	s.record.sent(line)
	return s.Send(line)
}

// request sends a request and returns the raw JSON of its id.
func (s *acpSession) request(method, params string) (string, error) {
	s.asked++
	id := fmt.Sprint(s.asked)
	return id, s.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, method, params))
}

// call sends a request and waits for its result.
func (s *acpSession) call(method, params string, result any) (json.RawMessage, error) {
	id, err := s.request(method, params)
	if err != nil {
		return nil, err
	}
	m, err := s.Expect(id)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", method, err)
	case m.Error != nil:
		return nil, fmt.Errorf("%s: error %d: %s %s", method, m.Error.Code, m.Error.Message, m.Error.Data)
	case result == nil:
		return m.Result, nil
	}
	if err := json.Unmarshal(m.Result, result); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", method, err, m.Result)
	}
	return m.Result, nil
}

// turn is a prompt that was sent.
type turn struct {
	id   string
	from int // messages received before it
	sent time.Time
}

func (s *acpSession) prompt(text string) (turn, error) {
	t := turn{from: len(s.Messages()), sent: time.Now()}
	params, err := json.Marshal(map[string]any{
		"sessionId": s.id, "prompt": []any{map[string]string{"type": "text", "text": text}},
	})
	if err != nil {
		return t, err
	}
	t.id, err = s.request("session/prompt", string(params))
	return t, err
}

// stop sends session/cancel.
func (s *acpSession) stop() error {
	return s.say(fmt.Sprintf(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":%q}}`, s.id))
}

// withdraw cancels the prompt's request.
func (s *acpSession) withdraw(t turn) error {
	return s.say(fmt.Sprintf(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":%s}}`, t.id))
}

// ending is how a turn ended for the editor.
type ending struct {
	at   time.Time
	word string // the stop reason, or the error
}

// ends lists every end that the editor was told of a turn: one is right. In
// version 2 the answer to the prompt only says that the work has begun, or why
// not; the work ends with an idle state that has a reason.
func (s *acpSession) ends(t turn) []ending {
	var list []ending
	for _, m := range s.Messages()[t.from:] {
		var r struct {
			StopReason string `json:"stopReason"`
			SessionID  string `json:"sessionId"`
			Update     struct {
				Kind       string `json:"sessionUpdate"`
				State      string `json:"state"`
				StopReason string `json:"stopReason"`
			} `json:"update"`
		}
		switch {
		case m.IsResponse() && m.ID == t.id && m.Error != nil:
			list = append(list, ending{m.Time, fmt.Sprintf("error %d: %s", m.Error.Code, m.Error.Message)})
		case m.IsResponse() && m.ID == t.id && s.version == 1:
			_ = json.Unmarshal(m.Result, &r) // without a reason it is shown so
			list = append(list, ending{m.Time, r.StopReason})
		case m.Method == "session/update" && s.version == 2:
			if json.Unmarshal(m.Params, &r) == nil && r.SessionID == s.id && r.Update.Kind == "state_update" &&
				r.Update.State == "idle" && r.Update.StopReason != "" {
				list = append(list, ending{m.Time, r.Update.StopReason})
			}
		}
	}
	return list
}

// errNoEnd: the editor still waits.
var errNoEnd = errors.New("not answered")

// ended waits for the turn's end.
func (s *acpSession) ended(t turn, limit time.Duration) (ending, error) {
	for end := time.Now().Add(limit); ; time.Sleep(10 * time.Millisecond) {
		over := s.Ended(0) || time.Now().After(end) // asked first: the end may be the last line
		if list := s.ends(t); len(list) > 0 {
			return list[0], nil
		}
		if over {
			return ending{}, errNoEnd
		}
	}
}

// pids are the processes that showed themselves under a key of the witness.
func (s *acpSession) pids(key string) []int { return s.witness.Pids(key) }

// shell is the command line of a process that shows itself under key. It is
// started by the agent's shell, which waits for it.
func (s *acpSession) shell(key string, more ...string) string {
	args := append([]string{"tick", "-witness=" + s.witness.Path, "-key=" + key, acpTick}, more...)
	return strings.Join(faketool.Command(args...), " ")
}

// daemon is a command line that returns at once and leaves a process behind, in
// a session of its own.
func (s *acpSession) daemon(key string) string {
	args := []string{"spawn", "-setsid", "tick", "-witness=" + s.witness.Path, "-key=" + key, acpTick}
	return strings.Join(faketool.Command(args...), " ")
}

// end closes the session and ends whatever of it is left.
func (s *acpSession) end() {
	if s.Client != nil {
		_ = s.CloseStdin()
		s.Ended(200 * time.Millisecond) // it is ended by force below
	}
	for _, p := range marked(s.dir) {
		if q, err := os.FindProcess(p.pid); err == nil {
			_ = q.Kill()
		}
	}
	if s.Client != nil {
		_ = s.Close() // how it ended was measured before
	}
	for range 3 { // those that were just being started
		for _, p := range marked(s.dir) {
			if q, err := os.FindProcess(p.pid); err == nil {
				_ = q.Kill()
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	s.model.Close()
	_ = os.RemoveAll(s.dir)
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const maxTail = 256 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if n := len(t.text); n > maxTail {
		t.text = append(t.text[:0], t.text[n-maxTail:]...)
	}
	return len(p), nil
}

// last is the end of it, at most n bytes.
func (t *tail) last(n int) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.text[max(0, len(t.text)-n):]))
}
