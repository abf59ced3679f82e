package httpclient

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"

	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
)

// maxHeaderText bounds a name that goes into a header: servers refuse headers of
// more than some 8 KiB in all.
const maxHeaderText = 4 << 10

// readHeaders reads from a request what its POST repeats in headers (MCP-58,
// MCP-59, MCP-84), and adds those that belong to it (MCP-61).
func (k *call) readHeaders(m *mcp.Message, params []mcp.HeaderParam) error {
	h, err := modernHeaders(m)
	if err != nil {
		return err
	}
	for _, p := range params {
		name := http.CanonicalHeaderKey(p.Name)
		if !strings.HasPrefix(name, headerParam) && !isTrace(name) || !validToken(name) || !validValue(p.Value) {
			k.c.cfg.Log.Warn("a header of the message cannot be passed on", "name", quote([]byte(p.Name)))
			continue
		}
		if h == nil {
			h = make(http.Header, len(params))
		}
		h[name] = append(h[name], p.Value)
	}
	k.extra = h
	return nil
}

// isTrace reports whether a header carries W3C trace context, which belongs to one
// request like the headers of MCP do.
func isTrace(name string) bool { return name == "Traceparent" || name == "Tracestate" }

// modernHeaders is what a modern message says of itself in headers; nil for a
// legacy one.
func modernHeaders(m *mcp.Message) (http.Header, error) {
	if m.Era() != mcp.Modern {
		return nil, nil
	}
	h := make(http.Header, 4)
	version, err := jsonrpc.ReadString(m.Frame, m.Version, 64)
	if err != nil {
		return nil, fmt.Errorf("the protocol version in _meta: %w", err)
	}
	h[headerVersion] = []string{headerValue(version)}
	h[headerMethod] = []string{headerValue(m.Method)}
	at := namedBy(m)
	if !at.Ok() {
		return h, nil
	}
	if jsonrpc.KindAt(m.Frame, at) != jsonrpc.StringValue {
		return h, nil // the server refuses it, and says how
	}
	name, err := jsonrpc.ReadString(m.Frame, at, maxHeaderText)
	if err != nil {
		return nil, fmt.Errorf("the name that %s needs in a header: %w", m.Method, err)
	}
	h[headerName] = []string{headerValue(name)}
	return h, nil
}

// namedBy is the place of what Mcp-Name repeats.
func namedBy(m *mcp.Message) jsonrpc.Span {
	var member string
	switch m.Method {
	case mcp.MethodCallTool, "prompts/get":
		return m.Name
	case "resources/read":
		member = "uri"
	case mcp.MethodGetTask, mcp.MethodCancelTask, "tasks/update":
		member = "taskId"
	default:
		return jsonrpc.Span{}
	}
	at, _, _ := jsonrpc.Member(m.Frame, m.Params, member)
	return at
}

// The frame around a value that a header cannot carry as it is.
const base64Prefix, base64Suffix = "=?base64?", "?="

// headerValue is text as a header carries it: as it is, if that is safe, else in
// base64 (MCP-59).
func headerValue(s string) string {
	if plain(s) {
		return s
	}
	return base64Prefix + base64.StdEncoding.EncodeToString([]byte(s)) + base64Suffix
}

// plain reports whether text survives as a header: printable ASCII, no space at
// its ends, and nothing that reads like our own frame.
func plain(s string) bool {
	if s == "" {
		return true
	}
	if s[0] == ' ' || s[len(s)-1] == ' ' || strings.HasPrefix(s, base64Prefix) && strings.HasSuffix(s, base64Suffix) {
		return false
	}
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
