package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/belayhq/belay/script"
)

// The names by which a worker and Belay's gateway speak about approvals. A call
// whose _meta has extAsk, with a text that names it there, comes from a client that
// takes methodAsk: it has ways to a person that an elicitation has not, and can take
// the question back when it was answered elsewhere.
const (
	extAsk        = "io.github.belayhq/ask"
	methodAsk     = "io.github.belayhq/ask"
	methodPreview = "io.github.belayhq/preview"
	metaOutcome   = "io.github.belayhq/outcome"
)

// Times of a question.
const (
	askSlack  = 5 * time.Second // beyond AskTimeout, for a client that minds it itself
	tellLimit = 5 * time.Second // for the word that nobody waits any more
)

var (
	errNoAnswer = errors.New("nobody answered in time")
	errTell     = errors.New("the client does not read")
)

// inquiries are the questions of one connection. The SDK's servers know no requests
// of their own making, so these are written beside it, and their answers are taken
// off the connection before it sees them.
type inquiries struct {
	mu   sync.Mutex
	conn mcp.Connection // nil before there is a client
	last int
	open map[string]*inquiry // by the id of our request
}

// inquiry is one open question.
type inquiry struct {
	call   string
	got    chan *jsonrpc.Response // capacity 1
	dialog *script.Dialog
}

// install lets handlers find the inquiries, and answers clients that want to see a
// preview.
func (q *inquiries) install(server *mcp.Server) error {
	server.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			return next(context.WithValue(ctx, inquiriesKey{}, q), method, req)
		}
	})
	return mcp.AddReceivingCustomMethod(server, methodPreview, q.preview)
}

type inquiriesKey struct{}

type previewParams struct {
	mcp.ParamsBase
	Call string `json:"call"`
}

type previewResult struct {
	mcp.ResultBase
	Text       string `json:"text"`
	ResultType string `json:"resultType"` // of the modern era; others ignore it
}

// preview runs the preview of an open question (AT-60).
func (q *inquiries) preview(ctx context.Context, _ *mcp.ServerSession, p *previewParams) (*previewResult, error) {
	var look func(context.Context) string
	q.mu.Lock()
	for _, one := range q.open {
		if p != nil && one.call == p.Call {
			look = one.dialog.OnPreview
		}
	}
	q.mu.Unlock()
	if look == nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "no question with a preview is open for this call"}
	}
	return &previewResult{Text: look(ctx), ResultType: "complete"}, nil
}

// transport takes the answers off the connection.
func (q *inquiries) transport(t mcp.Transport) mcp.Transport { return askTransport{t, q} }

type askTransport struct {
	mcp.Transport
	q *inquiries
}

// Connect implements mcp.Transport.
func (t askTransport) Connect(ctx context.Context) (mcp.Connection, error) {
	c, err := t.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	t.q.mu.Lock()
	defer t.q.mu.Unlock()
	t.q.conn = c
	return &askConn{c, t.q}, nil
}

type askConn struct {
	mcp.Connection
	q *inquiries
}

// Read implements mcp.Connection.
func (c *askConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	for {
		m, err := c.Connection.Read(ctx)
		if r, ok := m.(*jsonrpc.Response); err != nil || !ok || !c.q.take(r) {
			return m, err
		}
	}
}

// idPrefix begins the ids of our requests. Those of the SDK are numbers.
const idPrefix = "ask-"

// take reports whether a response is to one of ours; one that nobody waits for any
// more is dropped.
func (q *inquiries) take(r *jsonrpc.Response) bool {
	id, _ := r.ID.Raw().(string)
	if !strings.HasPrefix(id, idPrefix) {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if one := q.open[id]; one != nil {
		delete(q.open, id)
		one.got <- r // capacity 1, and it has left the table
	}
	return true
}

// askParams is the question as it travels.
type askParams struct {
	Call      string `json:"call"`
	Title     string `json:"title,omitempty"`
	Message   string `json:"message"`
	Primary   string `json:"primary,omitempty"`
	Secondary string `json:"secondary,omitempty"`
	Preview   string `json:"preview,omitempty"`
	TimeoutMs int64  `json:"timeoutMs,omitempty"`
}

// ask puts a question to the client and waits for the answer. The end of ctx takes
// it back.
func (q *inquiries) ask(ctx context.Context, call string, d *script.Dialog, timeout time.Duration) (script.Answer, error) {
	params, err := json.Marshal(askParams{call, d.Title, d.Message, d.Primary, d.Secondary, d.Preview, timeout.Milliseconds()})
	if err != nil {
		return script.Dismissed, err
	}
	q.mu.Lock()
	q.last++
	name, conn := fmt.Sprint(idPrefix, q.last), q.conn
	one := &inquiry{call: call, got: make(chan *jsonrpc.Response, 1), dialog: d}
	if q.open == nil {
		q.open = make(map[string]*inquiry)
	}
	q.open[name] = one
	q.mu.Unlock()
	defer func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		delete(q.open, name)
	}()
	id, err := jsonrpc.MakeID(name)
	if err != nil {
		return script.Dismissed, err
	}
	if err := conn.Write(ctx, &jsonrpc.Request{ID: id, Method: methodAsk, Params: params}); err != nil {
		return script.Dismissed, err
	}
	select {
	case r := <-one.got:
		answer, err := readAnswer(r)
		if wire := (*jsonrpc.Error)(nil); errors.As(err, &wire) && wire.Code == codeCancelled {
			err = awaitStop(ctx, err)
		}
		return answer, err
	case <-ctx.Done():
	}
	limited, end := context.WithTimeoutCause(context.WithoutCancel(ctx), tellLimit, errTell)
	defer end()
	if params, err := json.Marshal(map[string]any{"requestId": name, "reason": "nobody waits for the answer any more"}); err == nil {
		_ = conn.Write(limited, &jsonrpc.Request{Method: "notifications/cancelled", Params: params})
	}
	return script.Dismissed, context.Cause(ctx)
}

// codeCancelled is the client's word that the call of the question was stopped.
const codeCancelled = -32800

// awaitStop waits for the Stop itself, which the client's word has overtaken: the
// script must not take that for the answer of a person, and work (AT-65).
func awaitStop(ctx context.Context, word error) error {
	limit := time.NewTimer(askSlack)
	defer limit.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-limit.C:
		return word
	}
}

// readAnswer reads what the client answered: anything that is no button is none.
func readAnswer(r *jsonrpc.Response) (script.Answer, error) {
	if r.Error != nil {
		return script.Dismissed, fmt.Errorf("%w: %w", errUnasked, r.Error)
	}
	var a struct {
		Answer script.Answer `json:"answer"`
	}
	if err := json.Unmarshal(r.Result, &a); err != nil {
		return script.Dismissed, fmt.Errorf("%w: its answer cannot be read: %w", errUnasked, err)
	}
	if a.Answer != script.Primary && a.Answer != script.Secondary {
		return script.Dismissed, nil
	}
	return a.Answer, nil
}

// errUnasked says that there was no way to a person.
var errUnasked = errors.New("nobody could be asked")

// asker asks by the client's own way, if the call says that it has one, else by
// elicitation, where the client can (AT-66); nil where it cannot.
func (w *Worker) asker(ctx context.Context, req *mcp.CallToolRequest, log func(level, message string)) func(context.Context, script.Dialog) (script.Answer, error) {
	how := w.elicit(req)
	member, _ := req.Params.GetMeta()[extAsk].(map[string]any)
	call, _ := member["call"].(string)
	q, _ := ctx.Value(inquiriesKey{}).(*inquiries)
	if call != "" && q != nil {
		how = func(ctx context.Context, d script.Dialog) (script.Answer, error) {
			return q.ask(ctx, call, &d, w.o.AskTimeout)
		}
	}
	if how == nil {
		return nil
	}
	return func(ctx context.Context, d script.Dialog) (script.Answer, error) {
		timed, end := context.WithTimeoutCause(ctx, w.o.AskTimeout+askSlack, errNoAnswer)
		defer end()
		answer, err := how(timed, d)
		if err == nil || ctx.Err() != nil {
			return answer, err
		}
		if log != nil { // no answer and no way to ask are alike to the script (AT-61)
			log("warn", "the approval was not answered: "+err.Error())
		}
		return script.Dismissed, nil
	}
}

// elicit asks by a form with one field, the button; nil where the client has no
// forms.
func (w *Worker) elicit(req *mcp.CallToolRequest) func(context.Context, script.Dialog) (script.Answer, error) {
	client := req.Session.InitializeParams()
	if client == nil || client.Capabilities == nil || client.Capabilities.Elicitation == nil {
		return nil
	}
	return func(ctx context.Context, d script.Dialog) (script.Answer, error) {
		ctx, end := context.WithTimeoutCause(ctx, w.o.AskTimeout, errNoAnswer)
		defer end()
		message := d.Title + "\n\n" + d.Message
		for {
			got, err := req.Session.Elicit(ctx, &mcp.ElicitParams{Message: message, RequestedSchema: form(&d)})
			if err != nil {
				if ctx.Err() != nil {
					err = context.Cause(ctx)
				}
				return script.Dismissed, err
			}
			label, _ := got.Content[answerField].(string)
			if got.Action != "accept" || label == "" || label != d.Preview || label == d.Primary || label == d.Secondary {
				return answer(got, &d), nil
			}
			message = d.Title + "\n\n" + d.Message + "\n\n" + d.Preview + ":\n" + d.OnPreview(ctx)
		}
	}
}

// answerField is the one field of the form.
const answerField = "answer"

// form has one field with a value for each button.
func form(d *script.Dialog) map[string]any {
	var buttons []string
	for _, label := range []string{d.Primary, d.Secondary, d.Preview} {
		if label != "" {
			buttons = append(buttons, label)
		}
	}
	if len(buttons) == 0 {
		return map[string]any{"type": "object", "properties": map[string]any{}}
	}
	return map[string]any{
		"type": "object", "required": []string{answerField},
		"properties": map[string]any{answerField: map[string]any{"type": "string", "title": d.Title, "enum": buttons}},
	}
}

// answer reads what the person did: the button by its label.
func answer(got *mcp.ElicitResult, d *script.Dialog) script.Answer {
	label, _ := got.Content[answerField].(string)
	switch {
	case got.Action == "decline", got.Action == "accept" && label == d.Secondary && label != "" && label != d.Primary:
		return script.Secondary
	case got.Action == "accept" && label == d.Primary && label != "":
		return script.Primary
	}
	return script.Dismissed
}

// concluded is a call's result in MCP's words, with how it ended where that is not
// said by the result itself (AT-62).
func concluded(ended *script.Ended) *mcp.CallToolResult {
	r := result(ended.Result)
	if ended.Declined {
		r.Meta = mcp.Meta{metaOutcome: "declined"}
	}
	return r
}
