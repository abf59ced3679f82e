package rap

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/belayhq/belay/jsonrpc"
)

// Manifest is what a tool server says about itself (RAP-45).
type Manifest struct {
	Name           string `json:"name"`
	Description    string `json:"description,omitempty"`
	Endpoint       string `json:"endpoint"` // where invocations are posted; any host
	NeedsMigration bool   `json:"needsMigration,omitempty"`
	Tools          []Tool `json:"tools"`
}

// Tool is one tool of a manifest (RAP-46). Annotations and DisplayScript are
// untrusted, cosmetic, and passed on unread (RAP-47, RAP-52).
type Tool struct {
	Name          string          `json:"name"`
	Description   string          `json:"description"`
	InputSchema   json.RawMessage `json:"inputSchema"`
	Annotations   json.RawMessage `json:"annotations,omitempty"`
	DisplayScript json.RawMessage `json:"displayScript,omitempty"`
}

// ParseManifest reads a manifest. One bad tool makes the whole of it bad
// (RAP-48); the error names the tool.
func ParseManifest(body []byte) (*Manifest, error) {
	o := readObject(body, MaxManifest, "name", "description", "endpoint", "needsMigration", "tools")
	var m Manifest
	m.Name = o.text("name", MaxName*utf8.UTFMax)
	m.Description, _ = o.optional("description", MaxManifest)
	m.Endpoint = o.text("endpoint", MaxURL)
	m.NeedsMigration = o.flag("needsMigration")
	o.need("tools")
	for i, s := range o.list("tools", MaxTools) {
		t := o.child(s, fmt.Sprintf("tools[%d].", i), "name", "description", "inputSchema", "annotations", "displayScript")
		tool := Tool{
			Name:        t.text("name", MaxName*utf8.UTFMax),
			Description: t.text("description", MaxManifest),
			InputSchema: t.raw("inputSchema", jsonrpc.ObjectValue),
			Annotations: t.raw("annotations", jsonrpc.ObjectValue),
		}
		t.need("inputSchema")
		if s, ok := t.at("displayScript"); ok {
			tool.DisplayScript = bytes.Clone(s.Of(body))
		}
		if t.err != nil {
			return nil, t.err
		}
		m.Tools = append(m.Tools, tool)
	}
	if o.err != nil {
		return nil, o.err
	}
	if err := m.check(); err != nil {
		return nil, err
	}
	return &m, nil
}

// Append appends the manifest as JSON.
func (m *Manifest) Append(dst []byte) ([]byte, error) {
	if err := m.check(); err != nil {
		return dst, err
	}
	out, err := appendJSON(dst, m)
	if err == nil && len(out)-len(dst) > MaxManifest {
		return dst, fmt.Errorf("%w: a manifest of %d bytes, at most %d are allowed", ErrTooLarge, len(out)-len(dst), MaxManifest)
	}
	return out, err
}

// Tool returns the tool of that name, or nil. Names are case-sensitive.
func (m *Manifest) Tool(name string) *Tool {
	if i := slices.IndexFunc(m.Tools, func(t Tool) bool { return t.Name == name }); i >= 0 {
		return &m.Tools[i]
	}
	return nil
}

func (m *Manifest) check() error {
	if err := checkName(m.Name); err != nil {
		return fmt.Errorf("the toolset's name: %w", err)
	}
	if _, err := CheckURL(m.Endpoint); err != nil {
		return fmt.Errorf("endpoint: %w", err)
	}
	if len(m.Tools) == 0 || len(m.Tools) > MaxTools {
		return fmt.Errorf("%w: toolset %q has %d tools, it must have 1 to %d", ErrMalformed, m.Name, len(m.Tools), MaxTools)
	}
	seen := make(map[string]bool, len(m.Tools))
	for i := range m.Tools {
		t := &m.Tools[i]
		if err := t.Check(); err != nil {
			return fmt.Errorf("tools[%d]: %w", i, err)
		}
		if seen[t.Name] {
			return fmt.Errorf("%w: two tools are named %q", ErrMalformed, t.Name)
		}
		seen[t.Name] = true
	}
	return nil
}

// Check says whether a manifest with this tool can be valid.
func (t *Tool) Check() error {
	if err := checkName(t.Name); err != nil {
		return err
	}
	if strings.ContainsFunc(t.Name, unicode.IsSpace) {
		return fmt.Errorf("%w: the tool's name %q contains a space", ErrMalformed, t.Name)
	}
	if len(t.Annotations) > 0 && !isKind(t.Annotations, jsonrpc.ObjectValue) {
		return fmt.Errorf("%w: tool %q: annotations must be an object", ErrMalformed, t.Name)
	}
	if err := checkSchema(t.InputSchema); err != nil {
		return fmt.Errorf("tool %q: inputSchema: %w", t.Name, err)
	}
	return nil
}

// checkName is the rule for names of toolsets, tools and operations.
func checkName(name string) error {
	if n := utf8.RuneCountInString(name); n < 1 || n > MaxName {
		return fmt.Errorf("%w: a name of %d characters, it must have 1 to %d", ErrMalformed, n, MaxName)
	}
	if !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		return fmt.Errorf("%w: the name %q contains a control character or is not valid UTF-8", ErrMalformed, name)
	}
	return nil
}

func isKind(raw json.RawMessage, kind jsonrpc.ValueKind) bool {
	raw = bytes.TrimSpace(raw)
	return jsonrpc.KindAt(raw, jsonrpc.Span{Start: 0, End: len(raw)}) == kind && json.Valid(raw)
}
