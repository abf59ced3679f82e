package faketool

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"
)

// call is one request in flight.
type call struct {
	s       *server
	id      json.RawMessage
	method  string
	key     string          // of its witness lines; set before the tool runs
	token   json.RawMessage // progress token; nil = none
	modern  bool
	deaf    bool
	task    *fakeTask       // whose work this is; nil: it is a plain call
	becomes *fakeTask       // what the request has become; guarded by server.mu
	ctx     context.Context // ends when the call was told, unless it is deaf
	cancel  context.CancelCauseFunc

	mu       sync.Mutex // guards the fields below
	isTold   bool       // a cancel for this call was read
	reason   string
	answered bool
}

// told notes the cancel, and ends the context of a call that listens.
func (c *call) told(reason string) {
	c.mu.Lock()
	c.isTold, c.reason = true, reason
	deaf := c.deaf
	c.mu.Unlock()
	if !deaf {
		c.cancel(told{reason})
	}
}

func (c *call) wasTold() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.isTold
}

// setDeaf makes this one call deaf.
func (c *call) setDeaf() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deaf = true
}

// once reports whether this is the first answer.
func (c *call) once() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := !c.answered
	c.answered = true
	return first
}

// finish takes the call out of the table.
func (c *call) finish() {
	c.cancel(nil)
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.s.calls[string(c.id)] == c {
		delete(c.s.calls, string(c.id))
	}
}

// reply sends a result. A modern one gets its resultType.
func (c *call) reply(result any) {
	raw, err := json.Marshal(result)
	if err != nil {
		c.fail(-32603, err.Error())
		return
	}
	c.replyRaw(raw)
}

func (c *call) replyRaw(raw []byte) {
	if !c.once() {
		return
	}
	if c.task != nil {
		c.task.end("completed", raw, nil)
		return
	}
	if c.modern && len(raw) > 1 {
		head := []byte(`{"resultType":"complete"`)
		if string(raw) != "{}" {
			head = append(head, ',')
		}
		raw = append(head, raw[1:]...)
	}
	c.s.out.result(c.id, raw)
}

func (c *call) fail(code int, text string) {
	if !c.once() {
		return
	}
	if c.task != nil {
		c.task.end("failed", nil, fmt.Appendf(nil, `{"code":%d,"message":%s}`, code, quote(text)))
	} else {
		c.s.out.fail(c.id, code, text)
	}
}

// text replies with a tool result of one text.
func (c *call) text(text string) { c.reply(textResult{Content: []content{{"text", text}}}) }

// replyCancelled answers a cancelled call the way this server was told to.
func (c *call) replyCancelled() {
	switch c.s.opt.reply {
	case "none":
	case "result":
		c.text("stopped early")
	case "iserror":
		c.reply(textResult{Content: []content{{"text", "Cancelled: " + c.reason}}, IsError: true})
	case "error0":
		c.fail(0, "Request cancelled")
	case "-32800":
		c.fail(-32800, "Cancelled by the tool")
	}
}

// settle is the end of a tool that may have been told: silence or the chosen
// answer if it was, the result if not.
func (c *call) settle(result string) {
	if !c.wasTold() {
		c.text(result)
		return
	}
	if c.s.opt.late > 0 {
		time.Sleep(c.s.opt.late)
	}
	c.replyCancelled()
}

// progress sends one progress notification if the caller asked for them.
func (c *call) progress(i, n int) {
	if c.token == nil || (c.s.opt.mute && c.wasTold()) {
		return
	}
	c.s.out.notify("notifications/progress",
		fmt.Appendf(nil, `{"progressToken":%s,"progress":%d,"total":%d}`, c.token, i, n))
}

type textResult struct {
	Content []content `json:"content"`
	IsError bool      `json:"isError,omitempty"`
}

type content struct {
	Type string `json:"type"`
	Text string `json:"text"`
}
