package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/gateway"
)

// toolClient is the caller of one session, as an MCP client is one: it asks, it is
// told of progress, and it can be asked.
type toolClient struct {
	session  *gateway.Session
	progress func(message, id string)
	elicit   func(ctx context.Context, q elicitation) (answer string, ok bool) // nil: this caller takes no questions

	in      *io.PipeWriter // to the session
	out     *io.PipeReader // from it
	tasks   sync.WaitGroup
	life    context.Context
	end     context.CancelCauseFunc
	writing sync.Mutex

	mu      sync.Mutex
	last    int
	waiting map[string]chan toolReply // by the id of the request
	asked   map[string]context.CancelCauseFunc
	gone    bool
}

// toolReply is the answer to one request.
type toolReply struct {
	result json.RawMessage
	err    *toolError
}

// toolError is an error of the protocol.
type toolError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func (e *toolError) Error() string { return e.Message }

// elicitation is a question of the server.
type elicitation struct {
	Message string `json:"message"`
	Schema  struct {
		Properties map[string]struct {
			Enum []string `json:"enum"`
		} `json:"properties"`
	} `json:"requestedSchema"`
}

// choices are the buttons of the question.
func (q *elicitation) choices() []string { return q.Schema.Properties[elicitedField].Enum }

// elicitedField is the one thing that a script's question asks for.
const elicitedField = "answer"

// toolMessage is one message from the session.
type toolMessage struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *toolError      `json:"error"`
}

// errToolGone says that no answer can come any more.
var errToolGone = errors.New("the worker's session has ended")

// errAnswered ends a question that is not asked any more.
var errAnswered = errors.New("the question was withdrawn")

// openToolClient opens the session and says hello.
func openToolClient(ctx context.Context, cfg gateway.Config, c *toolClient) error {
	c.waiting, c.asked = make(map[string]chan toolReply), make(map[string]context.CancelCauseFunc)
	c.life, c.end = context.WithCancelCause(context.WithoutCancel(ctx))
	inReader, in := io.Pipe()
	out, outWriter := io.Pipe()
	c.in, c.out = in, out
	session, err := gateway.Open(ctx, cfg, outWriter)
	if err != nil {
		c.end(err)
		return err
	}
	c.session = session
	c.tasks.Go(func() { _ = session.Feed(inReader) }) // ends with c.in
	c.tasks.Go(c.read)                                // ends with c.out
	capabilities := map[string]any{}
	if c.elicit != nil {
		capabilities["elicitation"] = map[string]any{}
	}
	if err := c.call(ctx, "initialize", map[string]any{
		"protocolVersion": "2025-06-18", "capabilities": capabilities,
		"clientInfo": map[string]any{"name": "belay-tool", "version": Version()},
	}, nil); err != nil {
		return errors.Join(err, c.close(belay.Cancellation{Cause: belay.CauseShutdown, Via: "belay", Reason: "the worker did not start"}))
	}
	return c.send(map[string]any{"jsonrpc": "2.0", "method": "notifications/initialized"})
}

// close ends the session and everything of this client.
func (c *toolClient) close(why belay.Cancellation) error {
	err := c.session.Close(context.Background(), why)
	c.end(&why)
	_ = c.in.Close()
	_ = c.out.Close()
	c.tasks.Wait()
	return err
}

// send writes one message.
func (c *toolClient) send(message any) error {
	line, err := json.Marshal(message)
	if err != nil {
		return err
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	_, err = c.in.Write(append(line, '\n'))
	return err
}

// start sends a request; the answer comes on the channel, which is closed without
// one if none can come.
func (c *toolClient) start(method string, params any) (<-chan toolReply, error) {
	c.mu.Lock()
	c.last++
	id, answer := c.last, make(chan toolReply, 1)
	if c.gone {
		c.mu.Unlock()
		return nil, errToolGone
	}
	c.waiting[strconv.Itoa(id)] = answer
	c.mu.Unlock()
	return answer, c.send(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

// call is start, and waits. A nil into drops the result.
func (c *toolClient) call(ctx context.Context, method string, params, into any) error {
	answer, err := c.start(method, params)
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.session.Ended():
		return errors.Join(errToolGone, c.session.Err())
	case r, ok := <-answer:
		switch {
		case !ok:
			return errToolGone
		case r.err != nil:
			return r.err
		case into != nil:
			return json.Unmarshal(r.result, into)
		}
		return nil
	}
}

// read takes what the session says, until it says no more.
func (c *toolClient) read() {
	defer c.lost()
	lines := bufio.NewReader(c.out)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var m toolMessage
		if json.Unmarshal(line, &m) != nil {
			continue
		}
		switch {
		case m.Method == "":
			c.answered(&m)
		case m.ID != nil:
			c.wasAsked(&m)
		default:
			c.told(&m)
		}
	}
}

// lost ends what waits for answers.
func (c *toolClient) lost() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone = true
	for id, answer := range c.waiting {
		close(answer)
		delete(c.waiting, id)
	}
}

func (c *toolClient) answered(m *toolMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if answer := c.waiting[string(m.ID)]; answer != nil {
		answer <- toolReply{m.Result, m.Error}
		delete(c.waiting, string(m.ID))
	}
}

// told takes progress, and the end of a question.
func (c *toolClient) told(m *toolMessage) {
	switch m.Method {
	case "notifications/progress":
		var p struct {
			Message string         `json:"message"`
			Meta    map[string]any `json:"_meta"`
		}
		if json.Unmarshal(m.Params, &p) == nil && c.progress != nil {
			id, _ := p.Meta[metaReport].(string)
			c.progress(p.Message, id)
		}
	case "notifications/cancelled":
		var p struct {
			ID json.RawMessage `json:"requestId"`
		}
		if json.Unmarshal(m.Params, &p) != nil {
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if end := c.asked[string(p.ID)]; end != nil {
			end(errAnswered)
		}
	}
}

// metaReport is where a worker puts the id of a report.
const metaReport = "io.github.belayhq/report"

// wasAsked answers a request of the server.
func (c *toolClient) wasAsked(m *toolMessage) {
	reply := map[string]any{"jsonrpc": "2.0", "id": m.ID}
	switch {
	case m.Method == "ping":
		reply["result"] = map[string]any{}
	case m.Method == "elicitation/create" && c.elicit != nil:
		var q elicitation
		if err := json.Unmarshal(m.Params, &q); err != nil {
			reply["error"] = toolError{-32602, err.Error()}
			break
		}
		c.ask(m.ID, q)
		return
	default:
		reply["error"] = toolError{-32601, fmt.Sprintf("this client takes no %s", m.Method)}
	}
	c.tasks.Go(func() { _ = c.send(reply) }) // the session may be waiting for us to read
}

// ask puts a question to the person, and brings back the answer, unless it is not
// wanted any more.
func (c *toolClient) ask(id json.RawMessage, q elicitation) {
	ctx, end := context.WithCancelCause(c.life)
	c.mu.Lock()
	c.asked[string(id)] = end
	c.mu.Unlock()
	c.tasks.Go(func() {
		defer end(errAnswered)
		answer, ok := c.elicit(ctx, q)
		c.mu.Lock()
		delete(c.asked, string(id))
		c.mu.Unlock()
		if ctx.Err() != nil {
			return
		}
		result := map[string]any{"action": "cancel"}
		if ok {
			result = map[string]any{"action": "accept", "content": map[string]any{elicitedField: answer}}
		}
		_ = c.send(map[string]any{"jsonrpc": "2.0", "id": id, "result": result})
	})
}
