// Package tracing turns runs into OpenTelemetry spans and sends them to a
// receiver.
//
// # Model
//
// A run is a span. Its id is [SpanID], the last 8 bytes of the run's id; its
// trace is the label trace_id, else that of the run above it, else, at the top,
// [TraceID], the 16 bytes of the run's own id. Whoever passes a trace context on
// to a tool uses the same rule, so that what the tool sends fits below the run.
// The parent is the run above where that is in the same trace, else the label
// parent_span_id, which with trace_id a caller's traceparent gave.
//
// [New] watches a [belay.Control]. When a run is over its span is made at one
// go, from the run and its receipt: nothing is measured on the way of a call.
// The steps of a Stop are the span's events, with their own times and the kind
// of what was seen. The status is an error for runs that failed or were lost,
// and for those that were stopped without it being shown that they did: see
// [belay.Receipt.OK].
//
// [Config], read from the standard OTEL_ variables by [FromEnv], says where
// spans go: to an OTLP receiver over HTTP, or as lines of JSON to a console.
// Unless an exporter or an endpoint is set, tracing is off. A value that is not
// supported is an error.
//
// # Guarantees
//
//   - A receiver that is slow, refuses, hangs or is not there delays nobody but
//     the export. Spans wait in a queue with a bound; those for which there is
//     no room, and those that were refused or tried for too long, are dropped
//     and counted ([Stats]), and the log says so, once a minute at most.
//   - A tracer that is too slow for the runs loses events; they are counted as
//     missed when the next event shows the gap. Their spans are lost; no span is
//     wrong for it.
//   - Privacy: no arguments, no results, no reasons, no texts of steps or errors,
//     no labels, no owners and nobody's name are sent. Names of tools and
//     servers, ids of runs and requests, times, and words from closed sets are.
//   - Close sends what waits, within the time of its context.
package tracing
