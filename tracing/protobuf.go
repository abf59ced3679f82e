package tracing

import (
	"sort"

	"google.golang.org/protobuf/encoding/protowire"
)

// The numbers of the fields are those of opentelemetry/proto/trace/v1,
// common/v1 and resource/v1, which are stable.

// appendMessage appends a field that is a message, written by body.
func appendMessage(b []byte, field protowire.Number, body func([]byte) []byte) []byte {
	inner := body(nil)
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), inner)
}

func appendText(b []byte, field protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
}

func appendBytes(b []byte, field protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), v)
}

func appendNumber(b []byte, field protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}

func appendTime(b []byte, field protowire.Number, nanos uint64) []byte {
	return protowire.AppendFixed64(protowire.AppendTag(b, field, protowire.Fixed64Type), nanos)
}

// protobuf is an ExportTraceServiceRequest with the spans.
func (o *origin) protobuf(spans []*span) []byte {
	return appendMessage(nil, 1, func(b []byte) []byte { // resource_spans
		b = appendMessage(b, 1, func(b []byte) []byte { return appendAttrs(b, 1, o.attrs()) }) // resource
		return appendMessage(b, 2, func(b []byte) []byte {                                     // scope_spans
			b = appendMessage(b, 1, func(b []byte) []byte { // scope
				b = appendText(b, 1, scopeName)
				return appendText(b, 2, o.version)
			})
			for _, s := range spans {
				b = appendMessage(b, 2, s.appendProtobuf)
			}
			return b
		})
	})
}

func (s *span) appendProtobuf(b []byte) []byte {
	b = appendBytes(b, 1, s.trace[:])
	b = appendBytes(b, 2, s.id[:])
	if s.parent != [8]byte{} {
		b = appendBytes(b, 4, s.parent[:])
	}
	b = appendText(b, 5, s.name)
	b = appendNumber(b, 6, uint64(s.kind))
	b = appendTime(b, 7, nanos(s.start))
	b = appendTime(b, 8, nanos(s.end))
	b = appendAttrs(b, 9, s.attrs)
	for i := range s.events {
		e := &s.events[i]
		b = appendMessage(b, 11, func(b []byte) []byte {
			b = appendTime(b, 1, nanos(e.at))
			b = appendText(b, 2, e.name)
			return appendAttrs(b, 3, e.attrs)
		})
	}
	if s.err != "" {
		b = appendMessage(b, 15, func(b []byte) []byte {
			b = appendText(b, 2, s.err)
			return appendNumber(b, 3, statusError)
		})
	}
	return b
}

func appendAttrs(b []byte, field protowire.Number, attrs []attr) []byte {
	for i := range attrs {
		a := &attrs[i]
		b = appendMessage(b, field, func(b []byte) []byte {
			b = appendText(b, 1, a.name)
			return appendMessage(b, 2, func(b []byte) []byte {
				switch a.kind {
				case isNumber:
					return appendNumber(b, 3, uint64(a.num))
				case isBool:
					return appendNumber(b, 2, uint64(a.num))
				}
				return appendText(b, 1, a.text)
			})
		})
	}
	return b
}

// rejected reads how many spans an ExportTraceServiceResponse says were not
// taken; what it cannot read rejects nothing.
func rejectedProtobuf(b []byte) int64 {
	inner := field(b, 1) // partial_success
	for len(inner) > 0 {
		num, kind, n := protowire.ConsumeTag(inner)
		if n < 0 {
			return 0
		}
		if num == 1 && kind == protowire.VarintType {
			v, n := protowire.ConsumeVarint(inner[n:])
			if n < 0 {
				return 0
			}
			return int64(v)
		}
		skip := protowire.ConsumeFieldValue(num, kind, inner[n:])
		if skip < 0 {
			return 0
		}
		inner = inner[n+skip:]
	}
	return 0
}

// field is the content of the first message with that number, or nil.
func field(b []byte, want protowire.Number) []byte {
	for len(b) > 0 {
		num, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil
		}
		if num == want && kind == protowire.BytesType {
			v, n := protowire.ConsumeBytes(b[n:])
			if n < 0 {
				return nil
			}
			return v
		}
		skip := protowire.ConsumeFieldValue(num, kind, b[n:])
		if skip < 0 {
			return nil
		}
		b = b[n+skip:]
	}
	return nil
}

// attrs are those of the resource, in a steady order.
func (o *origin) attrs() []attr {
	all := []attr{text("service.name", o.service)}
	names := make([]string, 0, len(o.more))
	for name := range o.more {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		all = append(all, text(name, o.more[name]))
	}
	if _, ok := o.more["service.version"]; !ok && o.version != "" {
		all = append(all, text("service.version", o.version))
	}
	return all
}
