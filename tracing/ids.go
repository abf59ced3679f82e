package tracing

import (
	"encoding/binary"
	"encoding/hex"

	"github.com/belayhq/belay"
)

// Labels of runs that say where a run belongs. Whoever registers runs sets them
// from a caller's traceparent.
const (
	LabelTrace  = "trace_id"       // 32 lower-case hexadecimal digits
	LabelParent = "parent_span_id" // 16 of them; only with trace_id
	LabelFlags  = "trace_flags"    // 2 of them; without it a trace counts as sampled
	LabelMethod = "method"         // the protocol's method, such as tools/call
)

// TraceID is the trace of a run that has none above it and no label.
func TraceID(id belay.RunID) [16]byte { return id }

// SpanID is the id of a run's span.
func SpanID(id belay.RunID) [8]byte { return [8]byte(id[8:]) }

// place is where a span belongs.
type place struct {
	trace     [16]byte
	parent    [8]byte // zero: none
	unsampled bool    // the caller's context says so
	foreign   bool    // the parent is the caller's span
}

// labelled is the place that the run's own labels name, if they do.
func labelled(labels map[string]string) (p place, ok bool) {
	if !digits(p.trace[:], labels[LabelTrace]) || p.trace == [16]byte{} {
		return place{}, false
	}
	if digits(p.parent[:], labels[LabelParent]) {
		p.foreign = p.parent != [8]byte{}
	} else {
		p.parent = [8]byte{}
	}
	var flags [1]byte
	p.unsampled = digits(flags[:], labels[LabelFlags]) && flags[0]&1 == 0
	return p, true
}

// digits decodes exactly len(to) bytes.
func digits(to []byte, text string) bool {
	if len(text) != 2*len(to) {
		return false
	}
	_, err := hex.Decode(to, []byte(text))
	return err == nil
}

// Sampler says which spans are kept.
type Sampler struct {
	Parent bool    // a caller's decision counts where there is one
	Ratio  float64 // of all traces; the same traces for everyone who uses the same ratio
}

// keeps reports whether the span is to be sent. All spans of a trace that have
// no caller's decision are judged by the trace alone, and so alike.
func (s *Sampler) keeps(p *place) bool {
	switch {
	case s.Parent && p.foreign:
		return !p.unsampled
	case s.Ratio >= 1:
		return true
	case s.Ratio <= 0:
		return false
	}
	return binary.BigEndian.Uint64(p.trace[8:])>>1 < uint64(s.Ratio*(1<<63))
}
