package tracing

import (
	"strconv"
	"strings"
	"time"

	"github.com/belayhq/belay"
)

// Names of attributes and events. Those of MCP and of generative AI are of
// OpenTelemetry's conventions, which are still in development; they stand here
// so that a change there is one line.
const (
	attrMethod    = "mcp.method.name"
	attrRequest   = "jsonrpc.request.id"
	attrTool      = "gen_ai.tool.name"
	attrPrompt    = "gen_ai.prompt.name"
	attrOperation = "gen_ai.operation.name"
	attrError     = "error.type"

	attrRun       = "belay.run.id"
	attrParent    = "belay.run.parent" // the run above, where that is in another trace
	attrKind      = "belay.run.kind"
	attrServer    = "belay.run.server"
	attrOutcome   = "belay.run.outcome"
	attrWork      = "belay.run.work"
	attrStop      = "belay.stop.id"
	attrCause     = "belay.stop.cause"
	attrVerdict   = "belay.stop.verdict"
	attrScope     = "belay.stop.scope"
	attrSurvivors = "belay.stop.survivors"
	attrLate      = "belay.stop.late_results"
	attrHeld      = "belay.stop.held"

	attrEvidence = "belay.evidence.kind"
	attrReach    = "belay.evidence.scope"
	attrFailed   = "belay.step.failed"
)

// Kinds of spans and status codes, as OTLP numbers them.
const (
	kindInternal = 1
	kindServer   = 2
	statusError  = 2
)

// span is one run as it is sent.
type span struct {
	place
	id         [8]byte
	name       string
	kind       int
	start, end time.Time
	attrs      []attr
	events     []event
	err        string // empty: no error
}

// attr is an attribute; its value is a text, a number or a truth.
type attr struct {
	name string
	text string
	num  int64
	kind valueKind
}

type valueKind uint8

const (
	isText valueKind = iota
	isNumber
	isBool
)

// text makes an attribute that a receiver can read: one text that is not UTF-8
// makes it refuse all spans of a batch.
func text(name, v string) attr       { return attr{name: name, text: strings.ToValidUTF8(v, "\uFFFD")} }
func number(name string, n int) attr { return attr{name: name, num: int64(n), kind: isNumber} }
func truth(name string) attr         { return attr{name: name, num: 1, kind: isBool} }

type event struct {
	at    time.Time
	name  string
	attrs []attr
}

// spanOf makes the span of a run that is over.
func spanOf(i *belay.Info, r *belay.Receipt, p place) *span {
	s := &span{place: p, id: SpanID(i.ID), kind: kindInternal, start: i.Started, end: i.Ended}
	if s.end.IsZero() || s.end.Before(s.start) {
		s.end = s.start
	}
	if i.Kind == belay.KindCall || i.Kind == belay.KindTask {
		s.kind = kindServer
	}
	s.attrs = append(make([]attr, 0, 12), text(attrRun, i.ID.String()), text(attrKind, string(i.Kind)),
		text(attrOutcome, string(i.Outcome)), text(attrWork, string(i.Work)))
	if i.Server != "" {
		s.attrs = append(s.attrs, text(attrServer, i.Server))
	}
	if !i.Parent.IsZero() && p.parent != SpanID(i.Parent) {
		s.attrs = append(s.attrs, text(attrParent, i.Parent.String()))
	}
	s.call(i)
	s.name = strings.ToValidUTF8(s.name, "\uFFFD")
	s.stopped(i, r)
	s.status(i, r)
	return s
}

// call names the span and says what was called.
func (s *span) call(i *belay.Info) {
	method := i.Labels[LabelMethod]
	if method == "" {
		s.name = string(i.Kind) + " " + i.Name
		return
	}
	s.attrs = append(s.attrs, text(attrMethod, method))
	s.name = method
	switch target := i.Name; {
	case target == method: // it names nothing more exactly
	case method == "tools/call":
		s.name += " " + target
		s.attrs = append(s.attrs, text(attrTool, target), text(attrOperation, "execute_tool"))
	case method == "prompts/get":
		s.name += " " + target
		s.attrs = append(s.attrs, text(attrPrompt, target))
	}
	if i.Kind == belay.KindCall && i.Address != "" {
		s.attrs = append(s.attrs, text(attrRequest, requestID(i.Address)))
	}
}

// requestID is the text of a JSON-RPC id: that of a JSON string, or the number.
func requestID(raw string) string {
	if strings.HasPrefix(raw, `"`) {
		if plain, err := strconv.Unquote(raw); err == nil {
			return plain
		}
	}
	return raw
}

// stopped adds what a Stop did. Reasons, names of persons and texts of steps
// are left out: they are people's own.
func (s *span) stopped(i *belay.Info, r *belay.Receipt) {
	c := i.Cancellation
	if c == nil {
		return
	}
	s.attrs = append(s.attrs, text(attrStop, c.Stop.String()), text(attrCause, string(c.Cause)))
	if r == nil { // its events were missed, and nobody knows it any more
		s.attrs = append(s.attrs, text(attrVerdict, string(i.Verdict)))
		s.events = append(s.events, event{at: c.At, name: stepName(belay.StepRequested)})
		return
	}
	s.attrs = append(s.attrs, text(attrVerdict, string(r.Verdict)))
	if r.Scope != "" {
		s.attrs = append(s.attrs, text(attrScope, string(r.Scope)))
	}
	if n := len(r.Survivors); n > 0 {
		s.attrs = append(s.attrs, number(attrSurvivors, n))
	}
	if r.Late > 0 {
		s.attrs = append(s.attrs, number(attrLate, r.Late))
	}
	if r.Held != "" {
		s.attrs = append(s.attrs, truth(attrHeld))
	}
	for n := range r.Steps {
		s.events = append(s.events, stepEvent(&r.Steps[n]))
	}
}

func stepName(m belay.Means) string { return "belay.stop." + string(m) }

func stepEvent(step *belay.Step) event {
	e := event{at: step.At, name: stepName(step.Step)}
	if v := step.Evidence; v != nil {
		e.attrs = append(e.attrs, text(attrEvidence, string(v.Kind)))
		if v.Scope != "" {
			e.attrs = append(e.attrs, text(attrReach, string(v.Scope)))
		}
	}
	if step.Error != "" {
		e.attrs = append(e.attrs, truth(attrFailed))
	}
	return e
}

// status is an error where somebody should look: a run that failed or was lost,
// and a Stop that was not shown to have worked.
func (s *span) status(i *belay.Info, r *belay.Receipt) {
	switch {
	case i.Outcome == belay.Failed, i.Outcome == belay.Lost:
		s.err = string(i.Outcome)
	case i.Cancellation == nil:
		return
	case r != nil && r.OK(), r == nil && i.Verdict == belay.Confirmed:
		return
	default:
		s.err = "stop_not_confirmed"
	}
	s.attrs = append(s.attrs, text(attrError, s.err))
}
