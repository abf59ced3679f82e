package mcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
)

// The names by which a server of Belay's own, a script worker, asks a person
// before a call goes on. A tools/call declares it in _meta under ExtAsk, call by
// call, with a text that names the call; the worker then sends [MethodAsk]. While that is
// open, [MethodPreview] runs what the question offers to show.
const (
	ExtAsk        = "io.github.belayhq/ask"     // member of _meta of a tools/call: {"call": text}
	MethodAsk     = "io.github.belayhq/ask"     // server to client, both eras: {call, title, message, …} → {answer}
	MethodPreview = "io.github.belayhq/preview" // client to server: {call} → {text}
	MetaOutcome   = "io.github.belayhq/outcome" // member of _meta of a result: how the call ended, where isError does not say it
)

// Answers to a [MethodAsk].
const (
	AnswerPrimary   = "primary"
	AnswerSecondary = "secondary"
	AnswerDismissed = "dismissed"
)

// Question is what a [MethodAsk] asks.
type Question struct {
	Call      string        // which call, as its _meta named it
	Title     string        // "": none
	Message   string        // never empty
	Primary   string        // the label of yes; "": not offered
	Secondary string        // the label of no; "": not offered
	Preview   string        // the label of a look at what would happen; "": not offered
	Timeout   time.Duration // how long an answer is waited for; 0: as long as the client likes
}

// ErrQuestion says that a question is malformed.
var ErrQuestion = errors.New("malformed question")

// Bounds of a question as it is read; what is shown may be cut shorter.
const (
	maxQuestionLine = 64 << 10
	maxQuestionWait = 366 * 24 * time.Hour
)

// ReadQuestion reads a [MethodAsk]. Errors wrap ErrQuestion and are to be answered
// with -32602.
func ReadQuestion(m *Message) (Question, error) {
	keys := []string{"call", "title", "message", "primary", "secondary", "preview", "timeoutMs"}
	var at [7]jsonrpc.Span
	if err := jsonrpc.Lookup(m.Frame, m.Params, keys, at[:]); err != nil {
		return Question{}, fmt.Errorf("%w: %w", ErrQuestion, err)
	}
	var text [6]string
	for i := range text {
		if !at[i].Ok() {
			continue
		}
		var err error
		if jsonrpc.KindAt(m.Frame, at[i]) != jsonrpc.StringValue {
			return Question{}, fmt.Errorf("%w: %s is no text", ErrQuestion, keys[i])
		}
		if text[i], err = jsonrpc.ReadString(m.Frame, at[i], maxQuestionLine); err != nil {
			return Question{}, fmt.Errorf("%w: %s: %w", ErrQuestion, keys[i], err)
		}
	}
	q := Question{Call: text[0], Title: text[1], Message: text[2], Primary: text[3], Secondary: text[4], Preview: text[5]}
	switch {
	case q.Call == "" || len(q.Call) > maxText:
		return Question{}, fmt.Errorf("%w: call must be a text of 1 to %d bytes", ErrQuestion, maxText)
	case q.Message == "":
		return Question{}, fmt.Errorf("%w: message is missing", ErrQuestion)
	}
	if at[6].Ok() {
		var ms int64
		if err := json.Unmarshal(at[6].Of(m.Frame), &ms); err != nil || ms < 0 {
			return Question{}, fmt.Errorf("%w: timeoutMs must be a whole number of milliseconds, not negative", ErrQuestion)
		}
		q.Timeout = min(time.Duration(min(ms, maxQuestionWait.Milliseconds()))*time.Millisecond, maxQuestionWait)
	}
	return q, nil
}

// AskMeta is the _meta member of a tools/call that lets the server ask, for
// [AppendMeta].
func AskMeta(call string) MetaMember {
	return MetaMember{ExtAsk, append(jsonrpc.AppendString([]byte(`{"call":`), call), '}')}
}

// AppendAskAnswer appends the answer to the [MethodAsk] with this id.
func AppendAskAnswer(dst []byte, id jsonrpc.ID, answer string) []byte {
	return jsonrpc.AppendResponse(dst, id, append(jsonrpc.AppendString([]byte(`{"answer":`), answer), '}'))
}

// AppendPreview appends the request that runs the preview of the open question
// about a call.
func AppendPreview(dst []byte, id jsonrpc.ID, call string, era Era) []byte {
	params := jsonrpc.AppendString([]byte(`{"call":`), call)
	if era == Modern {
		params = append(params, `,"_meta":{"`+metaVersion+`":"`+Revision26+`",`+metaSelf+`,"`+metaCapabilities+`":{}}`...)
	}
	return jsonrpc.AppendRequest(dst, id, MethodPreview, append(params, '}'))
}

// ErrPreview says that a server did not show what it had to.
var ErrPreview = errors.New("no preview")

// PreviewText reads the answer to a [MethodPreview]: what there is to see, "" if
// nothing. What is an error, or none of a preview's, is [ErrPreview].
func PreviewText(m *Message) (string, error) {
	if m.IsError() {
		return "", fmt.Errorf("%w: the server answered with an error", ErrPreview)
	}
	at, ok, err := jsonrpc.Member(m.Frame, m.Result, "text")
	if !ok || err != nil || jsonrpc.KindAt(m.Frame, at) != jsonrpc.StringValue {
		return "", fmt.Errorf("%w: the answer has no text", ErrPreview)
	}
	text, err := jsonrpc.ReadString(m.Frame, at, maxQuestionLine)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrPreview, err)
	}
	return text, nil
}

// ResultOutcome is how a server of Belay's own says that a call ended; "" if it
// says nothing. at is what is to be cut out of the frame to leave no trace of that.
func ResultOutcome(m *Message) (outcome belay.Outcome, at jsonrpc.Span) {
	meta, ok, err := jsonrpc.Member(m.Frame, m.Result, "_meta")
	if !ok || err != nil {
		return "", jsonrpc.Span{}
	}
	at, value, alone := cutMember(m.Frame, meta, MetaOutcome)
	if !at.Ok() {
		return "", jsonrpc.Span{}
	}
	outcome = belay.Outcome(m.text(value, maxText))
	if alone {
		at, _, _ = cutMember(m.Frame, m.Result, "_meta")
	}
	return outcome, at
}

// cutMember is where a member of an object is, with what separates it from its
// neighbours, and its value; the zero Span if there is none. alone says that the
// object has no other.
func cutMember(frame []byte, object jsonrpc.Span, key string) (at, value jsonrpc.Span, alone bool) {
	end := 0 // of the member before
	for p := range jsonrpc.Members(frame, object) {
		switch {
		case at.Ok(): // it was the first: up to this one
			at.End = p.Key.Start
			return at, value, false
		case !p.Named(frame, key):
			end = p.Value.End
		case end > 0: // the comma as well
			return jsonrpc.Span{Start: end, End: p.Value.End}, p.Value, false
		default:
			at, value = jsonrpc.Span{Start: p.Key.Start, End: p.Value.End}, p.Value
		}
	}
	return at, value, at.Ok()
}

// AppendInputRequired appends the answer to a modern request that asks its caller
// one thing, by a form (MCP-65): a [MethodElicitation] with these params, under the
// name key. The retry brings state back.
func AppendInputRequired(dst []byte, id jsonrpc.ID, key string, params []byte, state string) []byte {
	result := jsonrpc.AppendString([]byte(`{"resultType":"input_required","requestState":`), state)
	result = append(jsonrpc.AppendString(append(result, `,"inputRequests":{`...), key), `:{"method":"`+MethodElicitation+`","params":`...)
	return jsonrpc.AppendResponse(dst, id, append(append(result, params...), `}}}`...))
}

// InputResponse is what a retry brings as the answer to what was asked under the
// name key; false if nothing.
func (m *Message) InputResponse(key string) (jsonrpc.Span, bool) {
	at, ok, err := jsonrpc.Member(m.Frame, m.Answers, key)
	return at, ok && err == nil
}

// Elicits reports whether the caller of a modern request takes questions in a
// form.
func (m *Message) Elicits() bool {
	at, ok, err := jsonrpc.Path(m.Frame, m.Meta, metaCapabilities, "elicitation")
	return ok && err == nil && takesForms(m.Frame, at)
}

// Elicits reports whether the caller that opened the session by initialize takes
// questions in a form.
func (h *Handshake) Elicits() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	at, ok, err := jsonrpc.Path(h.asked, jsonrpc.Span{Start: 0, End: len(h.asked)}, "capabilities", "elicitation")
	return ok && err == nil && takesForms(h.asked, at)
}

// takesForms reads the capability: forms were all there was before there were
// URLs.
func takesForms(frame []byte, at jsonrpc.Span) bool {
	if jsonrpc.KindAt(frame, at) != jsonrpc.ObjectValue {
		return false
	}
	_, form, err := jsonrpc.Member(frame, at, "form")
	_, url, _ := jsonrpc.Member(frame, at, "url")
	return err == nil && (form || !url)
}
