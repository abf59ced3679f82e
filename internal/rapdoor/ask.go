package rapdoor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
	"github.com/belayhq/belay/rap"
)

// What a server asks during a call goes to the person behind its runtime, as a
// user_choice (RAP-82). To dismiss it is a choice of its own and the default, so
// that no default ever means yes: the server then hears "cancel". Whoever cannot
// be asked at all is an error, which is no answer: the person may be asked by
// another door.

// ask is a request of the server on its way. It ends with its withdrawal, its call
// and its session, whichever comes first.
type ask struct {
	m       *mcp.Message
	of      *waiter // nil: it belongs to no request
	ctx     context.Context
	endWith context.CancelCauseFunc
}

var (
	errWithdrawn = errors.New("the server has withdrawn the question")
	errNoCall    = errors.New("it belongs to no call")
)

// The choices that Belay adds.
const (
	labelDismiss = "No answer"
	labelAccept  = "Accept"
	labelDecline = "Decline"
)

// elicitation is what a link declares in both eras.
const elicitation = `{"elicitation":{"form":{}}}`

// queueLocked takes a request of the server. The link's loop goes on with it: who
// calls this holds locks.
func (l *link) queueLocked(m *mcp.Message, of *waiter) error {
	if len(l.asks) >= maxAsked {
		return jsonrpc.ErrQueueFull
	}
	a := &ask{m: m, of: of}
	a.ctx, a.endWith = context.WithCancelCause(l.d.life)
	l.asks[m.ID.Key()] = a
	if of != nil && m.Method == mcp.MethodElicitation {
		of.elicited.Store(true) // whoever answers it
	}
	l.asked = append(l.asked, a)
	select {
	case l.wake <- struct{}{}:
	default:
	}
	return nil
}

// withdrawLocked takes back what the server asks no more.
func (l *link) withdrawLocked(m *mcp.Message) {
	c, err := m.ReadCancel()
	if err != nil {
		return
	}
	if a := l.asks[c.Request.Key()]; a != nil {
		a.endWith(errWithdrawn)
	}
}

// answerAsked answers what the server has asked; people are waited for elsewhere.
// It is called by the loop of the link alone, while that is counted in Door.wg.
func (l *link) answerAsked() {
	l.mu.Lock()
	asked := l.asked
	l.asked = nil
	l.mu.Unlock()
	for _, a := range asked {
		switch {
		case a.m.Method == mcp.MethodElicitation && a.of != nil && a.of.job != nil:
			l.d.wg.Go(func() { l.answer(a, l.elicit(a)) })
		case a.m.Method == mcp.MethodPing:
			l.answer(a, jsonrpc.AppendResponse(nil, a.m.ID, nil))
		case a.m.Method == mcp.MethodElicitation:
			l.answer(a, jsonrpc.AppendError(nil, a.m.ID, mcp.CodeInvalidRequest, fmt.Sprintf("nobody can be asked this: %v", errNoCall), nil))
		default:
			l.answer(a, jsonrpc.AppendError(nil, a.m.ID, mcp.CodeMethodNotFound, "this client answers no such requests", nil))
		}
	}
}

// answer gives the server its answer; nil: it wants none any more.
func (l *link) answer(a *ask, frame []byte) {
	l.mu.Lock()
	delete(l.asks, a.m.ID.Key())
	l.mu.Unlock()
	a.endWith(nil)
	if m := (&mcp.Message{}); frame != nil && m.Read(frame) == nil {
		l.on.Deliver(mcp.Arrival{Message: m})
	}
}

// endAsks ends what is still asked when the session is over.
func (l *link) endAsks() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.asks {
		a.endWith(errGone)
	}
}

// elicit asks the person, and returns the answer as a frame. Nil: the server has
// withdrawn the question, and is to hear nothing more of it.
func (l *link) elicit(a *ask) []byte {
	result, err := pick(a.ctx, a.of.job, a.m.Frame, a.m.Params)
	switch {
	case errors.Is(context.Cause(a.ctx), errWithdrawn):
		return nil
	case errors.Is(err, errForm):
		return jsonrpc.AppendError(nil, a.m.ID, mcp.CodeInvalidParams, err.Error(), nil)
	case err != nil:
		l.d.log.Debug("the person behind a call could not be asked", "server", l.key.server, "run", a.of.job.Run().ID(), "error", err)
		return jsonrpc.AppendError(nil, a.m.ID, mcp.CodeInvalidRequest, fmt.Sprintf("nobody could be asked: %v", err), nil)
	}
	return jsonrpc.AppendResponse(nil, a.m.ID, result)
}

// pick has the person answer a form field by field, and returns the result of the
// elicitation. One dismissal is enough: what was picked before is forgotten. An
// answer that is none of the choices counts as one (RAP-84).
func pick(ctx context.Context, j *rap.Job, frame []byte, params jsonrpc.Span) ([]byte, error) {
	f, err := readForm(frame, params)
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	choose := func(prompt string, labels []string) (int, error) {
		labels = append(slices.Clip(labels), labelDismiss)
		i, err := j.Choose(ctx, prompt, labels, len(labels)-1)
		if errors.Is(err, rap.ErrBadAnswer) {
			i, err = len(labels)-1, nil
		}
		return i, err
	}
	if len(f.fields) == 0 {
		switch i, err := choose(shorten(cmp.Or(f.message, noText), maxPrompt), []string{labelAccept, labelDecline}); {
		case err != nil:
			return nil, err
		case i == 0:
			return []byte(`{"action":"accept","content":{}}`), nil
		case i == 1:
			return []byte(`{"action":"decline"}`), nil
		}
		return []byte(`{"action":"cancel"}`), nil
	}
	content := []byte(`{"action":"accept","content":{`)
	for i := range f.fields {
		one := &f.fields[i]
		n, err := choose(f.prompt(i), one.labels)
		switch {
		case err != nil:
			return nil, err
		case n >= len(one.values):
			return []byte(`{"action":"cancel"}`), nil
		case i > 0:
			content = append(content, ',')
		}
		content = append(jsonrpc.AppendString(content, one.name), ':')
		content = append(content, one.values[n]...)
	}
	return append(content, "}}"...), nil
}

// maxLegs bounds the input rounds of one call of the modern era.
const maxLegs = 16

var errLegs = fmt.Errorf("%w: the tool has asked for input more than %d times", errTooMany, maxLegs)

// nextLeg has the person answer what a server of the modern era asks (MCP-65), and
// returns the parameters of the retry, without braces. Such a server has only this
// caller to ask: where that cannot be done the call fails.
func nextLeg(ctx context.Context, j *rap.Job, m *mcp.Message) ([]byte, error) {
	requests, _, _ := jsonrpc.Member(m.Frame, m.Result, "inputRequests")
	next := []byte(`"inputResponses":{`)
	n := 0
	for r := range jsonrpc.Members(m.Frame, requests) {
		var found [2]jsonrpc.Span
		if err := jsonrpc.Lookup(m.Frame, r.Value, []string{"method", "params"}, found[:]); err != nil {
			return nil, fmt.Errorf("the tool asks for input that cannot be read: %w", err)
		}
		method, _ := jsonrpc.ReadString(m.Frame, found[0], 128)
		if method != mcp.MethodElicitation {
			return nil, fmt.Errorf("the tool asks its caller for input (%.64q), which this protocol has no answer to", method)
		}
		if n++; n > maxFields {
			return nil, fmt.Errorf("the tool asks for input %w: more than %d questions at once", errForm, maxFields)
		}
		result, err := pick(ctx, j, m.Frame, found[1])
		if err != nil {
			return nil, fmt.Errorf("the tool asks for input: %w", err)
		}
		if n > 1 {
			next = append(next, ',')
		}
		next = append(append(next, r.Key.Of(m.Frame)...), ':')
		next = append(next, result...)
	}
	next = append(next, '}')
	if state, ok, _ := jsonrpc.Member(m.Frame, m.Result, "requestState"); ok {
		next = append(append(next, `,"requestState":`...), state.Of(m.Frame)...)
	}
	return next, nil
}

// declinedError is the text of a call that ended because a person said no.
type declinedError struct{ text string }

func (e *declinedError) Error() string { return e.text }
func (*declinedError) Unwrap() error   { return belay.ErrDeclined }

// declined reports whether a run below the job ended so.
func (d *Door) declined(ctx context.Context, j *rap.Job) bool {
	list, err := d.o.Tree.List(ctx, belay.Filter{Under: j.Run().ID(), Ended: true})
	if err != nil {
		return false
	}
	for i := range list {
		if list[i].ID != j.Run().ID() && list[i].Outcome == belay.Declined {
			return true
		}
	}
	return false
}
