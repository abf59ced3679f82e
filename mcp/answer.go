package mcp

import (
	"encoding/json"
	"strings"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
)

// StillRunning is added to what a model reads after a stop that nothing proves
// yet (DESIGN 11, 9).
const StillRunning = "The work may still be running; do not simply retry."

// AppendStopped appends the answer to a call that somebody other than its
// caller stopped and that has no partial result (MCP-G26): error -32800. proven
// says that the work is known to be over or was never started.
func AppendStopped(dst []byte, id jsonrpc.ID, run belay.RunID, c *belay.Cancellation, proven bool) []byte {
	data, err := json.Marshal(struct {
		RequestID json.RawMessage `json:"requestId"`
		Run       belay.RunID     `json:"run"`
		Reason    string          `json:"reason"`
		Cause     belay.Cause     `json:"cause"`
		Partial   bool            `json:"partial"`
		Note      string          `json:"note,omitempty"`
	}{json.RawMessage(id.AppendTo(nil)), run, c.Reason, c.Cause, false, note(proven)})
	if err != nil { // an id whose text is no JSON; the parser lets none through
		data = []byte(`{"partial":false}`)
	}
	return jsonrpc.AppendError(dst, id, belay.CodeCancelled, "Cancelled", data)
}

func note(proven bool) string {
	if proven {
		return ""
	}
	return StillRunning
}

// AppendPartial appends the answer that carries what a stopped tool had: a tool
// result with isError of two texts. The first says by whom it was stopped, the
// second is what the tool had, unchanged (MCP-G26, AT-38).
func AppendPartial(dst []byte, id jsonrpc.ID, c *belay.Cancellation, partial string, era Era) []byte {
	return appendToolError(dst, id, era, stoppedBy(c), partial)
}

// stoppedBy says to a model who stopped its call, and why.
func stoppedBy(c *belay.Cancellation) string {
	text := "Cancelled by " + string(c.Cause)
	if c.Cause == belay.CauseDeadline {
		text = "Cancelled after its deadline"
	}
	if c.Reason != "" {
		text += ": " + c.Reason
	}
	if strings.HasSuffix(text, ".") {
		return text
	}
	return text + "."
}

// AppendToolError appends a tool result with isError, whose text a model reads.
func AppendToolError(dst []byte, id jsonrpc.ID, text string, era Era) []byte {
	return appendToolError(dst, id, era, text)
}

func appendToolError(dst []byte, id jsonrpc.ID, era Era, texts ...string) []byte {
	result := []byte(`{"content":[`)
	for i, text := range texts {
		if i > 0 {
			result = append(result, ',')
		}
		result = jsonrpc.AppendString(append(result, `{"type":"text","text":`...), text)
		result = append(result, '}')
	}
	result = append(result, `],"isError":true`...)
	if era == Modern {
		result = append(result, `,"resultType":"complete"`...)
	}
	return jsonrpc.AppendResponse(dst, id, append(result, '}'))
}

// PartialText reads the text of a successful tool result: what the tool had.
// It is false for errors, results with isError, and results without text.
func PartialText(m *Message) (string, bool) {
	if m.Kind != jsonrpc.Response || !m.Result.Ok() {
		return "", false
	}
	if failed, ok, _ := jsonrpc.Member(m.Frame, m.Result, "isError"); ok && string(failed.Of(m.Frame)) == "true" {
		return "", false
	}
	content, ok, _ := jsonrpc.Member(m.Frame, m.Result, "content")
	if !ok {
		return "", false
	}
	var b strings.Builder
	for item := range jsonrpc.Elements(m.Frame, content) {
		at, ok, _ := jsonrpc.Member(m.Frame, item, "text")
		if !ok || jsonrpc.KindAt(m.Frame, at) != jsonrpc.StringValue {
			continue
		}
		text, err := jsonrpc.ReadString(m.Frame, at, at.Len())
		if err != nil {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(text)
	}
	return b.String(), b.Len() > 0
}

// ToolFailed reports whether a response is a tool result with isError.
func ToolFailed(m *Message) bool {
	failed, ok, _ := jsonrpc.Member(m.Frame, m.Result, "isError")
	return ok && string(failed.Of(m.Frame)) == "true"
}
