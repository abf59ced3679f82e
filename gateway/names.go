package gateway

import (
	"cmp"
	"maps"
	"slices"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
)

// Callers name their calls in ways of their own: by a trace, by the id of their
// HTTP request, by the id under which a model asked for the tool. These become
// labels of the run, by which it is found and stopped. They are the caller's word
// and decide nothing: a label of the config goes before one of the same name,
// and what is too long for a label is left out, since a name cut short is
// another's. See also below.go, trace.go.

// The labels that callers give.
const (
	labelTrace   = "trace_id"       // 32 hex digits
	labelSpan    = "parent_span_id" // 16 hex digits: the caller's span
	labelToolUse = "tool_use_id"
)

// labelMethod is the label, Belay's own, from which a span takes what kind of call
// it is. Runs that are no spans do without it.
const labelMethod = "method"

// Bounds of a run's labels, as [belay.Spec] takes them.
const (
	maxLabels = 32
	maxLabel  = 256
)

// names are what a call is called, and where it hangs; nil where there is
// nothing to say, which is so for every call unless the config asks for names.
type names struct {
	labels map[string]string // of the run, the config's included; nil: the config's alone
	above  *belay.Run        // the run below which the call hangs; nil: the session's
	placed bool              // the placer said so, not the caller; see placed.go
	hide   bool              // the request names it in _meta
	trace  mcp.Trace         // ID "": it is part of none
	state  string            // the tracestate that goes with it
	carry  bool              // the server knows the state only if it is added to _meta

	elsewhere belay.RunID // the run of another process below which the call hangs; zero: none

	cancel *passing // of the caller, that goes to the server (PassCancels); nil: none
}

// nameLocked reads what the caller calls a call. It reports whether the call may
// go on; if not, it was answered.
func (s *Session) nameLocked(c *call, a *mcp.Arrival, place belay.RunID) bool {
	named := s.cfg.NameRuns || s.cfg.Trace || a.Parent != ""
	if !named && s.cfg.Placer == nil || mcp.Handshaking(c.method) {
		return true
	}
	said := a.ReadNames()
	var n names
	if named {
		n.hide = said.Parents > 0
		var err error
		if n.above, err = s.aboveLocked(a, &said); err != nil {
			s.log.Info("a call was refused for the run that it names as its parent", "call", c.title(), "error", err)
			s.replyLocked(c, jsonrpc.AppendError(nil, c.id, mcp.CodeInvalidParams, err.Error(), nil))
			return false
		}
	}
	n.placeLocked(s, place)
	if s.cfg.NameRuns || s.cfg.Trace {
		n.traceLocked(s, a, &said)
	}
	if s.cfg.NameRuns || s.cfg.Trace || s.cfg.Placer != nil {
		n.label(s.cfg.Labels, a, a.Text(said.ToolUse))
	}
	if s.cfg.Trace {
		n.add(labelMethod, c.method) // there are labels: each call is part of a trace then
	}
	if n.labels != nil || n.above != nil || n.placed || n.hide || n.trace.ID != "" {
		c.names = &n
	}
	return true
}

// label makes the labels of the run. What the request itself says goes before
// what its transport says.
func (n *names) label(config map[string]string, a *mcp.Arrival, toolUse string) {
	if len(a.Labels) == 0 && toolUse == "" && n.trace.ID == "" {
		return
	}
	n.labels = make(map[string]string, len(config)+len(a.Labels)+3)
	maps.Copy(n.labels, config)
	n.add(labelTrace, n.trace.ID)
	n.add(labelSpan, n.trace.Span)
	n.add(labelToolUse, toolUse)
	if len(a.Labels) <= maxLabels-len(n.labels) {
		for k, v := range a.Labels {
			n.add(k, v)
		}
		return
	}
	for _, k := range slices.Sorted(maps.Keys(a.Labels)) { // the same ones each time
		n.add(k, a.Labels[k])
	}
}

// add adds a label that fits and is not there yet.
func (n *names) add(key, value string) {
	key, value = belay.CleanReason(key), belay.CleanReason(value)
	if key == "" || value == "" || len(key) > maxLabel || len(value) > maxLabel || len(n.labels) >= maxLabels {
		return
	}
	if _, ok := n.labels[key]; !ok {
		n.labels[key] = value
	}
}

// runSpec is the part of a run's spec that the names of its call decide.
func (c *call) runSpec(kind belay.Kind, address string) belay.Spec {
	s := c.s
	spec := belay.Spec{
		Kind: kind, Name: c.title(), Server: s.cfg.Name, Owner: s.cfg.Owner, Address: address,
		Labels: s.cfg.Labels, Parent: s.run, Ladder: c.policy.Ladder,
	}
	if n := c.names; n != nil {
		if n.labels != nil {
			spec.Labels = n.labels
		}
		if n.elsewhere.IsZero() {
			spec.Parent = cmp.Or(n.above, s.run)
		} else {
			spec.Parent, spec.ParentID = nil, n.elsewhere
		}
	}
	return spec
}

// nextLeg takes over what the next leg of a call says of itself: its frame is
// another one.
func (c *call) nextLeg(leg *names) {
	if leg == nil {
		if c.names != nil {
			c.names.hide, c.names.state, c.names.carry = false, "", false
		}
		return
	}
	if c.names == nil {
		c.names = &names{}
	}
	c.names.hide, c.names.state, c.names.carry = leg.hide, leg.state, leg.carry
}
