package httpserver

import (
	"bytes"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
)

// Bounds of what is remembered of tools' schemas.
const (
	maxTools    = 10_000 // with bindings, of all principals
	maxBindings = maxParams
	maxNesting  = 16
)

// binding says that a header repeats an argument of a tool.
type binding struct {
	path   []string // of names, below arguments
	header string   // in the spelling of net/http
}

// catalog remembers which headers repeat which arguments, as the lists of tools
// that passed said so. A server on stdio never sees headers, so that somebody
// in front of it has to compare them with the body (MCP-60, MCP-61, MCP-G37). A
// server on HTTP would refuse the same. Principals may see different tools of
// one name.
type catalog struct {
	mu    sync.RWMutex
	tools map[toolKey][]binding
}

type toolKey struct{ principal, tool string }

// lister is the outlet of a tools/list request: it learns from the answer.
type lister struct {
	*stream
	catalog   *catalog
	principal string
}

// Answer implements [mcp.Outlet].
func (l *lister) Answer(status int, frame []byte, edits ...jsonrpc.Edit) error {
	l.catalog.learn(l.principal, frame)
	return l.stream.Answer(status, frame, edits...)
}

// learn reads a result of tools/list, or one page of it.
func (c *catalog) learn(principal string, frame []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.tools) == 0 && !bytes.Contains(frame, []byte("x-mcp-header")) {
		return
	}
	whole := jsonrpc.Span{Start: bytes.IndexByte(frame, '{'), End: len(frame)}
	if whole.Start < 0 {
		return
	}
	list, ok, err := jsonrpc.Path(frame, whole, "result", "tools")
	if !ok || err != nil {
		return
	}
	for tool := range jsonrpc.Elements(frame, list) {
		at, ok, err := jsonrpc.Member(frame, tool, "name")
		if !ok || err != nil {
			continue
		}
		name, err := jsonrpc.ReadString(frame, at, 1024)
		if err != nil {
			continue
		}
		key := toolKey{principal, name}
		found := collect(frame, schemaOf(frame, tool), nil, nil)
		switch {
		case len(found) == 0:
			delete(c.tools, key)
		case len(c.tools) < maxTools || c.tools[key] != nil:
			if c.tools == nil {
				c.tools = make(map[toolKey][]binding)
			}
			c.tools[key] = found
		}
	}
}

// schemaOf is where the properties of a tool's arguments are.
func schemaOf(frame []byte, tool jsonrpc.Span) jsonrpc.Span {
	at, _, err := jsonrpc.Path(frame, tool, "inputSchema", "properties")
	if err != nil {
		return jsonrpc.Span{}
	}
	return at
}

// collect appends the bindings among the properties at s and below.
func collect(frame []byte, s jsonrpc.Span, path []string, found []binding) []binding {
	if !s.Ok() || len(path) == maxNesting {
		return found
	}
	for p := range jsonrpc.Members(frame, s) {
		name, err := jsonrpc.ReadString(frame, p.Key, 1024)
		if err != nil || len(found) == maxBindings {
			continue
		}
		here := append(slices.Clip(path), name)
		if at, ok, err := jsonrpc.Member(frame, p.Value, "x-mcp-header"); ok && err == nil {
			if header, err := jsonrpc.ReadString(frame, at, 256); err == nil && header != "" {
				found = append(found, binding{here, http.CanonicalHeaderKey(headerParam + header)})
			}
		}
		if below, ok, err := jsonrpc.Member(frame, p.Value, "properties"); ok && err == nil {
			found = collect(frame, below, here, found)
		}
	}
	return found
}

// check compares the headers of a tools/call with its arguments.
func (c *catalog) check(r *http.Request, principal string, m *mcp.Message) *failure {
	c.mu.RLock()
	if len(c.tools) == 0 {
		c.mu.RUnlock()
		return nil
	}
	bindings := c.tools[toolKey{principal, m.ToolName()}]
	c.mu.RUnlock()
	for _, b := range bindings {
		at, _, err := jsonrpc.Path(m.Frame, m.Params, append([]string{"arguments"}, b.path...)...)
		if err != nil {
			return headerFailure(m, "argument %.64q is there twice", strings.Join(b.path, "."))
		}
		if why := b.compare(r.Header[b.header], m.Frame, at); why != "" {
			return headerFailure(m, "header %s %s", b.header, why)
		}
	}
	return nil
}

// compare says in what way a header differs from the argument at s.
func (b *binding) compare(values []string, frame []byte, s jsonrpc.Span) string {
	kind := jsonrpc.KindAt(frame, s)
	switch {
	case len(values) > 1:
		return "is there " + strconv.Itoa(len(values)) + " times"
	case kind == jsonrpc.NoValue || kind == jsonrpc.NullValue:
		if len(values) > 0 && values[0] != "" {
			return "is there without an argument"
		}
		return ""
	case len(values) == 0:
		return "is missing"
	}
	text, ok := DecodeHeader(values[0])
	if !ok {
		return "is no valid =?base64?…?="
	}
	same := false
	switch kind {
	case jsonrpc.StringValue:
		same = sameText(frame, s, text)
	case jsonrpc.TrueValue, jsonrpc.FalseValue:
		same = text == string(s.Of(frame))
	case jsonrpc.NumberValue:
		a, ok1 := safeInteger(text)
		b, ok2 := safeInteger(string(s.Of(frame)))
		same = ok1 && ok2 && a == b
	}
	if !same {
		return "is not what the argument says"
	}
	return ""
}

// safeInteger reads a whole number that every reader of JSON reads alike: only
// those may be repeated in headers.
func safeInteger(text string) (int64, bool) {
	const most = 1<<53 - 1
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || f < -most || f > most || f != float64(int64(f)) {
		return 0, false
	}
	return int64(f), true
}
