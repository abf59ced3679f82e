package tracing

import (
	"encoding/hex"
	"encoding/json"
	"strconv"
	"time"
)

// scopeName names who made the spans.
const scopeName = "github.com/belayhq/belay/tracing"

// origin is what all spans of this process have in common.
type origin struct {
	service, version string
	more             map[string]string
}

func nanos(t time.Time) uint64 { return uint64(max(t.UnixNano(), 0)) }

// The JSON form of OTLP: ids in hexadecimal, 64-bit numbers as texts.
type (
	jsonRequest struct {
		ResourceSpans []jsonResourceSpans `json:"resourceSpans"`
	}
	jsonResourceSpans struct {
		Resource   jsonResource     `json:"resource"`
		ScopeSpans []jsonScopeSpans `json:"scopeSpans"`
	}
	jsonResource struct {
		Attributes []jsonAttr `json:"attributes"`
	}
	jsonScopeSpans struct {
		Scope jsonScope  `json:"scope"`
		Spans []jsonSpan `json:"spans"`
	}
	jsonScope struct {
		Name    string `json:"name"`
		Version string `json:"version,omitempty"`
	}
	jsonSpan struct {
		Trace  string      `json:"traceId"`
		Span   string      `json:"spanId"`
		Parent string      `json:"parentSpanId,omitempty"`
		Name   string      `json:"name"`
		Kind   int         `json:"kind"`
		Start  string      `json:"startTimeUnixNano"`
		End    string      `json:"endTimeUnixNano"`
		Attrs  []jsonAttr  `json:"attributes,omitempty"`
		Events []jsonEvent `json:"events,omitempty"`
		Status jsonStatus  `json:"status"`
	}
	jsonEvent struct {
		Time  string     `json:"timeUnixNano"`
		Name  string     `json:"name"`
		Attrs []jsonAttr `json:"attributes,omitempty"`
	}
	jsonStatus struct {
		Message string `json:"message,omitempty"`
		Code    int    `json:"code,omitempty"`
	}
	jsonAttr struct {
		Key   string    `json:"key"`
		Value jsonValue `json:"value"`
	}
	jsonValue struct {
		Text   *string `json:"stringValue,omitempty"`
		Number string  `json:"intValue,omitempty"`
		Bool   *bool   `json:"boolValue,omitempty"`
	}
)

// json is an ExportTraceServiceRequest with the spans.
func (o *origin) json(spans []*span) []byte {
	list := make([]jsonSpan, len(spans))
	for i, s := range spans {
		list[i] = s.json()
	}
	b, err := json.Marshal(jsonRequest{[]jsonResourceSpans{{
		Resource:   jsonResource{jsonAttrs(o.attrs())},
		ScopeSpans: []jsonScopeSpans{{Scope: jsonScope{scopeName, o.version}, Spans: list}},
	}}})
	if err != nil {
		panic(err) // texts and numbers always marshal
	}
	return b
}

func (s *span) json() jsonSpan {
	j := jsonSpan{
		Trace: hex.EncodeToString(s.trace[:]), Span: hex.EncodeToString(s.id[:]), Name: s.name, Kind: s.kind,
		Start: jsonTime(s.start), End: jsonTime(s.end), Attrs: jsonAttrs(s.attrs),
	}
	if s.parent != [8]byte{} {
		j.Parent = hex.EncodeToString(s.parent[:])
	}
	for i := range s.events {
		e := &s.events[i]
		j.Events = append(j.Events, jsonEvent{jsonTime(e.at), e.name, jsonAttrs(e.attrs)})
	}
	if s.err != "" {
		j.Status = jsonStatus{s.err, statusError}
	}
	return j
}

func jsonTime(t time.Time) string { return strconv.FormatUint(nanos(t), 10) }

func jsonAttrs(attrs []attr) []jsonAttr {
	list := make([]jsonAttr, len(attrs))
	for i := range attrs {
		a := &attrs[i]
		list[i].Key = a.name
		switch v := &list[i].Value; a.kind {
		case isNumber:
			v.Number = strconv.FormatInt(a.num, 10)
		case isBool:
			on := a.num != 0
			v.Bool = &on
		default:
			v.Text = &a.text
		}
	}
	return list
}

// rejectedJSON is rejectedProtobuf for the JSON form, whose numbers may be texts.
func rejectedJSON(b []byte) int64 {
	var answer struct {
		Partial struct {
			Rejected json.RawMessage `json:"rejectedSpans"`
		} `json:"partialSuccess"`
	}
	if json.Unmarshal(b, &answer) != nil {
		return 0
	}
	text := string(answer.Partial.Rejected)
	if plain, err := strconv.Unquote(text); err == nil {
		text = plain
	}
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}
