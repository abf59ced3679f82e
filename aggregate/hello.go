package aggregate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/mcp"
	"github.com/belayhq/belay/mcp/httpserver"
)

// greeting is what a member says of itself: its answer to initialize or
// server/discover.
type greeting struct {
	version      string // the one agreed on; legacy
	instructions string
	frame        []byte
	result       jsonrpc.Span
}

// maxInstructions bounds what is repeated of one member's instructions.
const maxInstructions = 64 << 10

// legacyVersions are the revisions with a handshake, best first.
var legacyVersions = []string{"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}

func readGreeting(m *mcp.Message, era mcp.Era) (greeting, error) {
	g := greeting{frame: m.Frame, result: m.Result}
	if at, ok, _ := jsonrpc.Member(m.Frame, m.Result, "instructions"); ok {
		g.instructions = textAt(m.Frame, at, maxInstructions)
	}
	if era == mcp.Modern {
		at, _, _ := jsonrpc.Member(m.Frame, m.Result, "supportedVersions")
		if list := versions(m.Frame, at); !slices.Contains(list, mcp.Revision26) {
			return g, &httpserver.EraError{Supported: list} // it only knows the question
		}
		return g, nil
	}
	at, _, _ := jsonrpc.Member(m.Frame, m.Result, "protocolVersion")
	if g.version = textAt(m.Frame, at, 64); !slices.Contains(legacyVersions, g.version) {
		return g, fmt.Errorf("%w: it named %q", httpserver.ErrEra, g.version)
	}
	return g, nil
}

// at is the value of a capability.
func (g *greeting) at(path ...string) (jsonrpc.Span, bool) {
	at, ok, _ := jsonrpc.Path(g.frame, g.result, append([]string{"capabilities"}, path...)...)
	kind := jsonrpc.KindAt(g.frame, at)
	return at, ok && kind != jsonrpc.FalseValue && kind != jsonrpc.NullValue
}

// has reports whether the member declares a capability.
func (g *greeting) has(path ...string) bool {
	_, ok := g.at(path...)
	return ok
}

func some(list []*greeting, path ...string) bool {
	return slices.ContainsFunc(list, func(g *greeting) bool { return g.has(path...) })
}

// flags are members of a capability that are true if any member has them.
func flags(list []*greeting, capability string, names ...string) map[string]bool {
	out := map[string]bool{}
	for _, name := range names {
		if some(list, capability, name) {
			out[name] = true
		}
	}
	return out
}

const extTasks = "io.modelcontextprotocol/tasks"

// capabilities is what the members can do together. In the legacy era lists may
// always change, because members come and go. Tools say themselves whether they
// can be run as tasks (MCP-46); extensions are declared only as far as their
// requests find their way.
func capabilities(list []*greeting, era mcp.Era) map[string]any {
	out := map[string]any{}
	for capability, names := range map[string][]string{
		"tools": {"listChanged"}, "prompts": {"listChanged"}, "resources": {"listChanged", "subscribe"},
	} {
		if !some(list, capability) && (era == mcp.Modern || capability != "tools") {
			continue
		}
		f := flags(list, capability, names...)
		if era == mcp.Legacy {
			f["listChanged"] = true
		}
		out[capability] = f
	}
	for _, capability := range []string{"logging", "completions"} {
		if some(list, capability) {
			out[capability] = struct{}{}
		}
	}
	if some(list, "tasks") && era == mcp.Legacy {
		out["tasks"] = taskCapabilities(list)
	}
	for _, g := range list {
		if at, ok := g.at("extensions", extTasks); ok {
			out["extensions"] = map[string]json.RawMessage{extTasks: at.Of(g.frame)}
			break
		}
	}
	return out
}

func taskCapabilities(list []*greeting) map[string]any {
	tasks := map[string]any{}
	for _, name := range []string{"list", "cancel"} {
		if some(list, "tasks", name) {
			tasks[name] = struct{}{}
		}
	}
	if some(list, "tasks", "requests", "tools", "call") {
		tasks["requests"] = map[string]any{"tools": map[string]any{"call": struct{}{}}}
	}
	return tasks
}

// missing is a member that is left out, and why.
type missing struct {
	name string
	err  error
}

// instructions joins those of the members, and names who is missing.
func instructions(names []string, list []*greeting, out []missing) string {
	var b strings.Builder
	for i, g := range list {
		if g.instructions != "" {
			fmt.Fprintf(&b, "# %s\n\n%s\n\n", names[i], strings.TrimSpace(g.instructions))
		}
	}
	if len(out) > 0 {
		b.WriteString("# Servers that are left out\n\n")
		for _, m := range out {
			fmt.Fprintf(&b, "- %s: %s\n", m.name, because(m.err))
		}
	}
	return strings.TrimSpace(b.String())
}

// because says to a caller why a member is missing: without what only the log
// may say.
func because(err error) string {
	switch {
	case errors.Is(err, httpserver.ErrEra):
		return "it does not speak this protocol era"
	case errors.Is(err, errLate):
		return "it is not ready yet"
	case errors.Is(err, errSlow):
		return errSlow.Error()
	}
	if r, ok := errors.AsType[*refusal](err); ok {
		return r.Error()
	}
	return "it cannot be reached"
}

var errLate = errors.New("it was not ready in time")

// initialize begins the session: every member is let in, and their answers are
// joined.
func (s *session) initialize(c *call, m *mcp.Message) {
	s.mu.Lock()
	again := s.hello != nil
	if !again {
		s.hello = bytes.Clone(m.Frame)
	}
	s.mu.Unlock()
	if again {
		c.failf(mcp.CodeInvalidRequest, "this session has been initialized")
		return
	}
	s.background(c, func() { s.welcome(c) })
}

// welcome answers initialize.
func (s *session) welcome(c *call) {
	peers := s.invite()
	timer := time.NewTimer(s.b.cfg.OpenWait)
	defer timer.Stop()
	for _, p := range peers {
		select {
		case <-p.ready:
			continue
		case <-c.ctx.Done():
			c.stopped()
			return
		case <-timer.C:
		}
		break
	}
	var names []string
	var list []*greeting
	var out []missing
	s.mu.Lock()
	s.greeted = true // who joins from here on is announced
	for _, p := range peers {
		switch {
		case p.in:
			names, list = append(names, p.name), append(list, &p.says)
		case p.err != nil:
			out = append(out, missing{p.name, p.err})
		default:
			out = append(out, missing{p.name, errLate})
		}
	}
	s.mu.Unlock()
	if len(list) == 0 && len(out) > 0 && !slices.ContainsFunc(out, func(m missing) bool { return errors.Is(m.err, errLate) }) {
		c.answer(nobody(c, out))
		return
	}
	for _, m := range out {
		if errors.Is(m.err, errLate) {
			s.log.Warn("a server is left out until it is ready", "server", m.name, "waited", s.b.cfg.OpenWait)
		}
	}
	c.answer(jsonrpc.AppendResponse(nil, c.id, s.welcomeResult(names, list, out)))
}

func (s *session) welcomeResult(names []string, list []*greeting, out []missing) []byte {
	version := legacyVersions[0]
	for i, g := range list {
		if i == 0 || g.version < version {
			version = g.version
		}
	}
	return marshal(struct {
		Version      string         `json:"protocolVersion"`
		Capabilities map[string]any `json:"capabilities"`
		Server       implementation `json:"serverInfo"`
		Instructions string         `json:"instructions,omitempty"`
	}{version, capabilities(list, mcp.Legacy), s.b.self(), instructions(names, list, out)})
}

type implementation struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

func (b *Backend) self() implementation { return implementation{b.cfg.Name, b.cfg.Version} }

// marshal is for values of ours, which always marshal.
func marshal(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		return []byte("{}")
	}
	return data
}

// nobody is the answer where no member could be had. If all of them are of
// another era the caller reads what they speak (MCP-G4); if all refused alike,
// what they said.
func nobody(c *call, out []missing) []byte {
	if r := refused(out); r != nil {
		return jsonrpc.AppendError(nil, c.id, r.code, r.text, nil)
	}
	var parts []string
	var supported []string
	era := true
	for _, m := range out {
		parts = append(parts, m.name+": "+because(m.err))
		era = era && errors.Is(m.err, httpserver.ErrEra)
		if e, ok := errors.AsType[*httpserver.EraError](m.err); ok && supported == nil {
			supported = e.Supported
		}
	}
	code, text := mcp.CodeInternal, "no server can be had: "+strings.Join(parts, "; ")
	if !era {
		return jsonrpc.AppendError(nil, c.id, code, text, nil)
	}
	if code = mcp.CodeInvalidParams; c.s.era == mcp.Modern {
		code = mcp.CodeVersionUnknown
		if supported == nil {
			supported = legacyVersions
		}
	} else if supported == nil {
		supported = []string{mcp.Revision26}
	}
	data := marshal(struct {
		Supported []string `json:"supported"`
		Requested string   `json:"requested"`
	}{supported, c.s.who.Revision})
	return jsonrpc.AppendError(nil, c.id, code, "Unsupported protocol version: "+text, data)
}

// refused is the refusal of the first member, if all have refused with one code.
func refused(out []missing) *refusal {
	first, _ := errors.AsType[*refusal](out[0].err)
	for _, m := range out {
		if r, ok := errors.AsType[*refusal](m.err); !ok || r.code != first.code {
			return nil
		}
	}
	return first
}

// initialized takes the end of the handshake and tells every member.
func (s *session) initialized(m *mcp.Message) {
	s.mu.Lock()
	first := s.ready == nil && s.hello != nil
	if first {
		s.ready = bytes.Clone(m.Frame)
	}
	var list []*peer
	for _, p := range s.peers {
		if p.in && first {
			list = append(list, p)
		}
	}
	s.mu.Unlock()
	for _, p := range list {
		p.on.Deliver(mcp.Arrival{Message: m})
	}
}

// discover answers server/discover, which is asked of every member each time
// (MCP-68).
func (s *session) discover(c *call, frame []byte) {
	replies, ok := s.gather(c, frame, s.everybody())
	if !ok {
		return
	}
	var names []string
	var list []*greeting
	var out []missing
	for _, r := range replies {
		var g greeting
		if r.err == nil {
			g, r.err = readGreeting(r.m, mcp.Modern)
		}
		if r.err != nil {
			out = append(out, missing{r.name, r.err})
			continue
		}
		names, list = append(names, r.name), append(list, &g)
	}
	if len(list) == 0 && len(out) > 0 {
		c.answer(nobody(c, out))
		return
	}
	c.answer(jsonrpc.AppendResponse(nil, c.id, marshal(struct {
		Type         string         `json:"resultType"`
		Versions     []string       `json:"supportedVersions"`
		Capabilities map[string]any `json:"capabilities"`
		Instructions string         `json:"instructions,omitempty"`
		TTL          int            `json:"ttlMs"`
		Scope        string         `json:"cacheScope"`
		Meta         map[string]any `json:"_meta"`
	}{
		"complete",
		[]string{mcp.Revision26},
		capabilities(list, mcp.Modern), instructions(names, list, out), 0, "private",
		map[string]any{"io.modelcontextprotocol/serverInfo": s.b.self()},
	})))
}
