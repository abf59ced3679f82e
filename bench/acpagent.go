package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// The words of a prompt that the agent of this binary knows.
const (
	promptHold  = "hold"  // the turn is open until it is stopped
	promptBurst = "burst" // "burst N": as many updates as it can write, then the end
)

// acpAgent is the leanest ACP agent there can be: what it measures is what
// stands before it. It says in its updates when it wrote them, or when it read
// a Stop.
type acpAgent struct {
	out    *bufio.Writer
	turn   json.RawMessage // the id of the open prompt; nil: there is none
	filler string
}

// updateKinds are the updates that the editor asks for, by name: the text of
// each is filled up to the size that was asked for.
var updateKinds = map[string]string{
	"chunk": `{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"%s"}}`,
	"tool":  `{"sessionUpdate":"tool_call_update","toolCallId":"tc_1","status":"in_progress","content":[{"type":"content","content":{"type":"text","text":"%s"}}]}`,
}

// playAgent answers until its stdin ends.
func playAgent(in io.Reader, out io.Writer) error {
	a := &acpAgent{out: bufio.NewWriterSize(out, 64<<10), filler: strings.Repeat("x", 64<<10)}
	lines := bufio.NewReaderSize(in, 64<<10)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		read := time.Now()
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params struct {
				Kind   string `json:"kind"`
				Bytes  int    `json:"bytes"`
				After  int    `json:"after"` // milliseconds
				Prompt []struct {
					Text string `json:"text"`
				} `json:"prompt"`
			} `json:"params"`
		}
		if err := json.Unmarshal(line, &m); err != nil {
			return fmt.Errorf("%w in %.200s", err, line)
		}
		switch m.Method {
		case "initialize":
			a.answer(m.ID, `{"protocolVersion":1,"agentCapabilities":{},"agentInfo":{"name":"bench","version":"1"},"authMethods":[]}`)
		case "session/new":
			a.answer(m.ID, `{"sessionId":"s_1"}`)
		case "session/prompt":
			a.prompt(m.ID, m.Params.Prompt[0].Text)
		case "session/cancel":
			a.update("chunk", "told "+stamp(read))
			if a.turn != nil {
				a.answer(a.turn, `{"stopReason":"cancelled"}`)
				a.turn = nil
			}
		case "_bench/update":
			time.Sleep(time.Duration(m.Params.After) * time.Millisecond)
			text := a.filler[:min(m.Params.Bytes, len(a.filler))]
			a.update(m.Params.Kind, "sent "+stamp(time.Now())+" "+text)
		}
		if err := a.out.Flush(); err != nil {
			return err
		}
	}
}

func (a *acpAgent) prompt(id json.RawMessage, text string) {
	var n int
	if _, err := fmt.Sscanf(text, promptBurst+" %d", &n); err != nil {
		fmt.Fprintf(a.out, `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s_1","update":{"sessionUpdate":"tool_call",`+
			`"toolCallId":"tc_1","title":"make","kind":"execute","status":"in_progress"}}}`+"\n")
		a.turn = id
		return
	}
	for range n {
		a.update("chunk", a.filler[:70])
	}
	a.answer(id, `{"stopReason":"end_turn"}`)
}

func (a *acpAgent) update(kind, text string) {
	fmt.Fprintf(a.out, `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s_1","update":`+updateKinds[kind]+"}}\n", text)
}

func (a *acpAgent) answer(id json.RawMessage, result string) {
	fmt.Fprintf(a.out, `{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", id, result)
}

func stamp(t time.Time) string { return fmt.Sprint(t.UnixNano()) }
