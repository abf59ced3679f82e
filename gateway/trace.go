package gateway

import (
	"slices"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
)

// W3C trace context passes through Belay as through any other hop: the server
// gets the caller's trace with the call's run as the span above, and the caller's
// flags; tracestate is passed on as it is. What the request says in _meta goes
// before the headers of its exchange, and a traceparent that is malformed is none.
//
// Where the caller begins no trace, Belay does: the id of the trace is that of the
// nearest run above that has a label trace_id, else the 16 bytes of the topmost
// run's id. What all runs of one tree have in common is so seen at a glance.

// traceLocked finds the trace that a call is part of.
func (n *names) traceLocked(s *Session, a *mcp.Arrival, said *mcp.Names) {
	state := a.Text(said.Tracestate)
	if t, ok := mcp.ParseTraceparent(a.Text(said.Traceparent)); ok {
		n.trace = t
	} else if t, ok := mcp.ParseTraceparent(a.Traceparent); ok {
		n.trace = t
		if !said.Tracestate.Ok() {
			state, n.carry = a.Tracestate, true
		}
	}
	switch {
	case !s.cfg.Trace:
	case n.trace.ID == "": // a state without its parent says nothing
		n.trace, n.carry = mcp.Trace{ID: s.traceIDLocked(n.above), Flags: "01"}, false
	case mcp.ValidTracestate(state):
		n.state = state
		return
	}
	n.carry = false
}

// traceIDLocked is the trace of a call whose caller names none.
func (s *Session) traceIDLocked(above *belay.Run) string {
	if above != nil {
		return traceOf(s.tree, above)
	}
	if s.traceID == "" {
		s.traceID = traceOf(s.tree, s.run)
	}
	return s.traceID
}

// maxAbove bounds how far up a trace is looked for.
const maxAbove = 100

// traceOf is the trace that a run belongs to.
func traceOf(tree *belay.Tree, run *belay.Run) string {
	var info belay.Info
	for range maxAbove {
		info = run.Info()
		if id := info.Labels[labelTrace]; mcp.ValidTraceID(id) {
			return id
		}
		above, err := tree.Run(info.Parent)
		if err != nil {
			break // none, or one that another process holds
		}
		run = above
	}
	return mcp.TraceID(info.ID)
}

// spanMembers are what goes into a request's _meta.
func (c *call) spanMembers(add []mcp.MetaMember) []mcp.MetaMember {
	if !c.traced() {
		return add
	}
	add = append(add, mcp.MetaMember{Key: mcp.MetaTraceparent, Value: quoted(c.names.trace.Traceparent(c.run.ID()))})
	if c.names.carry {
		add = append(add, mcp.MetaMember{Key: mcp.MetaTracestate, Value: quoted(c.names.state)})
	}
	return add
}

// spanHeaders are the headers of a request to a server that is reached by HTTP.
func (c *call) spanHeaders(params []mcp.HeaderParam) []mcp.HeaderParam {
	if !c.traced() {
		return params
	}
	params = append(slices.Clip(params), mcp.HeaderParam{Name: "Traceparent", Value: c.names.trace.Traceparent(c.run.ID())})
	if c.names.state != "" {
		params = append(params, mcp.HeaderParam{Name: "Tracestate", Value: c.names.state})
	}
	return params
}

// traced reports whether the server is told of the call's span.
func (c *call) traced() bool {
	return c.s.cfg.Trace && c.run != nil && c.names != nil && c.names.trace.ID != ""
}

func quoted(s string) []byte { return jsonrpc.AppendString(make([]byte, 0, len(s)+2), s) }
