package acp

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
)

// Info names a program.
type Info struct {
	Name    string `json:"name"`
	Title   string `json:"title,omitempty"`
	Version string `json:"version"`
}

// Text is a prompt, or the content of a message, of one block of text.
func Text(text string) json.RawMessage {
	raw, err := json.Marshal([]textBlock{{"text", text}})
	if err != nil {
		panic(err) // two strings always marshal
	}
	return raw
}

type textBlock struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

// SessionRequest is what a client asks for in session/new, load and resume. A
// member that is not here is in the raw params of the [Request].
type SessionRequest struct {
	Session    string      `json:"sessionId,omitempty"` // of load and resume
	Cwd        string      `json:"cwd"`                 // absolute (ACP-75)
	MCPServers []MCPServer `json:"mcpServers"`
}

// SessionResult is what an agent says of a session. Raw has what is not here.
type SessionResult struct {
	Session       string          `json:"sessionId,omitempty"` // of session/new
	Modes         json.RawMessage `json:"modes,omitempty"`     // v1
	ConfigOptions json.RawMessage `json:"configOptions,omitempty"`
	Raw           json.RawMessage `json:"-"`
}

// MCPServer is a server that the agent is to use. One with a Command is a process,
// one with a URL is reached by http, or, in v1, by sse.
type MCPServer struct {
	Type    string // v1: absent for a process; v2: always
	Name    string
	Command string
	Args    []string
	Env     []Pair
	URL     string
	Headers []Pair
}

// Pair is an environment variable or a header.
type Pair struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// MarshalJSON writes the members that the kind of server has. Type decides, or
// what is set.
func (s MCPServer) MarshalJSON() ([]byte, error) {
	type stdio struct {
		Type    string   `json:"type,omitempty"`
		Name    string   `json:"name"`
		Command string   `json:"command"`
		Args    []string `json:"args"`
		Env     []Pair   `json:"env"`
	}
	type remote struct {
		Type    string `json:"type"`
		Name    string `json:"name"`
		URL     string `json:"url"`
		Headers []Pair `json:"headers"`
	}
	if s.Command != "" {
		return json.Marshal(stdio{s.Type, s.Name, s.Command, some(s.Args), some(s.Env)})
	}
	return json.Marshal(remote{s.Type, s.Name, s.URL, some(s.Headers)})
}

// UnmarshalJSON reads what MarshalJSON writes, in the form of either version.
func (s *MCPServer) UnmarshalJSON(raw []byte) error {
	var all struct {
		Type    string   `json:"type"`
		Name    string   `json:"name"`
		Command string   `json:"command"`
		Args    []string `json:"args"`
		Env     []Pair   `json:"env"`
		URL     string   `json:"url"`
		Headers []Pair   `json:"headers"`
	}
	if err := json.Unmarshal(raw, &all); err != nil {
		return err
	}
	*s = MCPServer{all.Type, all.Name, all.Command, all.Args, all.Env, all.URL, all.Headers}
	return nil
}

func some[T any](list []T) []T {
	if list == nil {
		return []T{} // an array is required, null is none
	}
	return list
}

// forVersion checks the request and puts it into the form of a version (ACP-75).
func (s SessionRequest) forVersion(version int, agent Hello) (SessionRequest, error) {
	if !filepath.IsAbs(s.Cwd) {
		return s, fmt.Errorf("%w: cwd %q must be absolute", ErrBadRequest, s.Cwd)
	}
	servers := make([]MCPServer, 0, len(s.MCPServers))
	for _, m := range s.MCPServers {
		if m.Name == "" || (m.Command == "") == (m.URL == "") {
			return s, fmt.Errorf("%w: the MCP server %q needs a name and one of command and url", ErrBadRequest, m.Name)
		}
		switch {
		case m.Command != "":
			m.Type = ""
			if version >= Version2 {
				m.Type = "stdio"
			}
		case m.Type == "":
			m.Type = "http"
		}
		if version >= Version2 && m.Type == "sse" {
			return s, fmt.Errorf("%w: the MCP server %q: sse is of version 1", ErrUnsupported, m.Name)
		}
		if version < Version2 && m.Command == "" && !agent.Has("mcpCapabilities", m.Type) {
			return s, fmt.Errorf("%w: the MCP server %q: the agent has no %s", ErrUnsupported, m.Name, m.Type)
		}
		servers = append(servers, m)
	}
	s.MCPServers = servers
	return s, nil
}

// Permission is what an agent asks of the user before it does something.
type Permission struct {
	// Session is required; a [Turn] fills it in.
	Session string
	// Title is what is shown, in v2; default: the title of the tool call.
	Title string
	// ToolCall is the call that it is about. Required, but for v2.
	ToolCall ToolCall
	// Options are the answers; one at least.
	Options []PermissionOption
}

// PermissionOption is an answer that the user can choose.
type PermissionOption struct {
	ID   string `json:"optionId"`
	Name string `json:"name"`
	Kind string `json:"kind"` // allow_once, allow_always, reject_once, reject_always
}

// Allows reports whether the option is a yes.
func (o PermissionOption) Allows() bool { return strings.HasPrefix(o.Kind, "allow") }

// ToolCall is a tool_call (v1), a tool_call_update, or the tool call that a
// permission is about.
type ToolCall struct {
	ID        string          `json:"toolCallId"`
	Title     string          `json:"title,omitempty"`
	Kind      string          `json:"kind,omitempty"`
	Status    string          `json:"status,omitempty"` // pending, in_progress, completed, failed; v2 also cancelled
	Content   json.RawMessage `json:"content,omitempty"`
	RawInput  json.RawMessage `json:"rawInput,omitempty"`
	RawOutput json.RawMessage `json:"rawOutput,omitempty"`
	// CanCancel says that tool_call/cancel stops this call alone, in v2 (ACP-69).
	CanCancel bool `json:"-"`
}

// Params are those of the request in a version, as JSON.
func (p Permission) Params(version int) ([]byte, error) { return json.Marshal(p.params(version)) }

func (p Permission) params(version int) any {
	type subject struct {
		Type     string   `json:"type"`
		ToolCall ToolCall `json:"toolCall"`
	}
	type v1 struct {
		Session  string             `json:"sessionId"`
		ToolCall ToolCall           `json:"toolCall"`
		Options  []PermissionOption `json:"options"`
	}
	type v2 struct {
		Session string             `json:"sessionId"`
		Title   string             `json:"title"`
		Subject *subject           `json:"subject,omitempty"`
		Options []PermissionOption `json:"options"`
	}
	if version < Version2 {
		return v1{p.Session, p.ToolCall, p.Options}
	}
	ask := v2{Session: p.Session, Title: p.Title, Options: p.Options}
	if ask.Title == "" {
		ask.Title = p.ToolCall.Title
	}
	if p.ToolCall.ID != "" {
		ask.Subject = &subject{"tool_call", p.ToolCall}
	}
	return ask
}

// PermissionAnswer is the answer to a permission. The zero value is that there was
// none: the user was not asked, did not answer, or the work was stopped.
type PermissionAnswer struct {
	Option string // the id of the option that was chosen; "" if none was
}

// MarshalJSON writes the result of session/request_permission.
func (a PermissionAnswer) MarshalJSON() ([]byte, error) {
	type outcome struct {
		Outcome string `json:"outcome"`
		Option  string `json:"optionId,omitempty"`
	}
	if a.Option == "" {
		return Dismissed(MethodRequestPermission), nil
	}
	return json.Marshal(map[string]outcome{"outcome": {"selected", a.Option}})
}

// UnmarshalJSON reads the result. What is no choice of an option is none, also
// what nobody knows yet.
func (a *PermissionAnswer) UnmarshalJSON(raw []byte) error {
	var r struct {
		Outcome struct {
			Outcome string `json:"outcome"`
			Option  string `json:"optionId"`
		} `json:"outcome"`
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return err
	}
	*a = PermissionAnswer{}
	if r.Outcome.Outcome == "selected" {
		a.Option = r.Outcome.Option
	}
	return nil
}

// ElicitationAnswer is the answer to an elicitation.
type ElicitationAnswer struct {
	Action  string          `json:"action"` // accept, decline, cancel
	Content json.RawMessage `json:"content,omitempty"`
}

// TerminalRequest asks the client to start a command.
type TerminalRequest struct {
	Session string   `json:"sessionId"`
	Command string   `json:"command"`
	Args    []string `json:"args,omitempty"`
	Env     []Pair   `json:"env,omitempty"`
	Cwd     string   `json:"cwd,omitempty"`
}

// ExitStatus is how a command ended: by itself with a code, or by a signal.
type ExitStatus struct {
	Code   *int   `json:"exitCode,omitempty"`
	Signal string `json:"signal,omitempty"`
}
