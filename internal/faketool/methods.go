package faketool

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Protocol revisions the fakes know.
const (
	modernVersion = "2026-07-28"
	newestLegacy  = "2025-11-25"
	metaVersion   = "io.modelcontextprotocol/protocolVersion"
	metaCaps      = "io.modelcontextprotocol/clientCapabilities"
	metaSubID     = "io.modelcontextprotocol/subscriptionId"
)

var legacyVersions = []string{"2024-11-05", "2025-03-26", "2025-06-18", newestLegacy}

// params are the members of any request's params that the server looks at.
type params struct {
	Meta            map[string]json.RawMessage `json:"_meta"`
	Name            string                     `json:"name"`
	Arguments       json.RawMessage            `json:"arguments"`
	ProtocolVersion string                     `json:"protocolVersion"`
	ClientInfo      json.RawMessage            `json:"clientInfo"`
	Level           string                     `json:"level"`
	URI             string                     `json:"uri"`
	RequestState    string                     `json:"requestState"`
	InputResponses  json.RawMessage            `json:"inputResponses"`
	Task            json.RawMessage            `json:"task"`
	TaskID          string                     `json:"taskId"`
}

// request handles one request of the client.
func (s *server) request(m message) {
	c := s.begin(m)
	var p params
	if len(m.Params) > 0 {
		if err := json.Unmarshal(m.Params, &p); err != nil {
			c.fail(-32602, "params: "+err.Error())
			c.finish()
			return
		}
	}
	c.token = p.Meta["progressToken"]
	_, c.modern = p.Meta[metaVersion]
	if code, text := s.admit(m.Method, c, p); code != 0 {
		c.fail(code, text)
		c.finish()
		return
	}
	if m.Method == "tools/call" {
		s.callTool(c, p) // finishes the call itself
		return
	}
	if s.aboutTask(c, p) { // finishes the call itself
		return
	}
	s.plain(c, p)
}

// admit refuses what does not fit the era. Both checks exist to catch a
// gateway that restarts a process and forgets its handshake.
func (s *server) admit(method string, c *call, p params) (int, string) {
	s.mu.Lock()
	known := s.state.Initialized > 0
	s.mu.Unlock()
	switch {
	case c.modern && s.opt.era == "legacy":
		if method == "server/discover" {
			return -32601, "no such method: server/discover"
		}
		c.modern = false // an unknown _meta member means nothing to a legacy server
	case c.modern && p.Meta[metaCaps] == nil:
		return -32602, "_meta lacks " + metaCaps
	case c.modern && string(p.Meta[metaVersion]) != `"`+modernVersion+`"`:
		return -32022, "version not served"
	case !c.modern && s.opt.era == "modern":
		return -32602, "_meta lacks " + metaVersion
	}
	if !c.modern && !known && s.opt.strict && method != "initialize" && method != "ping" && method != "server/discover" {
		s.violation(method + " before initialize")
		return -32600, "not initialised"
	}
	return 0, ""
}

// plain answers every method but tools/call.
func (s *server) plain(c *call, p params) {
	if c.method == "subscriptions/listen" {
		s.startListen(c)
		return // stays in flight until it is cancelled
	}
	defer c.finish()
	switch c.method {
	case "initialize":
		s.initialize(c, p)
	case "server/discover":
		c.reply(map[string]any{
			"supportedVersions": []string{modernVersion}, "capabilities": s.capabilities(),
			"ttlMs": 0, "cacheScope": "private",
			"_meta": map[string]any{"io.modelcontextprotocol/serverInfo": s.info()},
		})
	case "ping":
		c.reply(struct{}{})
	case "tools/list":
		c.reply(map[string]any{"tools": s.tools()})
	case "logging/setLevel":
		s.set(c, "level", func(st *state) { st.Level = p.Level })
	case "resources/subscribe":
		s.set(c, "subscribe", func(st *state) {
			if !slices.Contains(st.Subscribed, p.URI) {
				st.Subscribed = append(st.Subscribed, p.URI)
			}
		})
	case "resources/unsubscribe":
		s.set(c, "unsubscribe", func(st *state) {
			st.Subscribed = slices.DeleteFunc(st.Subscribed, func(u string) bool { return u == p.URI })
		})
	case "resources/list":
		c.reply(map[string]any{"resources": []any{}})
	case "prompts/list":
		c.reply(map[string]any{"prompts": []any{}})
	default:
		c.fail(-32601, "no such method: "+c.method)
	}
}

func (s *server) capabilities() map[string]any {
	list := map[string]any{
		"tools":     map[string]any{"listChanged": true},
		"logging":   map[string]any{},
		"resources": map[string]any{"subscribe": !s.opt.noSubscribe},
	}
	if s.opt.tasks {
		list["tasks"] = map[string]any{"cancel": struct{}{}, "list": struct{}{}, "requests": map[string]any{"tools": map[string]any{"call": struct{}{}}}}
		list["extensions"] = map[string]any{extTasks: struct{}{}}
	}
	return list
}

func (s *server) info() map[string]any {
	version := "1.0.0"
	if s.opt.versions {
		version = fmt.Sprintf("1.0.%d", s.start)
	}
	return map[string]any{"name": s.opt.name, "version": version}
}

func (s *server) initialize(c *call, p params) {
	s.mu.Lock()
	s.state.Initialized++
	twice := s.state.Initialized > 1
	s.state.Version, s.state.Client = p.ProtocolVersion, p.ClientInfo
	s.mu.Unlock()
	s.wit.write(serverKey, "initialize", p.ProtocolVersion)
	if twice {
		s.violation("initialize twice")
		c.fail(-32600, "already initialised")
		return
	}
	version := p.ProtocolVersion
	if !slices.Contains(legacyVersions, version) {
		version = newestLegacy
	}
	c.reply(map[string]any{"protocolVersion": version, "capabilities": s.capabilities(), "serverInfo": s.info()})
}

// set changes the state, writes it down and acknowledges.
func (s *server) set(c *call, name string, change func(*state)) {
	s.mu.Lock()
	change(&s.state)
	s.mu.Unlock()
	s.wit.write(serverKey, name, "")
	c.reply(struct{}{})
}

// startListen acknowledges a modern subscription and keeps it open.
func (s *server) startListen(c *call) {
	s.mu.Lock()
	s.listen[string(c.id)] = true
	s.mu.Unlock()
	s.wit.write(serverKey, "listen", string(c.id))
	s.out.notify("notifications/subscriptions/acknowledged",
		fmt.Appendf(nil, `{"notifications":{"toolsListChanged":true},"_meta":{%q:%s}}`, metaSubID, c.id))
}
