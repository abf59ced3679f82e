package aggregate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
	"github.com/belayhq/belay/mcp/httpserver"
)

// list is one kind of list.
type list struct {
	capability string
	member     string // of the result: the array
	key        string // of an element: what it is known by
	named      bool   // key is a name, which gets the server's in front
}

var lists = map[string]list{
	mcp.MethodListTools: {"tools", "tools", "name", true},
	methodListPrompts:   {"prompts", "prompts", "name", true},
	methodListResources: {"resources", "resources", "uri", false},
	methodListTemplates: {"resources", "resourceTemplates", "uriTemplate", false},
	methodListTasks:     {"tasks", "tasks", "taskId", false},
}

// maxMerged bounds a merged list, in bytes. Members that would make it longer are
// left out.
const maxMerged = 32 << 20

var errSlow = errors.New("it took too long")

// page is one member's part of a list.
type page struct {
	elements []element
	next     []byte // the cursor as JSON text; nil: there is no more
	ttl      int    // ttlMs; 0 if it did not say (modern)
	public   bool   // cacheScope is public (modern)
}

type element struct {
	raw []byte
	at  jsonrpc.Span // of the key's value in raw
	key string
}

// readPage reads a member's part. Elements without what they are known by cannot
// be asked for; they are not in it.
func readPage(m *mcp.Message, what *list) page {
	var p page
	array, _, _ := jsonrpc.Member(m.Frame, m.Result, what.member)
	for s := range jsonrpc.Elements(m.Frame, array) {
		at, ok, err := jsonrpc.Member(m.Frame, s, what.key)
		if !ok || err != nil {
			continue
		}
		if key := textAt(m.Frame, at, maxName); key != "" {
			p.elements = append(p.elements, element{s.Of(m.Frame), jsonrpc.Span{Start: at.Start - s.Start, End: at.End - s.Start}, key})
		}
	}
	if at, ok, _ := jsonrpc.Member(m.Frame, m.Result, "nextCursor"); ok && jsonrpc.KindAt(m.Frame, at) != jsonrpc.NullValue {
		p.next = at.Of(m.Frame)
	}
	if at, ok, _ := jsonrpc.Member(m.Frame, m.Result, "ttlMs"); ok {
		p.ttl, _ = strconv.Atoi(string(at.Of(m.Frame)))
	}
	at, _, _ := jsonrpc.Member(m.Frame, m.Result, "cacheScope")
	p.public = textAt(m.Frame, at, 16) == "public"
	return p
}

// list answers a list request with what the members have together.
func (s *session) list(c *call, frame []byte) {
	what := lists[c.method]
	targets, err := s.listTargets(frame, &what)
	if err != nil {
		c.failf(mcp.CodeInvalidParams, "%v", err)
		return
	}
	replies, ok := s.gather(c, frame, targets)
	if !ok {
		return
	}
	var m merging
	m.begin(&what, s)
	var out []missing
	for i := range replies {
		r := &replies[i]
		if r.err == nil {
			if r.err = m.add(r); r.err != nil {
				s.leftOut(r.name, c.method, r.err)
			}
		}
		if r.err != nil && !lacks(r.err) {
			out = append(out, missing{r.name, r.err})
		}
	}
	if m.parts == 0 && len(out) > 0 {
		c.answer(nobody(c, out))
		return
	}
	c.answer(jsonrpc.AppendResponse(nil, c.id, m.result(len(out) > 0)))
}

// lacks reports whether a member has said that it has no such list.
func lacks(err error) bool {
	r, ok := errors.AsType[*refusal](err)
	return ok && r.code == mcp.CodeMethodNotFound
}

// listTargets are the members that a list request goes to: all that can have
// something, or those that its cursor names, each with its own cursor.
func (s *session) listTargets(frame []byte, what *list) ([]target, error) {
	m := &mcp.Message{}
	if err := m.Read(frame); err != nil {
		return nil, err
	}
	at, ok, err := jsonrpc.Member(m.Frame, m.Params, "cursor")
	switch {
	case err != nil:
		return nil, err
	case !ok || jsonrpc.KindAt(m.Frame, at) == jsonrpc.NullValue:
		return s.targets(s.having(what.capability)), nil
	}
	text, err := jsonrpc.ReadString(m.Frame, at, maxCursors)
	if err != nil {
		return nil, errCursor
	}
	places, err := readCursor(text)
	if err != nil {
		return nil, err
	}
	there := s.having(what.capability)
	var targets []target
	for _, p := range places {
		if !slices.Contains(there, p.server) {
			s.log.Info("the rest of a list is missing: its server is not there any more", "server", p.server)
			continue
		}
		if slices.ContainsFunc(targets, func(t target) bool { return t.name == p.server }) {
			return nil, errCursor
		}
		targets = append(targets, target{p.server, []jsonrpc.Edit{{At: at, New: p.cursor}}})
	}
	return targets, nil
}

func (s *session) targets(names []string) []target {
	targets := make([]target, len(names))
	for i, name := range names {
		targets[i].name = name
	}
	return targets
}

// having lists the members that can have something of a kind: those that said so,
// or in the modern era, where nobody has to ask before, all. Members that are
// not in the session are let in meanwhile.
func (s *session) having(capability string) []string {
	if s.era == mcp.Modern {
		return s.names()
	}
	s.invite()
	var names []string
	for _, p := range s.joined() {
		if p.says.has(capability) {
			names = append(names, p.name)
		}
	}
	return names
}

// everybody are all members as targets.
func (s *session) everybody() []target { return s.targets(s.names()) }

// gather is askAll for a request of the caller, with the limit of time that holds
// for what is merged. Members that fail are named in the log. It is false if the
// request was stopped; then it has been settled.
func (s *session) gather(c *call, frame []byte, targets []target) ([]reply, bool) {
	ctx, end := context.WithTimeoutCause(c.ctx, s.b.cfg.ListWait, errSlow)
	defer end()
	replies := s.askAll(ctx, frame, targets, c.to)
	if c.ctx.Err() != nil {
		c.stopped()
		return nil, false
	}
	for _, r := range replies {
		if r.err != nil {
			s.leftOut(r.name, c.method, r.err)
		}
	}
	return replies, true
}

// leftOut says once, and again when the reason has changed, that a member is
// missing from an answer.
func (s *session) leftOut(name, method string, err error) {
	level := s.log.Warn
	s.mu.Lock()
	if s.told == nil {
		s.told = make(map[string]string)
	}
	key, reason := name+" "+method, err.Error()
	if errors.Is(err, httpserver.ErrEra) {
		key = name // whatever it is asked
	}
	switch {
	case s.told[key] == reason || lacks(err):
		level = s.log.Debug
	case errors.Is(err, errAway): // why, has been said
		level = s.log.Info
	}
	if len(s.told) < maxMembers*8 {
		s.told[key] = reason
	}
	s.mu.Unlock()
	level("a server was left out of an answer", "server", name, "method", method, "error", reason)
}

// merging is a list that is being put together.
type merging struct {
	s     *session
	what  *list
	body  []byte
	next  []place
	parts int // members that are in it
	ttl   int
	open  bool // cacheScope is public
}

func (m *merging) begin(what *list, s *session) {
	m.what, m.s = what, s
	m.body = append(append(append(m.body, `{"`...), what.member...), `":[`...)
	m.open = true
}

// add puts a member's part behind those before it.
func (m *merging) add(r *reply) error {
	if at, ok, _ := jsonrpc.Member(r.m.Frame, r.m.Result, m.what.member); !ok || jsonrpc.KindAt(r.m.Frame, at) != jsonrpc.ArrayValue {
		return fmt.Errorf("its answer has no array %q", m.what.member)
	}
	if len(m.body)+len(r.m.Frame) > maxMerged {
		return fmt.Errorf("the list would be longer than %d bytes", maxMerged)
	}
	p := readPage(r.m, m.what)
	for _, e := range p.elements {
		if m.body[len(m.body)-1] != '[' {
			m.body = append(m.body, ',')
		}
		if m.what.named {
			m.body = jsonrpc.AppendSplice(m.body, e.raw, prefixed(e.at, r.name))
		} else {
			m.body = append(m.body, e.raw...)
		}
	}
	for _, e := range p.elements {
		m.s.learnElement(m.what, r.name, e.key)
	}
	if p.next != nil {
		if !isCursor(p.next) {
			m.s.log.Warn("the rest of a list is missing: its cursor cannot be passed on", "server", r.name, "bytes", len(p.next))
		} else {
			m.next = append(m.next, place{r.name, p.next})
		}
	}
	if m.parts == 0 || p.ttl < m.ttl {
		m.ttl = p.ttl
	}
	m.open = m.open && p.public
	m.parts++
	return nil
}

// result is the whole list. partial says that members are missing from it, so
// that it is not to be kept.
func (m *merging) result(partial bool) []byte {
	out := append(m.body, ']')
	if len(m.next) > 0 {
		if cursor := appendCursor(nil, m.next); len(cursor) <= maxCursors {
			out = append(append(append(out, `,"nextCursor":"`...), cursor...), '"')
		} else {
			m.s.log.Warn("the rest of a list is missing: its cursors are too long together", "bytes", len(cursor))
		}
	}
	if m.s.era == mcp.Modern {
		scope := "private"
		if m.open && m.parts > 0 {
			scope = "public"
		}
		if partial {
			m.ttl = 0
		}
		out = append(out, `,"resultType":"complete","ttlMs":`...)
		out = strconv.AppendInt(out, int64(max(m.ttl, 0)), 10)
		out = append(append(append(out, `,"cacheScope":"`...), scope...), '"')
	}
	return append(out, '}')
}

// learnElement remembers whose an element is, if that cannot be seen from it.
// What two members list is that of the one that comes first.
func (s *session) learnElement(what *list, name, key string) {
	if what.key == "taskId" {
		s.ownTask(name, key)
		return
	}
	if what.named {
		return
	}
	if was := s.learnt.owner(key); was != "" && was != name {
		names := s.names()
		if i := slices.Index(names, was); i >= 0 && i < slices.Index(names, name) {
			return
		}
	}
	if what.key == "uriTemplate" {
		s.learnt.learnTemplate(key, name)
	} else {
		s.learnt.learn(key, name)
	}
}

// setLevel sets the log level of every member that has one.
func (s *session) setLevel(c *call, frame []byte) {
	targets := s.targets(s.having("logging"))
	if len(targets) == 0 {
		c.failf(mcp.CodeMethodNotFound, "no server has log levels")
		return
	}
	replies, ok := s.gather(c, frame, targets)
	if !ok {
		return
	}
	var failed error
	for _, r := range replies {
		if r.err == nil {
			s.mu.Lock()
			s.level = frame // for members that come later
			s.mu.Unlock()
			c.answer(jsonrpc.AppendResponse(nil, c.id, nil))
			return
		}
		failed = r.err
	}
	if r, ok := errors.AsType[*refusal](failed); ok {
		c.failf(r.code, "%s", r.text)
		return
	}
	c.failf(mcp.CodeInternal, "no server took the log level")
}
