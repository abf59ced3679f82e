package gateway

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
	"github.com/belayhq/belay/proc"
	"github.com/belayhq/belay/supervise"
)

// upstream is one process of the server with its message pumps, or one
// conversation with a server that is no process of ours. Session.mu guards what
// changes.
type upstream struct {
	s      *Session
	wire   wire
	tree   *supervise.Tree // nil: no process of ours, nothing to be forced
	ids    jsonrpc.Minter
	worker bool          // leased to one call at a time (IsolationCall)
	heard  *listener     // of its stderr; nil where that does not come to us
	look   lookout       // a short memory of what runs in the tree
	force  *forcing      // set once force is used
	gone   chan struct{} // closed when the pump has ended and the calls are settled
	inbox  mcp.Message   // what the pump is at; nobody keeps it

	ready       bool                    // takes messages
	dead        bool                    // its leader has ended, or force is being used on it
	expected    bool                    // Belay itself ends it
	fresh       bool                    // it took the place of an earlier process, and was put into the session
	initialized bool                    // it was told so when it was put into the session
	served      bool                    // it has answered a tool call
	stale       bool                    // a worker that the session has left behind: not leased again
	unleased    bool                    // no longer counted in Session.leased
	superseded  bool                    // a fresh process took its place while it was drained
	calls       map[string]*call        // by our id, stopped ones included until they are over
	busy        int                     // calls that somebody is waiting for: not stopped, no subscription
	asks        map[string]*ask         // its requests to the caller, by its own id
	dialogs     map[string]*dialog      // questions of scripts that are open, by the worker's id
	acks        map[string]*call        // by our token of the stop-ack extension
	early       map[string]mcp.TaskNews // of tasks that no answer has told of yet
	taskCancels map[string]*taskCancel  // by the id of our tasks/cancel
	replay      map[string]chan []byte  // our own requests while it is put into the session
	tools       int                     // of busy, those of tools
	untold      int                     // stopped calls of which the server, being no process, was not told yet
	quiet       time.Time               // when the last call but pings ended that somebody waited for
	solo        *call                   // the last tool call, while no other ran beside it
	stopping    []*call                 // stopped calls whose receipt may not be final yet
	firstCall   proc.Stamp              // when the first call was dispatched
	drains      int                     // calls whose force waits until nothing else is in flight
	changed     chan struct{}           // closed and renewed when calls change while drains > 0
	lease       *call                   // what a worker works for
	purged      time.Time               // when stopped calls were last forgotten
	forgotten   recent                  // stopped calls and requests of ours that were given up unanswered
	strange     int                     // messages that nobody asked for
}

// maxCalls bounds what is in flight on one process.
const maxCalls = 65_536

// start starts what the server is: a process and its pumps for a run of the
// session, or a conversation.
func (s *Session) start(ctx context.Context, run belay.RunID) (*upstream, error) {
	u := &upstream{
		s: s, gone: make(chan struct{}),
		calls: make(map[string]*call), asks: make(map[string]*ask), replay: make(map[string]chan []byte),
	}
	switch {
	case s.cfg.URL != "":
		// A server without sessions may keep what is in flight in one table for
		// everybody: equal ids of two of our conversations would meet there, and a
		// cancel would stop a stranger's call (MCP-G6, MCP-G12).
		u.ids.Prefix = "b-" + rand.Text()[:8] + "-"
		return u, u.dial()
	case s.cfg.Serve != nil:
		return u, u.host()
	}
	tree, err := s.cfg.start(ctx, run)
	if err != nil {
		return nil, err
	}
	u.tree, u.look.tree = tree, tree
	u.wire = pipe{jsonrpc.NewWriter(tree.Stdin(), jsonrpc.WriterOptions{})}
	s.mu.Lock()
	started := s.goLocked(u.pump)
	if started {
		s.all = append(s.all, u)
		u.listenLocked()
	}
	s.mu.Unlock()
	if !started {
		close(u.gone)
		u.tree.Close(ctx)
		u.wire.hangUp()
		if from := u.tree.Stderr(); from != nil {
			from.Close()
		}
		return nil, fmt.Errorf("start %s: %w", s.cfg.Command[0], belay.ErrClosed)
	}
	s.log.Debug("the server was started", "pid", tree.PID())
	return u, nil
}

// close ends the process and everything that came from it, by the rule for
// Belay's own end. It waits until all is gone.
func (u *upstream) close() {
	u.s.mu.Lock()
	u.expected = true
	u.s.mu.Unlock()
	if u.tree == nil {
		u.awaitTold()
		u.wire.hangUp()
		<-u.gone
		return
	}
	report, err := u.tree.Close(context.Background())
	if err != nil {
		u.s.log.Warn("processes of the server are still alive", "error", err, "survivors", len(report.Survivors))
	}
	u.observe(supervise.Evidence(report, supervise.Whole(), u.tree.Signs()))
	u.wire.hangUp()
	u.heard.bury(false)
	<-u.gone
}

// dispatchLocked sends a call to the process: with our id, and with our
// progress token in place of the caller's (MCP-G6, MCP-G8).
func (u *upstream) dispatchLocked(c *call, m *mcp.Message) {
	if len(u.calls) >= maxCalls {
		c.failLocked(mcp.CodeInternal, fmt.Sprintf("%d calls are in flight on server %q already", len(u.calls), u.s.cfg.Name))
		return
	}
	c.up, c.upID = u, u.ids.Next()
	if c.method == mcp.MethodCallTool {
		u.beginLocked(c)
	}
	if c.run != nil && !c.standing() && !u.s.ofStoppedTaskLocked(c) {
		c.counted = true
		u.busy++
	}
	if c.standing() && c.frame == nil {
		c.frame = append([]byte(nil), m.Frame...)
	}
	u.calls[c.upID.Key()] = c
	edits := u.editsLocked(c, m)
	if err := u.wire.request(c, c.params, m.Frame, edits...); err != nil {
		u.removeLocked(c)
		c.up = nil
		c.failLocked(mcp.CodeInternal, fmt.Sprintf("the request could not be passed to server %q: %v", u.s.cfg.Name, err))
		return
	}
	if c.passing() != nil {
		c.passLocked()
	}
}

// editsLocked are the changes to a request on its way to the server: our id and
// progress token, and what Belay itself asks of the server.
func (u *upstream) editsLocked(c *call, m *mcp.Message) []jsonrpc.Edit {
	raw := []byte(c.upID.Raw())
	edits := append(make([]jsonrpc.Edit, 0, 3), jsonrpc.Edit{At: m.IDAt, New: raw})
	var members [6]mcp.MetaMember
	add := members[:0]
	switch {
	case !c.token.IsZero():
		edits = append(edits, jsonrpc.Edit{At: m.Token, New: raw})
	case u.s.wantsSigns(c) && !m.Token.Ok() && jsonrpc.KindAt(m.Frame, m.Meta) != jsonrpc.NullValue:
		add = append(add, mcp.MetaMember{Key: "progressToken", Value: raw})
	}
	if c.acksLocked() {
		add = append(add, u.askAckLocked(c, m))
	}
	if c.asks() {
		add = append(add, askMeta(c))
	}
	if c.names != nil {
		add = c.spanMembers(add)
		if c.names.hide {
			edits = mcp.HideParent(edits, m)
		}
	}
	if u.s.cfg.TellRun && u.s.cfg.Serve != nil && c.run != nil {
		add = append(add, mcp.MetaMember{Key: mcp.MetaRun, Value: quoted(c.run.ID().String())})
	}
	if len(add) > 0 {
		edits = mcp.AppendMeta(edits, m, add...)
	}
	if c.acksLocked() {
		edits = mcp.DeclareStopAck(edits, m)
	}
	if c.method == mcp.MethodAwaitStop {
		edits = u.awaitLocked(edits, m)
	}
	return edits
}

// beginLocked notes when a tool call begins, and which processes will be its.
func (u *upstream) beginLocked(c *call) {
	c.began = proc.Now()
	if u.firstCall == 0 {
		u.firstCall = c.began
	}
	if u.solo != nil {
		u.solo.until = c.began
		u.solo = nil
	}
	if c.others = u.tools > 0; !c.others {
		u.solo = c
	}
	u.tools++
}

// soleLocked is the one call that the server can be at work on, stopped or
// not, or nil where there are several.
func (u *upstream) soleLocked() *call {
	u.pruneStoppingLocked()
	switch {
	case u.busy == 0 && len(u.stopping) == 1:
		return u.stopping[0]
	case u.busy != 1 || len(u.stopping) > 0:
		return nil
	}
	for _, c := range u.calls {
		if c.counted {
			return c
		}
	}
	return nil
}

// pruneStoppingLocked forgets the stopped calls whose receipt is final.
func (u *upstream) pruneStoppingLocked() {
	u.stopping = slices.DeleteFunc(u.stopping, func(c *call) bool {
		r := c.run.Receipt()
		return r == nil || r.Final
	})
}

// wantsSigns reports whether Belay asks for progress on its own account, to
// see whether a stopped call goes on (MCP-G8). It then forwards none. Only
// where every stopped call is forced there is nothing to be learnt.
func (s *Session) wantsSigns(c *call) bool {
	return c.method == mcp.MethodCallTool && (c.policy.Enforce != EnforceStrict || c.policy.Observe)
}

// removeLocked forgets a call on this process.
func (u *upstream) removeLocked(c *call) {
	if key := c.upID.Key(); u.calls[key] == c {
		delete(u.calls, key)
		if c.stopped && (c.replied == "" || c.replied == belay.SeenHandlerReturned) {
			u.forgotten.add(key)
		}
	}
	if c.ack != "" && !c.stopped {
		delete(u.acks, c.ack)
	}
	u.uncountLocked(c)
}

// changedLocked wakes who waits for the calls of this process to end.
func (u *upstream) changedLocked() {
	if u.changed != nil {
		close(u.changed)
		u.changed = nil
	}
}

// uncountLocked takes a call out of those that somebody is waiting for.
func (u *upstream) uncountLocked(c *call) {
	if c.counted {
		c.counted = false
		u.busy--
		if c.method == mcp.MethodCallTool {
			u.tools--
		}
		if c.method != mcp.MethodPing {
			u.quiet = time.Now()
		}
		u.changedLocked()
		u.retireSupersededLocked()
	}
}

// maxGhosts is how many stopped calls of a silent server are remembered, for
// evidence that comes late and for a person's second Stop.
const maxGhosts = 1024

// purgeLocked forgets stopped calls whose receipt is final when there are too
// many. A server that obeys the protocol never answers them (MCP-10).
func (u *upstream) purgeLocked() {
	few := len(u.stopping) <= maxGhosts && len(u.calls)-u.busy < 2*maxGhosts && len(u.acks)-u.busy < 2*maxGhosts
	if few || time.Since(u.purged) < time.Second {
		return
	}
	u.pruneStoppingLocked()
	u.purged = time.Now()
	for key, c := range u.calls {
		if c.stopped && len(u.calls)-u.busy > maxGhosts {
			if r := c.run.Receipt(); r != nil && r.Final {
				delete(u.calls, key)
				delete(u.acks, c.ack)
				u.forgotten.add(key)
			}
		}
	}
	// A call that was answered or lost after its Stop is in the table of calls no
	// more; its acknowledgement may still come.
	for token, c := range u.acks {
		if c.stopped && len(u.acks)-u.busy > maxGhosts {
			if r := c.run.Receipt(); r != nil && r.Final {
				delete(u.acks, token)
			}
		}
	}
}

// pump reads what the process says until it says no more.
func (u *upstream) pump() {
	defer close(u.gone)
	stop := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() { u.watchLeader(stop) })
	u.read(u.tree.Stdout())
	close(stop)
	watch.Wait()
	u.ended()
	u.tree.Stdout().Close()
}

// read takes every line of the server.
func (u *upstream) read(from io.Reader) {
	reader := jsonrpc.NewReader(from, jsonrpc.ReaderOptions{Max: u.s.cfg.MaxLine})
	var hold holder
	defer hold.release()
	for {
		if !reader.Ready() {
			hold.release() // what follows may take hours to come
		}
		line, err := reader.Next()
		if err == nil {
			u.s.rest.touch()
			hold.take(u.s.lines)
			u.line(line)
			continue
		}
		if long, ok := errors.AsType[*jsonrpc.TooLongError](err); ok {
			u.tooLong(long)
			continue
		}
		u.lastWords(err)
		return
	}
}

// lastOutput is how long the output of a process whose leader has ended may
// still be read: a child that lives on may hold the pipe open for ever.
const lastOutput = 200 * time.Millisecond

func (u *upstream) watchLeader(stop <-chan struct{}) {
	select {
	case <-u.tree.Done():
		u.tree.Stdout().SetReadDeadline(time.Now().Add(lastOutput))
	case <-stop:
	}
}

func (u *upstream) lastWords(err error) {
	if part, ok := errors.AsType[*jsonrpc.PartialError](err); ok {
		u.s.log.Warn("the server ended in the middle of a message; it was dropped", "bytes", part.Size, "begins", begins(part.Prefix))
		return
	}
	if !errors.Is(err, io.EOF) {
		u.s.log.Debug("the server's output ended", "error", err)
	}
}

func (u *upstream) line(line []byte) {
	switch {
	case jsonrpc.IsNoise(line):
		u.noise(line, nil)
	case jsonrpc.IsBatch(line):
		elements, err := jsonrpc.SplitBatch(line, 0)
		if err != nil {
			u.noise(line, err)
			return
		}
		for _, frame := range elements {
			u.receive(frame)
		}
	default:
		u.receive(line)
	}
}

// maxStrange is how many odd messages of one process are logged singly.
const maxStrange = 20

// noise passes over what is no message, with a warning (MCP-24, MCP-G3).
func (u *upstream) noise(line []byte, err error) {
	u.warn("the server wrote a line to stdout that is no message; it was skipped", "begins", begins(line), "error", err)
}

// warn logs an oddity of the process, the first few times.
func (u *upstream) warn(text string, args ...any) {
	u.s.mu.Lock()
	u.strange++
	n := u.strange
	u.s.mu.Unlock()
	switch {
	case n < maxStrange:
		u.s.log.Warn(text, args...)
	case n == maxStrange:
		u.s.log.Warn(text+"; more of this kind will not be logged", args...)
	}
}

// tooLong fails the call whose answer is over the bound (MCP-G3).
func (u *upstream) tooLong(e *jsonrpc.TooLongError) {
	u.warn("the server wrote a line over the bound; it was dropped", "bytes", e.Size, "bound", e.Max)
	id, kind, ok := e.Salvage()
	if !ok || kind != jsonrpc.Response {
		return
	}
	frame := jsonrpc.AppendError(nil, id, mcp.CodeInternal,
		fmt.Sprintf("the answer of server %q has %d bytes; at most %d are passed on", u.s.cfg.Name, e.Size, e.Max), nil)
	u.receive(frame)
}

// broken passes over a message that cannot be read, and lets nobody wait for
// it: the call whose answer it was fails, a question is answered.
func (u *upstream) broken(m *mcp.Message, err error) {
	u.noise(m.Frame, err)
	id, kind := m.ID, m.Kind
	if id.IsZero() {
		id, kind, _ = jsonrpc.Salvage(m.Frame, m.Frame)
	}
	switch {
	case id.IsZero() || id.IsNull():
	case kind == jsonrpc.Response:
		u.receive(jsonrpc.AppendError(nil, id, mcp.CodeInternal,
			fmt.Sprintf("the answer of server %q could not be read: %v", u.s.cfg.Name, err), nil))
	case kind == jsonrpc.Request:
		u.send(jsonrpc.AppendError(nil, id, jsonrpc.Code(err), err.Error(), nil))
	}
}

func (u *upstream) receive(frame []byte) {
	m := &u.inbox
	if err := m.Read(frame); err != nil {
		u.broken(m, err)
		return
	}
	u.take(m, jsonrpc.ID{}, 0)
}

// take takes a message of the server. about is our id of the request on whose
// stream it came, where it has one; status that of HTTP.
func (u *upstream) take(m *mcp.Message, about jsonrpc.ID, status int) {
	switch m.Kind {
	case jsonrpc.Response:
		u.responded(m, status)
	case jsonrpc.Request:
		u.asked(m, about)
	case jsonrpc.Notification:
		u.noticed(m, about)
	}
}
