package script

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
)

// ManifestFile is the name of the file that says what a tool is.
const ManifestFile = "assistant_tool.json"

// maxManifest bounds the manifest, maxParameters the parameters in it.
const (
	maxManifest   = 256 << 10
	maxParameters = 256
)

// ErrManifest is wrapped by what is wrong with a manifest; the message names the
// field.
var ErrManifest = errors.New("bad " + ManifestFile)

// Manifest is what assistant_tool.json says (AT-40 to AT-46). Unknown fields are
// ignored, missing booleans are false.
type Manifest struct {
	ID                         string      `json:"id"` // the tool's name for callers
	DisplayName                string      `json:"displayName"`
	Description                string      `json:"description"` // for the model
	Icon                       string      `json:"icon"`
	Color                      string      `json:"color"`
	Parameters                 []Parameter `json:"parameters"`
	RequireApproval            bool        `json:"requireApproval"`
	AutoApprove                bool        `json:"autoApprove"`
	ScriptEditorOnly           bool        `json:"scriptEditorOnly"`
	SupportsUIRender           bool        `json:"supportsUIRender"`
	KeepRenderingAfterComplete bool        `json:"keepRenderingAfterComplete"`
}

// Parameter is one member of the object that a tool is called with.
type Parameter struct {
	Name        string `json:"name"`
	Type        string `json:"type"`
	Description string `json:"description"`
	Required    bool   `json:"required"`
}

// parameterTypes are those of JSON Schema that a parameter may have (AT-41).
var parameterTypes = []string{"string", "number", "integer", "boolean", "array", "object"}

// toolID is what other protocols can carry as a name (AT-47).
var toolID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// ParseManifest reads a manifest. Errors wrap [ErrManifest] and name the field.
func ParseManifest(text []byte) (*Manifest, error) {
	if len(text) > maxManifest {
		return nil, fmt.Errorf("%w: %d bytes, at most %d are read", ErrManifest, len(text), maxManifest)
	}
	var fields map[string]json.RawMessage
	if err := unmarshal(text, &fields); err != nil {
		return nil, fmt.Errorf("%w: it must be a JSON object: %w", ErrManifest, err)
	}
	var m Manifest
	if err := json.Unmarshal(text, &m); err != nil {
		if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) {
			return nil, fmt.Errorf("%w: %s must be %s, not %s", ErrManifest, wrong.Field, wanted(wrong), wrong.Value)
		}
		return nil, fmt.Errorf("%w: %w", ErrManifest, err)
	}
	if err := m.check(fields); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrManifest, err)
	}
	if m.DisplayName == "" {
		m.DisplayName = m.ID
	}
	return &m, nil
}

// unmarshal is json.Unmarshal with a place in its syntax errors.
func unmarshal(text []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(v); err != nil {
		if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
			line := 1 + bytes.Count(text[:min(int(syntax.Offset), len(text))], []byte("\n"))
			return fmt.Errorf("line %d: %w", line, err)
		}
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is something behind the object")
	}
	return nil
}

// wanted says what a field should have been, in JSON's words.
func wanted(e *json.UnmarshalTypeError) string {
	switch e.Type.Kind().String() {
	case "slice":
		return "an array"
	case "bool":
		return "a boolean"
	case "struct":
		return "an object"
	}
	return "a string"
}

func (m *Manifest) check(fields map[string]json.RawMessage) error {
	switch {
	case m.ID == "":
		return errors.New("id is missing")
	case !toolID.MatchString(m.ID):
		return fmt.Errorf("id %.80q: letters, digits, _ and -, 1 to 64 of them", m.ID)
	case m.Description == "":
		return errors.New("description is missing: the model needs it")
	case string(fields["parameters"]) == "null" || fields["parameters"] == nil:
		return errors.New("parameters is missing: [] for none")
	case len(m.Parameters) > maxParameters:
		return fmt.Errorf("parameters has %d entries, at most %d", len(m.Parameters), maxParameters)
	}
	seen := make(map[string]int)
	for i, p := range m.Parameters {
		before, twice := seen[p.Name]
		switch {
		case p.Name == "":
			return fmt.Errorf("parameters[%d].name is missing", i)
		case twice:
			return fmt.Errorf("parameters[%d].name %.80q is that of parameters[%d] too", i, p.Name, before)
		case !slices.Contains(parameterTypes, p.Type):
			return fmt.Errorf("parameters[%d].type %.80q: one of %q", i, p.Type, parameterTypes)
		}
		seen[p.Name] = i
	}
	return nil
}

// Schema is the JSON Schema of the tool's parameters (AT-47), in the order of the
// manifest.
func (m *Manifest) Schema() []byte {
	var b bytes.Buffer
	b.WriteString(`{"type":"object","properties":{`)
	required := []string{}
	for i, p := range m.Parameters {
		if i > 0 {
			b.WriteByte(',')
		}
		member := map[string]any{"type": p.Type}
		if p.Type == "array" {
			member["items"] = struct{}{} // anything; some models' interfaces refuse an array without
		}
		if p.Description != "" {
			member["description"] = p.Description
		}
		name, body := asJSON(p.Name), asJSON(member)
		b.Write(name)
		b.WriteByte(':')
		b.Write(body)
		if p.Required {
			required = append(required, p.Name)
		}
	}
	list := asJSON(required)
	b.WriteString(`},"required":`)
	b.Write(list)
	b.WriteString(`,"additionalProperties":false}`)
	return b.Bytes()
}

// asJSON is for texts and what is made of them, which always have a JSON form.
func asJSON(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic("script: " + err.Error())
	}
	return text
}
