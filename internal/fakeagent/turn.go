package fakeagent

import (
	"fmt"
	"os/exec"
	"strconv"
	"time"
)

// run is one turn, from its prompt to its end.
func (t *turn) run() {
	if t.a.v2() {
		t.a.sendf(`{"jsonrpc":"2.0","id":%s,"result":{"messageId":"m_1"}}`, t.id)
		t.a.update(t.s.id, `{"sessionUpdate":"state_update","state":"running"}`)
	}
	for i := range t.Updates {
		t.a.update(t.s.id, fmt.Sprintf(`{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"part %d"}}`, i))
	}
	if len(t.Tool) > 0 && t.ToolCall == "" {
		t.ToolCall = "tc_1"
	}
	if t.ToolCall != "" {
		kind := "tool_call"
		if t.a.v2() {
			kind = "tool_call_update"
		}
		t.a.update(t.s.id, fmt.Sprintf(`{"sessionUpdate":%q,"toolCallId":%s,"title":"run the tool","kind":"execute","status":"in_progress"}`, kind, quote(t.ToolCall)))
	}
	t.askAll()
	var over <-chan time.Time
	if t.EndAfter > 0 {
		over = time.After(time.Duration(t.EndAfter) * time.Millisecond)
	}
	select {
	case <-t.stopped:
		t.obey()
	case <-over:
		t.killTool()
		t.toolStatus("completed")
		t.end("end_turn")
	}
}

func (a *agent) v2() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.version >= 2
}

// askAll asks the editor for what the turn needs, and starts the tool.
func (t *turn) askAll() {
	session := `{"sessionId":` + quote(t.s.id)
	switch {
	case t.Permission && t.a.v2():
		t.ask("session/request_permission", session+`,"title":"May I?","subject":{"type":"tool_call","toolCall":{"toolCallId":`+quote(t.ToolCall)+`}},"options":[{"optionId":"ok","name":"Allow","kind":"allow_once"}]}`, t.permitted)
	case t.Permission:
		t.ask("session/request_permission", session+`,"toolCall":{"toolCallId":`+quote(t.ToolCall)+`},"options":[{"optionId":"ok","name":"Allow","kind":"allow_once"}]}`, t.permitted)
	default:
		t.startTool()
	}
	if t.Elicit {
		t.ask("elicitation/create", session+`,"mode":"form","message":"Which folder?","requestedSchema":{"type":"object","properties":{"folder":{"type":"string"}}}}`, nil)
	}
	if t.Read {
		t.ask("fs/read_text_file", session+`,"path":"/w/big.log"}`, nil)
	}
	if t.Write {
		t.ask("fs/write_text_file", session+`,"path":"/w/out","content":"x"}`, nil)
	}
	if t.Terminal {
		t.ask("terminal/create", session+`,"command":"make","args":["test"]}`, func(m message) {
			var made struct {
				TerminalID string `json:"terminalId"`
			}
			if unmarshal(m.Result, &made) {
				t.ask("terminal/wait_for_exit", session+`,"terminalId":`+quote(made.TerminalID)+`}`, nil)
			}
		})
	}
}

// permitted starts the tool if the user has allowed it, even after a Stop: what must
// not reach such an agent is the allow.
func (t *turn) permitted(m message) {
	var got struct {
		Outcome struct {
			Outcome  string `json:"outcome"`
			OptionID string `json:"optionId"`
		} `json:"outcome"`
	}
	if unmarshal(m.Result, &got) && got.Outcome.Outcome == "selected" && got.Outcome.OptionID == "ok" {
		t.a.wit.write(t.s.id, "allowed", "")
		t.startTool()
	}
}

func (t *turn) startTool() {
	if len(t.Tool) == 0 {
		return
	}
	cmd := exec.Command(t.Tool[0], t.Tool[1:]...)
	if err := cmd.Start(); err != nil {
		t.a.wit.write(t.s.id, "tool-failed", err.Error())
		return
	}
	t.a.mu.Lock()
	t.tool = cmd
	t.a.mu.Unlock()
	t.a.wit.write(t.s.id, "tool", strconv.Itoa(cmd.Process.Pid))
	t.a.turns.Go(func() {
		err := cmd.Wait()
		t.a.wit.write(t.s.id, "tool-ended", fmt.Sprint(err))
	})
}

func (t *turn) killTool() {
	t.a.mu.Lock()
	cmd := t.tool
	t.a.mu.Unlock()
	if cmd != nil {
		_ = cmd.Process.Kill()
		t.a.wit.write(t.s.id, "tool-killed", strconv.Itoa(cmd.Process.Pid))
	}
}

// toolStatus reports the tool call, if there is one.
func (t *turn) toolStatus(status string) {
	if t.ToolCall != "" {
		t.a.update(t.s.id, fmt.Sprintf(`{"sessionUpdate":"tool_call_update","toolCallId":%s,"status":%q}`, quote(t.ToolCall), status))
	}
}

// withdraw cancels the questions that are open.
func (t *turn) withdraw() {
	t.a.mu.Lock()
	defer t.a.mu.Unlock()
	for _, f := range t.open {
		f()
	}
}

func (t *turn) asking() int {
	t.a.mu.Lock()
	defer t.a.mu.Unlock()
	return len(t.open)
}

// obey is what the mode makes of a Stop.
func (t *turn) obey() {
	if t.Delay > 0 {
		time.Sleep(time.Duration(t.Delay) * time.Millisecond)
	}
	switch t.Mode {
	case Obedient, ByRequest, "":
		t.killTool()
		t.withdraw()
		t.toolStatus("failed")
		t.end("cancelled")
	case ShellOn:
		t.end("cancelled")
	case EndTurn:
		t.killTool()
		t.end("end_turn")
	case Internal:
		t.fail(-32603, "aborted")
	case Cancelled:
		t.fail(-32800, "Request cancelled")
	case Twice:
		t.end("cancelled")
		t.a.sendf(`{"jsonrpc":"2.0","id":%s,"result":{"stopReason":"end_turn"}}`, t.id)
	case Late:
		t.a.update(t.s.id, `{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"still here"}}`)
		t.end("cancelled")
	case WrongID:
		t.a.sendf(`{"jsonrpc":"2.0","id":"b-99999999","result":{"stopReason":"cancelled"}}`)
		t.a.sendf(`{"jsonrpc":"2.0","id":12345,"result":{"stopReason":"cancelled"}}`)
	case Flood:
		for i := range 500 {
			t.a.update(t.s.id, fmt.Sprintf(`{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"flood %d"}}`, i))
		}
		t.end("cancelled")
	case Dies:
		t.a.exit(3)
	case HalfLine:
		t.a.mu.Lock()
		_, _ = fmt.Fprintf(t.a.out, `{"jsonrpc":"2.0","id":%s,"resu`, t.id)
		t.a.closed = true
		t.a.mu.Unlock()
		t.a.exit(3)
	case Waits:
		for t.asking() > 0 && !t.a.isClosed() {
			time.Sleep(5 * time.Millisecond)
		}
		t.killTool()
		t.end("cancelled")
	case NoResult:
		t.a.sendf(`{"jsonrpc":"2.0","id":%s}`, t.id)
	case NoReason:
		t.a.sendf(`{"jsonrpc":"2.0","id":%s,"result":{}}`, t.id)
	case KeepsGoing:
		t.end("cancelled")
		for i := range 3 {
			t.a.update(t.s.id, fmt.Sprintf(`{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"after the end %d"}}`, i))
		}
	case Deaf:
		t.killTool() // only at the end of the connection
	}
}

func (a *agent) isClosed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.closed
}

// end says how the turn ended.
func (t *turn) end(reason string) {
	t.a.wit.write(t.s.id, "end", reason)
	if t.a.v2() {
		t.a.update(t.s.id, `{"sessionUpdate":"state_update","state":"idle","stopReason":`+quote(reason)+`}`)
		return
	}
	t.a.sendf(`{"jsonrpc":"2.0","id":%s,"result":{"stopReason":%s}}`, t.id, quote(reason))
}

func (t *turn) fail(code int, text string) {
	t.a.wit.write(t.s.id, "end", strconv.Itoa(code))
	if t.a.v2() {
		t.end("error")
		return
	}
	t.a.sendf(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%s}}`, t.id, code, quote(text))
}
