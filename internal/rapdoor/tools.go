package rapdoor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
	"github.com/belayhq/belay/rap"
	"github.com/belayhq/belay/rap/schema"
)

// tool is a server's tool with what judges its arguments.
type tool struct {
	rap.Tool
	check func(json.RawMessage) error
}

// toolset offers one server.
type toolset struct {
	d    *Door
	name string
}

var _ rap.Toolset = (*toolset)(nil)

// Bounds of listing.
const (
	maxPages  = 100
	listWait  = 60 * time.Second
	maxFrame  = 8 << 20 // of all schemas together; a manifest holds less
	maxCursor = 64 << 10
)

// Manifest implements [rap.Toolset]: the server is asked each time, so that keeping
// a list is the runtime's affair alone (RAP-50).
func (t *toolset) Manifest(ctx context.Context, caller string) (*rap.Manifest, error) {
	l, err := t.d.use(ctx, t.name, t.d.o.Owner(caller))
	if err != nil {
		return nil, err
	}
	defer l.release()
	tools, err := l.list(ctx)
	if err != nil {
		return nil, err
	}
	m := &rap.Manifest{Name: t.name, Description: "The MCP server " + t.name + ", behind Belay."}
	for _, tool := range tools {
		m.Tools = append(m.Tools, tool.Tool)
	}
	return m, nil
}

// Prepare implements [rap.Toolset]. A tool that is not known is asked for once
// more: it may be new.
func (t *toolset) Prepare(ctx context.Context, j *rap.Job) (rap.Func, error) {
	l, err := t.d.use(ctx, t.name, j.Owner())
	if err != nil {
		return nil, err
	}
	defer l.release()
	one, err := l.tool(ctx, j.Operation())
	if err != nil {
		return nil, err
	}
	if one == nil {
		return nil, fmt.Errorf("%w: there is no tool %q here; ask for the list of tools again", rap.ErrArguments, j.Operation())
	}
	if err := one.check(j.Arguments()); err != nil {
		return nil, fmt.Errorf("%w: %w", rap.ErrArguments, err)
	}
	return t.call, nil
}

// tool finds a tool by its name; nil: there is none.
func (l *link) tool(ctx context.Context, name string) (*tool, error) {
	l.mu.Lock()
	known, listed := l.known, l.listed
	l.mu.Unlock()
	if listed && !l.outdated.Load() {
		if t := find(known, name); t != nil {
			return t, nil
		}
	}
	known, err := l.list(ctx)
	return find(known, name), err
}

func find(list []tool, name string) *tool {
	for i := range list {
		if list[i].Name == name {
			return &list[i]
		}
	}
	return nil
}

// list asks the server for its tools.
func (l *link) list(ctx context.Context) ([]tool, error) {
	ctx, end := context.WithTimeoutCause(ctx, listWait, fmt.Errorf("the server did not list its tools within %v", listWait))
	defer end()
	l.outdated.Store(false) // what comes from here on is newer than the list
	var tools []tool
	seen := map[string]bool{}
	size, cursor := 0, ""
	for range maxPages {
		m, err := l.ask(ctx, mcp.MethodListTools, l.params(cursor, nil), &waiter{}, "")
		if err != nil {
			return nil, err
		}
		at, _, _ := jsonrpc.Member(m.Frame, m.Result, "tools")
		for e := range jsonrpc.Elements(m.Frame, at) {
			t, err := readTool(m.Frame, e)
			if err == nil && seen[t.Name] {
				err = fmt.Errorf("%w: two tools are named %q", rap.ErrMalformed, t.Name)
			}
			size += e.Len()
			if err == nil && (len(tools) >= rap.MaxTools || size > maxFrame) {
				return nil, fmt.Errorf("%w tools: a toolset has at most %d, of %d bytes", errTooMany, rap.MaxTools, maxFrame)
			}
			if err != nil {
				l.d.log.Warn("a tool is not offered", "server", l.key.server, "error", err)
				continue
			}
			seen[t.Name] = true
			tools = append(tools, t)
		}
		next, ok, _ := jsonrpc.Member(m.Frame, m.Result, "nextCursor")
		if !ok || jsonrpc.KindAt(m.Frame, next) != jsonrpc.StringValue {
			l.mu.Lock()
			l.known, l.listed = tools, true
			l.mu.Unlock()
			return tools, nil
		}
		if cursor, err = jsonrpc.ReadString(m.Frame, next, maxCursor); err != nil {
			return nil, fmt.Errorf("the server's list cannot be followed: %w", err)
		}
	}
	return nil, fmt.Errorf("%w pages: the list of tools has more than %d", errTooMany, maxPages)
}

var errTooMany = errors.New("too many")

// readTool reads one of the server's tools in the other protocol's words.
func readTool(frame []byte, at jsonrpc.Span) (t tool, err error) {
	keys := []string{"name", "description", "inputSchema", "annotations", "title"}
	var out [5]jsonrpc.Span
	if err := jsonrpc.Lookup(frame, at, keys, out[:]); err != nil {
		return t, fmt.Errorf("%w: %w", rap.ErrMalformed, err)
	}
	if t.Name, err = jsonrpc.ReadString(frame, out[0], 4*rap.MaxName); err != nil {
		return t, fmt.Errorf("%w: a tool's name: %w", rap.ErrMalformed, err)
	}
	for _, s := range []jsonrpc.Span{out[1], out[4]} { // the title where there is no description
		if t.Description == "" && jsonrpc.KindAt(frame, s) == jsonrpc.StringValue {
			if t.Description, err = jsonrpc.ReadString(frame, s, rap.MaxManifest); err != nil {
				return t, fmt.Errorf("%w: tool %q: %w", rap.ErrMalformed, t.Name, err)
			}
		}
	}
	t.InputSchema = json.RawMessage(bytes.Clone(out[2].Of(frame)))
	if t.Annotations, err = annotations(frame, out[3]); err != nil {
		return t, err
	}
	if err := t.Check(); err != nil {
		return t, err
	}
	if t.check, err = schema.Compile(t.InputSchema); err != nil {
		// The server judges by its own schema, too; one that only it understands is
		// no reason to do without the tool.
		t.check = func(json.RawMessage) error { return nil }
	}
	return t, nil
}

// annotations says in the words of RAP-47 what MCP's hints say.
func annotations(frame []byte, at jsonrpc.Span) (json.RawMessage, error) {
	if jsonrpc.KindAt(frame, at) != jsonrpc.ObjectValue {
		return nil, nil
	}
	all := map[string]bool{}
	for m := range jsonrpc.Members(frame, at) {
		for theirs, ours := range map[string]string{"destructiveHint": "destructive", "readOnlyHint": "readOnly", "idempotentHint": "idempotent"} {
			if m.Named(frame, theirs) {
				all[ours] = jsonrpc.KindAt(frame, m.Value) == jsonrpc.TrueValue
			}
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	return json.Marshal(all)
}

// params are those of a request in the session's era; call are its own members,
// without braces.
func (l *link) params(cursor string, call []byte) []byte {
	var members [][]byte
	if len(call) > 0 {
		members = append(members, call)
	}
	if cursor != "" {
		members = append(members, jsonrpc.AppendString([]byte(`"cursor":`), cursor))
	}
	if l.era == mcp.Modern { // its version and who asks, in _meta
		meta := mcp.ModernParamsWith(elicitation)
		members = append(members, meta[1:len(meta)-1])
	}
	if len(members) == 0 {
		return nil
	}
	return append(append([]byte("{"), bytes.Join(members, []byte(","))...), '}')
}
