package httpserver

import (
	"encoding/base64"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
)

// Headers of the protocol, in the spelling of net/http's maps.
const (
	headerVersion = "Mcp-Protocol-Version"
	headerSession = "Mcp-Session-Id"
	headerMethod  = "Mcp-Method"
	headerName    = "Mcp-Name"
	headerParam   = "Mcp-Param-"
	headerLast    = "Last-Event-Id"
)

// maxParams bounds the headers that are passed on with one message.
const maxParams = 64

// Members of _meta that this transport checks.
const metaCapabilities = "io.modelcontextprotocol/clientCapabilities"

var noID jsonrpc.ID

// header is the first value of a header whose name is in canonical spelling.
func header(r *http.Request, name string) string {
	if values := r.Header[name]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// modernVersion reports whether a version is a date from the first modern
// revision on. What is no date makes no caller modern.
func modernVersion(version string) bool {
	if len(version) != len(mcp.Revision26) || version < mcp.Revision26 {
		return false
	}
	for i := range len(version) {
		if (i == 4 || i == 7) != (version[i] == '-') || version[i] != '-' && (version[i] < '0' || version[i] > '9') {
			return false
		}
	}
	return true
}

// checkVersion compares the version in the header with that in _meta of a
// modern message (MCP-57, MCP-58, MCP-60).
func (h *Handler) checkVersion(r *http.Request, m *mcp.Message) *failure {
	values := r.Header[headerVersion]
	meta := metaText(m, m.Version)
	switch {
	case len(values) == 0:
		return headerFailure(m, "header MCP-Protocol-Version is missing")
	case len(values) > 1:
		return headerFailure(m, "header MCP-Protocol-Version is there %d times", len(values))
	case meta == "" && m.Kind == jsonrpc.Notification && !m.Version.Ok():
		meta = values[0] // only requests have to carry _meta
	case meta == "":
		return fail(http.StatusBadRequest, codeInvalidParams, m.ID, "params._meta must have io.modelcontextprotocol/protocolVersion as a string")
	}
	if values[0] != meta {
		return headerFailure(m, "header MCP-Protocol-Version is %.64q, _meta says %.64q", values[0], meta)
	}
	if meta != mcp.Revision26 {
		return versionFailure(m.ID, h.cfg.Supported, meta)
	}
	return nil
}

// checkHeaders compares the headers that repeat parts of the body with the body
// (MCP-59, MCP-60, MCP-84), and looks for what _meta must have (MCP-57).
func checkHeaders(r *http.Request, m *mcp.Message) *failure {
	if f := checkMethod(r, m); f != nil || m.Kind != jsonrpc.Request {
		return f
	}
	if key := nameKey(m.Method); key != "" {
		if f := checkName(r, m, key); f != nil {
			return f
		}
	}
	at, ok, err := jsonrpc.Member(m.Frame, m.Meta, metaCapabilities)
	if err != nil || !ok || jsonrpc.KindAt(m.Frame, at) != jsonrpc.ObjectValue {
		return fail(http.StatusBadRequest, codeInvalidParams, m.ID, "params._meta must have %s as an object", metaCapabilities)
	}
	return nil
}

func checkMethod(r *http.Request, m *mcp.Message) *failure {
	values := r.Header[headerMethod]
	switch {
	case len(values) == 0 && m.Kind == jsonrpc.Notification:
		return nil
	case len(values) == 0:
		return headerFailure(m, "header Mcp-Method is missing")
	case len(values) > 1:
		return headerFailure(m, "header Mcp-Method is there %d times", len(values))
	case values[0] != m.Method:
		return headerFailure(m, "header Mcp-Method is %.64q, the body says %.64q", values[0], m.Method)
	}
	return nil
}

// nameKey is the member of params that Mcp-Name repeats, "" where there is none.
func nameKey(method string) string {
	switch method {
	case mcp.MethodCallTool, "prompts/get":
		return "name"
	case "resources/read":
		return "uri"
	case mcp.MethodGetTask, "tasks/update", mcp.MethodCancelTask:
		return "taskId"
	}
	return ""
}

func checkName(r *http.Request, m *mcp.Message, key string) *failure {
	values := r.Header[headerName]
	switch len(values) {
	case 0:
		return headerFailure(m, "header Mcp-Name is missing")
	case 1:
	default:
		return headerFailure(m, "header Mcp-Name is there %d times", len(values))
	}
	name, ok := DecodeHeader(values[0])
	if !ok {
		return headerFailure(m, "header Mcp-Name %.64q is no valid =?base64?…?=", values[0])
	}
	at := m.Name
	if key != "name" {
		at, _, _ = jsonrpc.Member(m.Frame, m.Params, key)
	}
	if !sameText(m.Frame, at, name) {
		return headerFailure(m, "header Mcp-Name is %.64q, params.%s is %.64s", name, key, at.Of(m.Frame))
	}
	return nil
}

// sameText reports whether the value at s is the string text.
func sameText(frame []byte, s jsonrpc.Span, text string) bool {
	raw := s.Of(frame)
	if len(raw) < 2 || raw[0] != '"' {
		return false
	}
	if string(raw[1:len(raw)-1]) == text && strings.IndexByte(text, '\\') < 0 {
		return true
	}
	decoded, err := jsonrpc.ReadString(frame, s, len(raw))
	return err == nil && decoded == text
}

// DecodeHeader reads a header value that repeats a part of a body: as it is, or
// as =?base64?…?= where it could not be written as it is (MCP-59). It is false
// when that form holds no base64 of UTF-8 text.
func DecodeHeader(value string) (string, bool) {
	const prefix, suffix = "=?base64?", "?="
	if !strings.HasPrefix(value, prefix) || !strings.HasSuffix(value, suffix) || len(value) < len(prefix)+len(suffix) {
		return value, true
	}
	text, err := base64.StdEncoding.Strict().DecodeString(value[len(prefix) : len(value)-len(suffix)])
	if err != nil || !utf8.Valid(text) {
		return "", false
	}
	return string(text), true
}

// params are the headers that belong to the message and go on with it (MCP-61).
func params(r *http.Request) (list []mcp.HeaderParam, ok bool) {
	for name, values := range r.Header {
		if !strings.HasPrefix(name, headerParam) {
			continue
		}
		for _, value := range values {
			if len(list) == maxParams {
				return nil, false
			}
			list = append(list, mcp.HeaderParam{Name: name, Value: value})
		}
	}
	return list, true
}

func headerFailure(m *mcp.Message, format string, args ...any) *failure {
	return fail(http.StatusBadRequest, codeHeader, m.ID, format, args...)
}

// metaText is a short string of a message, "" if it is none.
func metaText(m *mcp.Message, at jsonrpc.Span) string {
	const limit = 64
	if !at.Ok() {
		return ""
	}
	text, err := jsonrpc.ReadString(m.Frame, at, limit)
	if err != nil {
		return ""
	}
	return text
}

// errorCode is the code of an error response; 0 for anything else.
func errorCode(frame []byte) int {
	at, ok := errorAt(frame)
	if !ok {
		return 0
	}
	code, ok, err := jsonrpc.Member(frame, at, "code")
	if !ok || err != nil {
		return 0
	}
	return smallInt(code.Of(frame))
}

// errorAt finds the error member of a response.
func errorAt(frame []byte) (jsonrpc.Span, bool) {
	start := 0
	for start < len(frame) && frame[start] != '{' {
		start++
	}
	at, ok, err := jsonrpc.Member(frame, jsonrpc.Span{Start: start, End: len(frame)}, "error")
	return at, ok && err == nil
}

// smallInt reads a JSON integer of few digits; 0 for anything else.
func smallInt(text []byte) int {
	n, sign := 0, 1
	for i, c := range text {
		switch {
		case i == 0 && c == '-':
			sign = -1
		case c < '0' || c > '9' || i > 8:
			return 0
		default:
			n = 10*n + int(c-'0')
		}
	}
	return sign * n
}
