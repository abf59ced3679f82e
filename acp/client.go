package acp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
)

// ClientOptions say what a client, an editor, does. Role of the embedded Options is
// set by [NewClient]; its Handler serves what none of the functions here does, as
// fs/* and terminal/*; its Notify is told of notifications other than
// session/update.
type ClientOptions struct {
	Options

	Info Info // required
	// Version is the protocol version to ask for. Default: 1.
	Version int
	// Capabilities is the JSON text of clientCapabilities, in v2 of capabilities. Nil:
	// none.
	Capabilities json.RawMessage

	// Update is told of session updates, in their order, one at a time. A prompt's end
	// is seen after the updates before it. Nil: nobody is told.
	Update func(ctx context.Context, session string, update json.RawMessage)
	// RequestPermission asks the user. When its ctx ends the agent has been answered
	// that there was no answer, and what the function returns is dropped. Nil: every
	// permission is refused that way.
	RequestPermission func(ctx context.Context, r *Request) (PermissionAnswer, error)
	// Elicit asks the user for data; the same holds.
	Elicit func(ctx context.Context, r *Request) (ElicitationAnswer, error)
}

// Client is a connection at the editor's end. Make one with [NewClient]. All
// methods are safe for concurrent use.
type Client struct {
	conn *Conn
	o    ClientOptions

	mu       sync.Mutex
	sessions map[string]*clientSession // with open prompts, or whose background is known; guarded by mu
	items    map[item]struct{}         // what advertises that it can be cancelled alone; guarded by mu
}

// clientSession is what a client knows of a session; guarded by Client.mu.
type clientSession struct {
	prompts []*prompt // open ones
	alone   bool      // v2: the agent reports that nothing goes on in the background
}

// prompt is one that is open.
type prompt struct {
	seq    uint64        // in the writer; 0: it was not sent yet
	told   bool          // session/cancel was sent after it
	idles  []idle        // v2: idle states that were read since it was begun
	change chan struct{} // takes one: there is a new one
}

// maxIdles bounds what is kept of an agent that says idle again and again before it
// answers.
const maxIdles = 16

type idle struct {
	at     uint64 // its number among the notifications
	reason StopReason
}

// item is a tool call or a terminal (v2).
type item struct{ session, kind, id string }

const (
	itemTool     = "tool_call"
	itemTerminal = "terminal"
	maxItems     = 10_000
)

// NewClient takes over t. The next step is [Client.Initialize]. Info that is missing
// is a mistake in the calling code and panics.
func NewClient(t Transport, o ClientOptions) *Client {
	if o.Info.Name == "" {
		panic("acp: ClientOptions needs Info")
	}
	if o.Version == 0 {
		o.Version = Version1
	}
	cl := &Client{o: o, sessions: make(map[string]*clientSession), items: make(map[item]struct{})}
	rest, notify := o.Handler, o.Notify
	o.Role = RoleClient
	o.Handler = func(ctx context.Context, r *Request) (any, error) { return cl.serve(ctx, r, rest) }
	o.Notify = func(ctx context.Context, method string, params []byte) {
		if method == NoticeSessionUpdate {
			cl.updated(ctx, params)
		} else if notify != nil {
			notify(ctx, method, params)
		}
	}
	cl.conn = newConn(t, o.Options)
	cl.conn.dismiss = cl.dismiss
	cl.conn.start()
	return cl
}

// Conn is the connection, for calls and notifications that have no method here.
func (c *Client) Conn() *Conn { return c.conn }

// Close ends the connection, see [Conn.Close].
func (c *Client) Close(ctx context.Context) error { return c.conn.Close(ctx) }

func (c *Client) serve(ctx context.Context, r *Request, rest Handler) (any, error) {
	switch {
	case r.Method() == MethodRequestPermission && c.o.RequestPermission != nil:
		return c.o.RequestPermission(ctx, r)
	case r.Method() == MethodCreateElicitation && c.o.Elicit != nil:
		return c.o.Elicit(ctx, r)
	case rest != nil:
		return rest(ctx, r)
	case r.Method() == MethodRequestPermission:
		return PermissionAnswer{}, nil
	}
	return nil, MethodNotFound(r.Method())
}

// Initialize opens the connection and returns what the agent says of itself. It
// must be the first call. When ctx ends before the answer, the connection is
// closed: initialize cannot be cancelled (A6).
func (c *Client) Initialize(ctx context.Context) (Hello, error) {
	var params any
	if c.o.Version >= Version2 {
		params = struct {
			Version      int             `json:"protocolVersion"`
			Info         Info            `json:"info"`
			Capabilities json.RawMessage `json:"capabilities"`
		}{c.o.Version, c.o.Info, object(c.o.Capabilities)}
	} else {
		params = struct {
			Version      int             `json:"protocolVersion"`
			Info         Info            `json:"clientInfo"`
			Capabilities json.RawMessage `json:"clientCapabilities"`
		}{c.o.Version, c.o.Info, object(c.o.Capabilities)}
	}
	if err := c.conn.Call(ctx, MethodInitialize, params, nil); err != nil {
		return Hello{}, err
	}
	agent := c.conn.Peer()
	if agent.Version == 0 || agent.Version > c.o.Version {
		return agent, fmt.Errorf("%w: the agent speaks version %d, asked was %d", ErrUnsupported, agent.Version, c.o.Version)
	}
	return agent, nil
}

// NewSession makes a session. Session of s is ignored.
func (c *Client) NewSession(ctx context.Context, s SessionRequest) (SessionResult, error) {
	s.Session = ""
	got, err := c.open(ctx, MethodNewSession, s)
	if err == nil && got.Session == "" {
		err = fmt.Errorf("%s: %w: no sessionId", MethodNewSession, ErrMalformed)
	}
	return got, err
}

// LoadSession brings a session back with its history (v1).
func (c *Client) LoadSession(ctx context.Context, s SessionRequest) (SessionResult, error) {
	return c.open(ctx, MethodLoadSession, s)
}

// ResumeSession brings a session back.
func (c *Client) ResumeSession(ctx context.Context, s SessionRequest) (SessionResult, error) {
	return c.open(ctx, MethodResumeSession, s)
}

func (c *Client) open(ctx context.Context, method string, s SessionRequest) (SessionResult, error) {
	s, err := s.forVersion(c.conn.Version(), c.conn.Peer())
	if err != nil {
		return SessionResult{}, fmt.Errorf("%s: %w", method, err)
	}
	var raw json.RawMessage
	if err := c.conn.Call(ctx, method, s, &raw); err != nil {
		return SessionResult{}, err
	}
	got := SessionResult{}
	if err := decode(method, raw, &got); err != nil {
		return SessionResult{}, err
	}
	got.Raw = raw
	return got, nil
}

// CloseSession ends a session and all that goes on in it. An agent that does not
// offer it is not asked ([ErrUnsupported], ACP-59). One that does not know the
// session has nothing to close (ACP-71).
func (c *Client) CloseSession(ctx context.Context, session string) error {
	if !c.conn.Peer().Close {
		return fmt.Errorf("%s: %w", MethodCloseSession, ErrUnsupported)
	}
	err := c.conn.Call(ctx, MethodCloseSession, map[string]string{"sessionId": session}, nil)
	if peer, ok := errors.AsType[*Error](err); ok && peer.Code == CodeNotFound {
		err = nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.items {
		if i.session == session {
			delete(c.items, i)
		}
	}
	if s := c.sessions[session]; s != nil && len(s.prompts) == 0 {
		delete(c.sessions, session)
	}
	return err
}

// PromptResult is the end of a turn.
type PromptResult struct {
	Reason  StopReason
	Message string          // v2: the id of the prompt's message
	Raw     json.RawMessage // the answer to session/prompt
}

// Prompt sends a prompt and waits until the turn has ended: in v1 for the answer, in
// v2 for the idle state. content is an array of content blocks, see [Text].
//
// The end of ctx is Stop: session/cancel is sent, once, and nothing else; the user's
// dialogs of the session are withdrawn; and Prompt waits for the turn's true end,
// at most CancelWait. A turn that the agent ends cancelled is no error: Reason says
// it. session/cancel knows no single prompt: it stops all that are open in the
// session (A12).
func (c *Client) Prompt(ctx context.Context, session string, content any) (PromptResult, error) {
	raw, err := encode(content)
	if err != nil {
		return PromptResult{}, fmt.Errorf("%s: %w", MethodPrompt, err)
	}
	if k := jsonrpc.KindAt(raw, whole(raw)); k != jsonrpc.ArrayValue {
		return PromptResult{}, fmt.Errorf("%s: %w: the content must be an array of blocks, found %v", MethodPrompt, ErrBadRequest, k)
	}
	p := &prompt{change: make(chan struct{}, 1)}
	c.begin(session, p)
	defer c.endPrompt(session, p)
	cl := &call{conn: c.conn, method: MethodPrompt}
	cl.tell = func(*call) bool { return c.tell(ctx, session) == nil }
	cl.around = func(send func() (uint64, error)) (seq uint64, err error) {
		c.mu.Lock() // so that a session/cancel goes before it or after it, and is known to
		defer c.mu.Unlock()
		p.seq, err = send()
		return p.seq, err
	}
	params := jsonrpc.AppendString([]byte(`{"sessionId":`), session)
	params = append(append(append(params, `,"prompt":`...), raw...), '}')
	got, err := c.conn.do(ctx, cl, params)
	if err != nil {
		return PromptResult{}, err
	}
	if c.conn.Version() < Version2 {
		var end struct {
			Reason StopReason `json:"stopReason"`
		}
		err := decode(MethodPrompt, got, &end)
		return PromptResult{Reason: end.Reason, Raw: got}, err
	}
	var inserted struct {
		Message string `json:"messageId"`
	}
	if err := decode(MethodPrompt, got, &inserted); err != nil {
		return PromptResult{}, err
	}
	reason, err := c.awaitIdle(ctx, session, p, cl.noted)
	return PromptResult{Reason: reason, Message: inserted.Message, Raw: got}, err
}

func (c *Client) begin(session string, p *prompt) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.sessions[session]
	if s == nil {
		s = &clientSession{}
		c.sessions[session] = s
	}
	s.prompts = append(s.prompts, p)
}

func (c *Client) endPrompt(session string, p *prompt) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.sessions[session]
	s.prompts = slices.DeleteFunc(s.prompts, func(o *prompt) bool { return o == p })
	if len(s.prompts) == 0 {
		delete(c.sessions, session)
	}
}

// awaitIdle waits for the end of v2 work: the first idle state that was sent after
// the prompt was inserted. Those before belong to other work, and repeated ones
// mean nothing (ACP-68).
func (c *Client) awaitIdle(ctx context.Context, session string, p *prompt, noted uint64) (StopReason, error) {
	var expired <-chan time.Time
	done := ctx.Done()
	for {
		if reason, ok := c.idleSince(p, noted); ok {
			return reason, nil
		}
		select {
		case <-p.change:
		case <-done:
			done = nil
			if err := c.tell(ctx, session); err != nil {
				return "", &CancelError{Method: MethodPrompt, Cause: context.Cause(ctx), Verdict: belay.Unreachable}
			}
			limit := time.NewTimer(c.conn.o.CancelWait)
			defer limit.Stop()
			expired = limit.C
		case <-expired:
			return "", &CancelError{Method: MethodPrompt, Cause: context.Cause(ctx), Verdict: belay.Signalled}
		case <-c.conn.done:
			return "", fmt.Errorf("%s: %w", MethodPrompt, c.conn.why())
		}
	}
}

func (c *Client) idleSince(p *prompt, noted uint64) (StopReason, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, i := range p.idles {
		if i.at > noted {
			return i.reason, true
		}
	}
	return "", false
}

// Cancel stops what goes on in a session, as the end of the context of its prompts
// does. Pressing it again while the same turns run sends nothing more: agents are
// known that take it for the next turn (ACP-46).
func (c *Client) Cancel(session string) error {
	return c.tell(context.Background(), session)
}

// tell sends session/cancel, unless all open prompts of the session have been told,
// and ends what the user is being asked.
func (c *Client) tell(ctx context.Context, session string) error {
	if err := c.tellAgent(session); err != nil {
		return fmt.Errorf("%s: %w", NoticeSessionCancel, err)
	}
	if c.conn.Version() >= Version2 && !c.isAlone(session) {
		return nil // the agent withdraws what belongs to this work (ACP-66)
	}
	for _, r := range c.conn.matching(session, Dialog) {
		r.Cancel(*stopCause(ctx))
	}
	return nil
}

func (c *Client) tellAgent(session string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.sessions[session]
	news, after := s == nil || len(s.prompts) == 0, uint64(0)
	if s != nil {
		for _, p := range s.prompts {
			if p.seq > 0 && !p.told {
				news, p.told, after = true, true, max(after, p.seq)
			}
		}
	}
	if !news {
		return nil
	}
	_, err := c.conn.w.SendUrgent(after, func(dst []byte) []byte { return AppendSessionCancel(dst, session) })
	if err != nil {
		return c.conn.sendFailed(err)
	}
	return nil
}

// isAlone reports whether what the user is asked can only be of the work that is
// being stopped.
func (c *Client) isAlone(session string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.sessions[session]
	return s != nil && s.alone
}

// stopCause is why the user's dialogs are withdrawn.
func stopCause(ctx context.Context) *belay.Cancellation {
	if c := belay.CancellationOf(ctx); c != nil {
		return c
	}
	return &belay.Cancellation{Cause: belay.CauseUser, Via: "acp", Reason: "the turn was stopped"}
}

// dismiss says why a dialog is not shown: all prompts of its session have been
// stopped, and it was on its way (ACP-53).
func (c *Client) dismiss(r *Request) *belay.Cancellation {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.sessions[r.session]
	if s == nil || len(s.prompts) == 0 || c.conn.Version() >= Version2 && !s.alone {
		return nil
	}
	for _, p := range s.prompts {
		if !p.told {
			return nil
		}
	}
	return stopCause(context.Background())
}

// updated takes a session/update from the queue of notifications.
func (c *Client) updated(ctx context.Context, params []byte) {
	session, ok := SessionOf(params)
	if !ok {
		return
	}
	at, ok, _ := jsonrpc.Member(params, whole(params), "update")
	if !ok {
		return
	}
	update := at.Of(params)
	if c.o.Update != nil {
		c.o.Update(ctx, session, update)
	}
	if c.conn.Version() < Version2 {
		return
	}
	if state, ok := StateOf(params); ok {
		c.stateChanged(session, state)
		return
	}
	c.advertised(session, update)
}

func (c *Client) stateChanged(session string, state State) {
	at := c.conn.notes.done.Load() + 1
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.sessions[session]
	if s == nil {
		return
	}
	s.alone = emptyArray(state.Background)
	if !state.Idle {
		return
	}
	for _, p := range s.prompts {
		p.idles = append(p.idles, idle{at, state.Reason})
		if len(p.idles) > maxIdles {
			p.idles = slices.Delete(p.idles, 0, 1)
		}
		select {
		case p.change <- struct{}{}:
		default:
		}
	}
}

func emptyArray(raw []byte) bool {
	if raw == nil {
		return false
	}
	for range jsonrpc.Elements(raw, whole(raw)) {
		return false
	}
	return true
}

// advertised notes which tool calls and terminals can be cancelled alone at this
// moment (ACP-69): capabilities that are left out stay, null takes them away, and
// what is over cannot be cancelled.
func (c *Client) advertised(session string, update []byte) {
	var u struct {
		Kind         string          `json:"sessionUpdate"`
		ToolCall     string          `json:"toolCallId"`
		Terminal     string          `json:"terminalId"`
		Status       string          `json:"status"`
		Exit         json.RawMessage `json:"exitStatus"`
		Capabilities json.RawMessage `json:"capabilities"`
	}
	if json.Unmarshal(update, &u) != nil {
		return
	}
	i := item{session: session}
	var over bool
	switch u.Kind {
	case "tool_call_update":
		i.kind, i.id = itemTool, u.ToolCall
		over = u.Status == "completed" || u.Status == "failed" || u.Status == "cancelled"
	case "terminal_update":
		i.kind, i.id = itemTerminal, u.Terminal
		over = jsonrpc.KindAt(u.Exit, whole(u.Exit)) == jsonrpc.ObjectValue
	default:
		return
	}
	caps := Hello{Caps: u.Capabilities}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case i.id == "":
	case over, u.Capabilities != nil && !caps.Has("cancel"):
		delete(c.items, i)
	case u.Capabilities != nil && len(c.items) < maxItems:
		c.items[i] = struct{}{}
	}
}

// CancelToolCall asks the agent to stop one tool call, in v2, while the turn goes
// on. One that does not advertise it at this moment is not asked for
// ([ErrUnsupported], ACP-69). No error means that the agent has accepted it, and not
// that the call has stopped: its final update says that (ACP-70).
func (c *Client) CancelToolCall(ctx context.Context, session, id string) error {
	return c.cancelItem(ctx, MethodCancelToolCall, "toolCallId", item{session, itemTool, id})
}

// CancelTerminal is the same for a terminal; the proof is its exit status.
func (c *Client) CancelTerminal(ctx context.Context, session, id string) error {
	return c.cancelItem(ctx, MethodCancelTerminal, "terminalId", item{session, itemTerminal, id})
}

func (c *Client) cancelItem(ctx context.Context, method, name string, i item) error {
	c.mu.Lock()
	_, can := c.items[i]
	c.mu.Unlock()
	if !can {
		return fmt.Errorf("%s: %w: %s does not advertise capabilities.cancel", method, ErrUnsupported, i.id)
	}
	return c.conn.Call(ctx, method, map[string]string{"sessionId": i.session, name: i.id}, nil)
}
