package aggregate

import (
	"bytes"
	"errors"
	"slices"
	"strings"

	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
	"github.com/belayhq/belay/mcp/httpserver"
)

// codeNoResource is the legacy code for a resource that nobody has; the modern
// one is that of bad parameters.
const codeNoResource = -32002

// maxBackground bounds the requests of a session that are being worked on here:
// lists, and those whose member has to be found or reached first.
const maxBackground = 10_000

// route sends a request on its way.
func (s *session) route(c *call, a *mcp.Arrival) {
	if s.tooEarly(c) {
		c.failf(mcp.CodeInvalidRequest, "begin with initialize")
		return
	}
	switch c.method {
	case mcp.MethodInitialize:
		s.initialize(c, a.Message)
	case mcp.MethodPing:
		if s.era == mcp.Modern {
			c.failf(mcp.CodeMethodNotFound, "there is no ping in this revision")
			return
		}
		c.answer(jsonrpc.AppendResponse(nil, c.id, nil))
	case mcp.MethodDiscover:
		s.keep(c, a, s.discover)
	case mcp.MethodListTools, methodListPrompts, methodListResources, methodListTemplates, methodListTasks:
		s.keep(c, a, s.list)
	case mcp.MethodCallTool, methodGetPrompt:
		s.byName(c, a, a.Message.Params)
	case methodReadResource, mcp.MethodSubscribe, mcp.MethodUnsubscribe:
		s.byURI(c, a, "uri")
	case methodComplete:
		s.byReference(c, a)
	case mcp.MethodSetLevel:
		s.keep(c, a, s.setLevel)
	case mcp.MethodGetTask, methodTaskResult, mcp.MethodCancelTask, methodUpdateTask:
		s.byTask(c, a)
	case mcp.MethodListen:
		s.keep(c, a, s.listen)
	default:
		s.unknown(c, a)
	}
}

// tooEarly reports whether a legacy caller asks before it has said hello.
func (s *session) tooEarly(c *call) bool {
	if s.era == mcp.Modern || c.method == mcp.MethodInitialize || c.method == mcp.MethodPing {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hello == nil
}

// background does something for a call in a goroutine of its own.
func (s *session) background(c *call, f func()) {
	switch {
	case s.busy.Add(1) > maxBackground:
		s.busy.Add(-1)
		c.failf(mcp.CodeInternal, "more than %d requests are being worked on", maxBackground)
	case !s.goes(func() { defer s.busy.Add(-1); f() }):
		s.busy.Add(-1)
		c.failf(mcp.CodeInternal, "Belay is ending this session")
	}
}

// keep works on a copy of the request in the background.
func (s *session) keep(c *call, a *mcp.Arrival, f func(*call, []byte)) {
	frame := bytes.Clone(a.Frame)
	s.background(c, func() { f(c, frame) })
}

// byName sends tools/call and prompts/get to the server in the name.
func (s *session) byName(c *call, a *mcp.Arrival, in jsonrpc.Span) {
	at, _, err := jsonrpc.Member(a.Frame, in, "name")
	name := textAt(a.Frame, at, maxName)
	if err != nil || name == "" {
		c.failf(mcp.CodeInvalidParams, "the name must be there once, and a string")
		return
	}
	names := s.names()
	server := owner(name, names)
	if server == "" {
		c.failf(mcp.CodeInvalidParams, "nothing is called %.200q; names begin with that of a server and %s; the servers are %s", name, separator, strings.Join(names, ", "))
		return
	}
	s.to(c, a, server, unprefixed(a.Frame, at, name, server))
}

// byURI sends a request to the server that has the resource.
func (s *session) byURI(c *call, a *mcp.Arrival, path ...string) {
	uri, ok := s.textOf(a, path...)
	if !ok {
		c.failf(mcp.CodeInvalidParams, "the URI must be there once, and a string of at most %d bytes", maxName)
		return
	}
	if server := s.listed(uri); server != "" {
		s.to(c, a, server)
		return
	}
	own, ok := copied(a)
	if !ok {
		c.failf(mcp.CodeInternal, unreadable)
		return
	}
	s.background(c, func() {
		server := s.find(c, uri)
		switch {
		case c.ctx.Err() != nil:
			c.stopped()
		case server != "":
			s.carry(c, server, own)
		case s.era == mcp.Modern:
			c.answer(jsonrpc.AppendError(nil, c.id, mcp.CodeInvalidParams, "no server has this resource", uriData(uri)))
		default:
			c.answer(jsonrpc.AppendError(nil, c.id, codeNoResource, "Resource not found", uriData(uri)))
		}
	})
}

func uriData(uri string) []byte {
	return append(jsonrpc.AppendString([]byte(`{"uri":`), uri), '}')
}

// textOf is a string in the request's parameters.
func (s *session) textOf(a *mcp.Arrival, path ...string) (string, bool) {
	at, ok, err := jsonrpc.Path(a.Frame, a.Message.Params, path...)
	text := textAt(a.Frame, at, maxName)
	return text, ok && err == nil && text != ""
}

// listed is the server that is known to have a resource; "" if none is.
func (s *session) listed(uri string) string {
	names := s.names()
	if len(names) == 1 {
		return names[0]
	}
	if server := s.learnt.owner(uri); slices.Contains(names, server) {
		return server
	}
	return ""
}

// find looks through the lists of all members for a resource, and then at what
// their templates begin with.
func (s *session) find(c *call, uri string) string {
	s.scan(c.ctx, func() bool { return s.listed(uri) != "" })
	if server := s.listed(uri); server != "" {
		return server
	}
	names := s.names()
	return s.learnt.likely(uri, func(server string) bool { return slices.Contains(names, server) })
}

// byReference sends completion/complete to the server of the prompt, resource or
// template that it is about.
func (s *session) byReference(c *call, a *mcp.Arrival) {
	ref, _, err := jsonrpc.Member(a.Frame, a.Message.Params, "ref")
	at, _, kindErr := jsonrpc.Member(a.Frame, ref, "type")
	switch kind := textAt(a.Frame, at, 64); {
	case err != nil || kindErr != nil:
		c.failf(mcp.CodeInvalidParams, "the reference is there twice")
	case kind == "ref/prompt":
		s.byName(c, a, ref)
	case kind == "ref/resource":
		s.byURI(c, a, "ref", "uri")
	default:
		c.failf(mcp.CodeInvalidParams, "a reference must be of type ref/prompt or ref/resource")
	}
}

// byTask sends a request to the server that made the task. To others the task
// does not exist (MCP-83, MCP-G38).
func (s *session) byTask(c *call, a *mcp.Arrival) {
	task, ok := s.textOf(a, "taskId")
	if !ok {
		c.failf(mcp.CodeInvalidParams, "params.taskId must be there once, and a string")
		return
	}
	s.mu.Lock()
	server, known := s.tasks.get(task)
	s.mu.Unlock()
	if names := s.names(); !known && len(names) == 1 {
		server, known = names[0], true // it knows best
	}
	if !known {
		c.failf(mcp.CodeInvalidParams, "unknown task")
		return
	}
	s.to(c, a, server)
}

// unknown passes on what this version does not know, where there is no doubt to
// whom.
func (s *session) unknown(c *call, a *mcp.Arrival) {
	names := s.names()
	if len(names) != 1 {
		c.failf(mcp.CodeMethodNotFound, "method %.200q is not known here, and could be for any of %d servers", c.method, len(names))
		return
	}
	s.to(c, a, names[0])
}

// to gives a request to one member, with edits: at once where that is there,
// else as soon as it is.
func (s *session) to(c *call, a *mcp.Arrival, server string, edits ...jsonrpc.Edit) {
	on := s.near(server)
	if on != nil && len(edits) == 0 {
		c.hand(server, on, *a)
		return
	}
	own, ok := copied(a, edits...)
	if !ok {
		c.failf(mcp.CodeInternal, unreadable)
		return
	}
	if on != nil {
		c.hand(server, on, own)
		return
	}
	s.background(c, func() { s.carry(c, server, own) })
}

// unreadable should never be said: what is read again was read before.
const unreadable = "the request could not be read again"

// copied is an arrival that may be kept: with a message of its own, in which the
// edits are made, and what its headers said.
func copied(a *mcp.Arrival, edits ...jsonrpc.Edit) (mcp.Arrival, bool) {
	m, err := edited(a.Frame, func(*mcp.Message) []jsonrpc.Edit { return edits })
	own := *a
	own.Message, own.Params = m, slices.Clone(a.Params)
	return own, err == nil
}

// carry gives a request to a member that has to be reached first.
func (s *session) carry(c *call, server string, a mcp.Arrival) {
	on, err := s.reach(c.ctx, server)
	switch {
	case c.ctx.Err() != nil:
		c.stopped()
	case err == nil:
		c.hand(server, on, a)
	case errors.Is(err, errUnknown):
		c.failf(mcp.CodeInvalidParams, "there is no server %q any more", server)
	case errors.Is(err, httpserver.ErrEra):
		c.failf(mcp.CodeInvalidParams, "server %q does not speak this protocol era", server)
	default:
		s.leftOut(server, c.method, err)
		c.failf(mcp.CodeInternal, "server %q cannot be reached", server)
	}
}
