package acp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
)

// AgentOptions say what an agent does. Role of the embedded Options is set by
// [NewAgent]; its Handler serves what none of the functions here does.
type AgentOptions struct {
	Options

	Info Info // required
	// Versions are the protocol versions that it speaks. Default: 1.
	Versions []int
	// Capabilities is the JSON text of agentCapabilities, CapabilitiesV2 that of
	// capabilities. Nil: none. What is declared here must be served, see CloseSession.
	Capabilities, CapabilitiesV2 json.RawMessage
	// AuthMethods is the JSON text of the list. Nil: none.
	AuthMethods json.RawMessage

	// NewSession makes a session. Required.
	NewSession func(ctx context.Context, s *SessionRequest) (*SessionResult, error)
	// LoadSession and ResumeSession bring one back. Nil: the method is unknown.
	LoadSession, ResumeSession func(ctx context.Context, s *SessionRequest) (*SessionResult, error)
	// CloseSession frees what a session holds. Its turns have been stopped and have
	// ended before. Nil: the method is unknown.
	CloseSession func(ctx context.Context, session string) error
	// Prompt does the work of one turn. Its ctx ends when the turn is stopped:
	// by session/cancel, session/close, a cancel of the request, and by what ends any
	// ctx of a [Handler]. After a Stop every error means that the turn was cancelled;
	// it never reaches the client as an error (ACP-56). Required.
	Prompt func(ctx context.Context, t *Turn) (StopReason, error)
}

// Agent is a connection at the agent's end. Make one with [NewAgent]. All methods
// are safe for concurrent use.
type Agent struct {
	conn *Conn
	o    AgentOptions

	mu       sync.Mutex
	sessions map[string]*agentSession // that something is known of; guarded by mu
}

// agentSession is what an agent knows of a session. Its fields are guarded by
// Agent.mu, and messages about its state are sent under it, so that they leave in
// the order in which it changed.
type agentSession struct {
	working    int             // v2: turns that were inserted and have not ended
	background json.RawMessage // v2: the list, nil: not reported
	closed     bool            // nothing is sent for it any more
}

// maxSessions bounds the sessions that an agent remembers something of.
const maxSessions = 10_000

// NewAgent takes over t and begins to serve. An option that is required and
// missing is a mistake in the calling code and panics.
func NewAgent(t Transport, o AgentOptions) *Agent {
	if o.NewSession == nil || o.Prompt == nil || o.Info.Name == "" {
		panic("acp: AgentOptions needs Info, NewSession and Prompt")
	}
	if len(o.Versions) == 0 {
		o.Versions = []int{Version1}
	}
	a := &Agent{o: o, sessions: make(map[string]*agentSession)}
	rest := o.Handler
	o.Role = RoleAgent
	o.Handler = func(ctx context.Context, r *Request) (any, error) { return a.serve(ctx, r, rest) }
	a.conn = newConn(t, o.Options)
	a.conn.start()
	return a
}

// Conn is the connection, for calls and notifications that have no method here.
func (a *Agent) Conn() *Conn { return a.conn }

// Close ends the connection, see [Conn.Close].
func (a *Agent) Close(ctx context.Context) error { return a.conn.Close(ctx) }

// Done is closed when the client is gone, which is the end of an agent (ACP-73).
func (a *Agent) Done() <-chan struct{} { return a.conn.Done() }

func (a *Agent) serve(ctx context.Context, r *Request, rest Handler) (any, error) {
	switch r.Method() {
	case MethodInitialize:
		return a.initialize(r)
	case MethodNewSession:
		return a.open(ctx, r, a.o.NewSession)
	case MethodLoadSession:
		return a.open(ctx, r, a.o.LoadSession)
	case MethodResumeSession:
		return a.open(ctx, r, a.o.ResumeSession)
	case MethodCloseSession:
		return a.closeSession(ctx, r)
	case MethodPrompt:
		return a.prompt(ctx, r)
	}
	if rest == nil {
		return nil, MethodNotFound(r.Method())
	}
	return rest(ctx, r)
}

// initialize answers with the asked version or the highest below it (ACP-72).
func (a *Agent) initialize(r *Request) (any, error) {
	asked := ReadHello(r.Params()).Version
	if asked == 0 {
		return nil, InvalidParams("protocolVersion must be a positive integer")
	}
	version := 0
	for _, v := range a.o.Versions {
		if v <= asked {
			version = max(version, v)
		}
	}
	switch {
	case version == 0:
		return nil, &Error{Code: CodeVersion, Message: fmt.Sprintf("no protocol version at or below %d, but %d", asked, slices.Min(a.o.Versions))}
	case version >= Version2:
		return struct {
			Version      int             `json:"protocolVersion"`
			Info         Info            `json:"info"`
			Capabilities json.RawMessage `json:"capabilities"`
			AuthMethods  json.RawMessage `json:"authMethods,omitempty"`
		}{version, a.o.Info, object(a.o.CapabilitiesV2), a.o.AuthMethods}, nil
	}
	return struct {
		Version      int             `json:"protocolVersion"`
		Info         Info            `json:"agentInfo"`
		Capabilities json.RawMessage `json:"agentCapabilities"`
		AuthMethods  json.RawMessage `json:"authMethods,omitempty"`
	}{version, a.o.Info, object(a.o.Capabilities), a.o.AuthMethods}, nil
}

func object(raw json.RawMessage) json.RawMessage {
	if raw == nil {
		return json.RawMessage("{}")
	}
	return raw
}

// open serves the requests that make a session or bring one back.
func (a *Agent) open(ctx context.Context, r *Request, do func(context.Context, *SessionRequest) (*SessionResult, error)) (any, error) {
	if do == nil {
		return nil, MethodNotFound(r.Method())
	}
	var asked SessionRequest
	if err := r.Decode(&asked); err != nil {
		return nil, err
	}
	if asked.Session != "" {
		a.reopen(asked.Session) // its history may be replayed before the answer
	}
	got, err := do(ctx, &asked)
	if err != nil || got == nil {
		return nil, err
	}
	if r.Method() == MethodNewSession && got.Session == "" {
		return nil, fmt.Errorf("%w: NewSession returned no session id", ErrBadRequest)
	}
	if got.Session != "" {
		a.reopen(got.Session)
	}
	if got.Raw != nil {
		return got.Raw, nil
	}
	return got, nil
}

func (a *Agent) reopen(session string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.sessions[session]; s != nil {
		s.closed = false
	}
}

// sessionLocked returns what is known of a session, from now on.
func (a *Agent) sessionLocked(id string) *agentSession {
	s := a.sessions[id]
	if s == nil {
		if len(a.sessions) >= maxSessions {
			for old, o := range a.sessions { // any that nothing is going on in
				if o.working == 0 {
					delete(a.sessions, old)
					break
				}
			}
		}
		s = &agentSession{}
		a.sessions[id] = s
	}
	return s
}

// closeSession: the reader has stopped the turns already (ACP-59, ACP-71).
func (a *Agent) closeSession(ctx context.Context, r *Request) (any, error) {
	if a.o.CloseSession == nil {
		return nil, MethodNotFound(r.Method())
	}
	if r.session == "" {
		return nil, InvalidParams("sessionId must be a string")
	}
	a.awaitTurns(ctx, r.session)
	if err := a.o.CloseSession(ctx, r.session); err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sessionLocked(r.session).closed = true
	return nil, nil
}

// awaitTurns waits until the turns of a session have ended, for the client at
// least, which takes AnswerAfter at most.
func (a *Agent) awaitTurns(ctx context.Context, session string) {
	ctx, cancel := context.WithTimeoutCause(ctx, a.conn.o.AnswerAfter+closeSlack, errCleanUp)
	defer cancel()
	for _, r := range a.conn.matching(session, func(method string) bool { return method == MethodPrompt }) {
		r.mu.Lock()
		turn := r.turn
		r.mu.Unlock()
		if turn == nil {
			continue
		}
		select {
		case <-turn.ended:
		case <-ctx.Done():
			return
		}
	}
}

// Update sends an update that belongs to the session and not to one turn: its
// commands, its mode, its title, what goes on in the background. update is the
// object with its member sessionUpdate. After session/close nothing is sent any
// more ([ErrOver]).
func (a *Agent) Update(session string, update any) error {
	raw, err := updateParams(session, update)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.sessions[session]; s != nil && s.closed {
		return fmt.Errorf("session/update: %w: the session is closed", ErrOver)
	}
	_, err = a.conn.send(func(dst []byte) []byte { return jsonrpc.AppendNotification(dst, NoticeSessionUpdate, raw) })
	return err
}

func updateParams(session string, update any) ([]byte, error) {
	raw, err := encode(update)
	if err != nil {
		return nil, fmt.Errorf("session/update: %w", err)
	}
	if k := jsonrpc.KindAt(raw, whole(raw)); k != jsonrpc.ObjectValue {
		return nil, fmt.Errorf("session/update: %w: it must be an object, found %v", ErrBadRequest, k)
	}
	dst := append([]byte(nil), `{"sessionId":`...)
	dst = jsonrpc.AppendString(dst, session)
	dst = append(dst, `,"update":`...)
	return append(append(dst, raw...), '}'), nil
}

// Background says, in v2, what goes on beside the session's turns: a JSON array,
// [] for nothing. session/cancel spares what is listed (ACP-64), so it must not
// hang on a turn's ctx. The list is part of each state update from now on.
func (a *Agent) Background(session string, list json.RawMessage) error {
	list, err := checked(list)
	if err != nil {
		return fmt.Errorf("background: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.sessionLocked(session)
	s.background = list
	if s.closed || a.conn.Version() < Version2 {
		return nil
	}
	state := "idle"
	if s.working > 0 {
		state = "running"
	}
	return a.stateLocked(session, s, state, "", nil)
}

// stateLocked sends a v2 state_update.
func (a *Agent) stateLocked(session string, s *agentSession, state string, reason StopReason, failed *Error) error {
	raw, err := updateParams(session, struct {
		Kind       string          `json:"sessionUpdate"`
		State      string          `json:"state"`
		Reason     StopReason      `json:"stopReason,omitempty"`
		Error      *Error          `json:"error,omitempty"`
		Background json.RawMessage `json:"background,omitempty"`
	}{"state_update", state, reason, failed, s.background})
	if err != nil {
		return err
	}
	_, err = a.conn.send(func(dst []byte) []byte { return jsonrpc.AppendNotification(dst, NoticeSessionUpdate, raw) })
	return err
}

// RequestPermission asks the user. Only an answer with an option that was offered
// counts, and none counts that comes after ctx has ended: then the error is the
// end of ctx, and nothing is allowed (ACP-65).
func (a *Agent) RequestPermission(ctx context.Context, p Permission) (PermissionAnswer, error) {
	if p.Session == "" || len(p.Options) == 0 {
		return PermissionAnswer{}, fmt.Errorf("%s: %w: a session and at least one option are needed", MethodRequestPermission, ErrBadRequest)
	}
	var got PermissionAnswer
	if err := dismissed(a.conn.Call(ctx, MethodRequestPermission, p.params(a.conn.Version()), &got)); err != nil {
		return PermissionAnswer{}, err
	}
	if ctx.Err() != nil {
		return PermissionAnswer{}, &CancelError{Method: MethodRequestPermission, Cause: context.Cause(ctx), Verdict: belay.Acknowledged}
	}
	if !slices.ContainsFunc(p.Options, func(o PermissionOption) bool { return o.ID == got.Option }) {
		return PermissionAnswer{}, nil
	}
	return got, nil
}

// Elicit asks the user for data; params is that of elicitation/create. An action
// that is not known is cancel, and so is every answer that comes after ctx has
// ended.
func (a *Agent) Elicit(ctx context.Context, params any) (ElicitationAnswer, error) {
	none := ElicitationAnswer{Action: ActionCancel}
	client := a.conn.Peer()
	if !client.Has("elicitation") {
		return none, fmt.Errorf("%s: %w", MethodCreateElicitation, ErrUnsupported)
	}
	var got ElicitationAnswer
	if err := dismissed(a.conn.Call(ctx, MethodCreateElicitation, params, &got)); err != nil {
		return none, err
	}
	if ctx.Err() != nil {
		return none, &CancelError{Method: MethodCreateElicitation, Cause: context.Cause(ctx), Verdict: belay.Acknowledged}
	}
	if got.Action != "accept" && got.Action != "decline" {
		return none, nil
	}
	return got, nil
}

// dismissed takes -32800 for what some clients mean by it: there was no answer
// (A3).
func dismissed(err error) error {
	if peer, ok := errors.AsType[*Error](err); ok && peer.Code == CodeCancelled {
		return nil
	}
	return err
}

// ReadTextFile reads a file as the editor has it (v1).
func (a *Agent) ReadTextFile(ctx context.Context, session, path string) (string, error) {
	client := a.conn.Peer()
	if !client.Has("fs", "readTextFile") {
		return "", fmt.Errorf("%s: %w", MethodReadTextFile, ErrUnsupported)
	}
	var got struct {
		Content string `json:"content"`
	}
	err := a.conn.Call(ctx, MethodReadTextFile, map[string]string{"sessionId": session, "path": path}, &got)
	return got.Content, err
}

// WriteTextFile writes a file through the editor (v1).
func (a *Agent) WriteTextFile(ctx context.Context, session, path, content string) error {
	client := a.conn.Peer()
	if !client.Has("fs", "writeTextFile") {
		return fmt.Errorf("%s: %w", MethodWriteTextFile, ErrUnsupported)
	}
	return a.conn.Call(ctx, MethodWriteTextFile, map[string]string{"sessionId": session, "path": path, "content": content}, nil)
}

// Terminal is a command that the client runs for the agent (v1). All methods are
// safe for concurrent use.
type Terminal struct {
	agent    *Agent
	session  string
	id       string
	released sync.Once
}

// CreateTerminal starts a command at the client. It needs the client's capability
// (ACP-60). A terminal that was made with the ctx of a [Handler] or of a turn is
// released at the latest when that returns, before it is answered: the command
// does not outlive it.
func (a *Agent) CreateTerminal(ctx context.Context, t TerminalRequest) (*Terminal, error) {
	client := a.conn.Peer()
	if !client.Has("terminal") {
		return nil, fmt.Errorf("%s: %w", MethodCreateTerminal, ErrUnsupported)
	}
	var got struct {
		ID string `json:"terminalId"`
	}
	if err := a.conn.Call(ctx, MethodCreateTerminal, t, &got); err != nil {
		return nil, err
	}
	term := &Terminal{agent: a, session: t.Session, id: got.ID}
	r := requestOf(ctx)
	if r == nil {
		return term, nil
	}
	free := func(ctx context.Context) { _ = term.Release(ctx) } // nobody is left to whom a failure could be told
	if !r.onReturn(free) {
		clean, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), a.conn.o.CancelWait, errCleanUp)
		defer cancel()
		free(clean)
		return nil, fmt.Errorf("%s: %w: its request has been answered", MethodCreateTerminal, ErrOver)
	}
	return term, nil
}

// ID is the client's name for the terminal.
func (t *Terminal) ID() string { return t.id }

func (t *Terminal) params() map[string]string {
	return map[string]string{"sessionId": t.session, "terminalId": t.id}
}

// Wait waits until the command has ended. When ctx ends before, the wait is
// cancelled, which does not end the command (ACP-61), and then the command is
// killed.
func (t *Terminal) Wait(ctx context.Context) (ExitStatus, error) {
	var got ExitStatus
	err := t.agent.conn.Call(ctx, MethodWaitForExit, t.params(), &got)
	if err != nil && ctx.Err() != nil && !errors.Is(err, ErrLost) && !errors.Is(err, ErrClosed) {
		clean, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), t.agent.conn.o.CancelWait, errCleanUp)
		defer cancel()
		return got, errors.Join(err, t.Kill(clean))
	}
	return got, err
}

// Output is what the command has written so far, as the client answers.
func (t *Terminal) Output(ctx context.Context) (json.RawMessage, error) {
	var got json.RawMessage
	err := t.agent.conn.Call(ctx, MethodTerminalOutput, t.params(), &got)
	return got, err
}

// Kill ends the command and keeps the terminal.
func (t *Terminal) Kill(ctx context.Context) error {
	return t.agent.conn.Call(ctx, MethodKillTerminal, t.params(), nil)
}

// Release kills the command and frees the terminal. Only the first call does
// something.
func (t *Terminal) Release(ctx context.Context) (err error) {
	t.released.Do(func() { err = t.agent.conn.Call(ctx, MethodReleaseTerminal, t.params(), nil) })
	return err
}
