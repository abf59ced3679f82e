package rapdoor

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/belayhq/belay/jsonrpc"
	"github.com/belayhq/belay/rap"
)

// form is what a server wants to know from the person behind a call (MCP's form
// elicitation), as far as it can be picked from choices.
type form struct {
	message string
	fields  []field // none: a plain yes or no
}

// field is one question. Its values are JSON, in the order of their labels.
type field struct {
	name   string
	title  string
	labels []string
	values []json.RawMessage
}

// Bounds of a form.
const (
	maxForm   = 256 << 10 // bytes of its parameters
	maxFields = 8         // that a person is asked one after the other
	maxPrompt = 16 << 10
	maxLabel  = 1 << 10
)

// errForm says that a question is none that a person can answer by a choice.
var errForm = errors.New("cannot be asked here")

// readForm reads the parameters of elicitation/create. What a person would have to
// write (a text, a number) has no place in the other protocol: where it may be left
// out it is, else the form cannot be asked.
func readForm(frame []byte, params jsonrpc.Span) (f form, err error) {
	if params.Len() > maxForm {
		return f, fmt.Errorf("%w: the form has more than %d bytes", errForm, maxForm)
	}
	var found [3]jsonrpc.Span
	if err := jsonrpc.Lookup(frame, params, []string{"mode", "message", "requestedSchema"}, found[:]); err != nil {
		return f, fmt.Errorf("%w: %w", errForm, err)
	}
	if found[0].Ok() {
		if mode, err := jsonrpc.ReadString(frame, found[0], 64); err != nil || mode != "form" {
			return f, fmt.Errorf("%w: mode %.64q; only forms can", errForm, mode)
		}
	}
	if f.message, err = jsonrpc.ReadString(frame, found[1], maxForm); err != nil {
		return f, fmt.Errorf("%w: its message: %w", errForm, err)
	}
	if jsonrpc.KindAt(frame, found[2]) != jsonrpc.ObjectValue {
		return f, fmt.Errorf("%w: requestedSchema is no object", errForm)
	}
	var parts [2]jsonrpc.Span
	if err := jsonrpc.Lookup(frame, found[2], []string{"properties", "required"}, parts[:]); err != nil {
		return f, fmt.Errorf("%w: requestedSchema: %w", errForm, err)
	}
	var required []string
	if parts[1].Ok() && json.Unmarshal(parts[1].Of(frame), &required) != nil {
		return f, fmt.Errorf("%w: required is no list of names", errForm)
	}
	for p := range jsonrpc.Members(frame, parts[0]) {
		name, err := jsonrpc.ReadString(frame, p.Key, maxLabel)
		if err != nil {
			return f, fmt.Errorf("%w: the name of a field: %w", errForm, err)
		}
		one, ok := readField(name, p.Value.Of(frame))
		switch {
		case ok && len(f.fields) == maxFields:
			return f, fmt.Errorf("%w: it has more than %d fields", errForm, maxFields)
		case ok:
			f.fields = append(f.fields, one)
		case slices.Contains(required, name):
			return f, fmt.Errorf("%w: field %.64q is to be written, not chosen", errForm, name)
		}
		required = slices.DeleteFunc(required, func(r string) bool { return r == name })
	}
	if len(required) > 0 {
		return f, fmt.Errorf("%w: field %.64q is required, but not described", errForm, required[0])
	}
	return f, nil
}

// readField reads a field that is answered by one of some values.
func readField(name string, schema []byte) (f field, ok bool) {
	var s struct {
		Type        string   `json:"type"`
		Title       string   `json:"title"`
		Description string   `json:"description"`
		Enum        []string `json:"enum"`
		EnumNames   []string `json:"enumNames"`
		OneOf       []struct {
			Const string `json:"const"`
			Title string `json:"title"`
		} `json:"oneOf"`
	}
	if json.Unmarshal(schema, &s) != nil {
		return f, false
	}
	f = field{name: name, title: cmp.Or(s.Description, s.Title, name)}
	add := func(value any, label string) {
		text, err := json.Marshal(value)
		if err == nil {
			f.values = append(f.values, text)
			f.labels = append(f.labels, shorten(cmp.Or(strings.TrimSpace(label), "(empty)"), maxLabel))
		}
	}
	switch {
	case s.Type == "boolean":
		add(true, "Yes")
		add(false, "No")
	case s.Type != "string":
	case s.Enum != nil:
		for i, value := range s.Enum {
			label := value
			if i < len(s.EnumNames) {
				label = cmp.Or(s.EnumNames[i], value)
			}
			add(value, label)
		}
	default:
		for _, one := range s.OneOf {
			add(one.Const, cmp.Or(one.Title, one.Const))
		}
	}
	return f, len(f.values) > 0 && len(f.values) < rap.MaxChoices // one is the dismissal
}

// noText is shown of a question that says nothing.
const noText = "The tool asks for an answer."

// prompt is the text of the question for a field; the form's own where there is
// but one.
func (f *form) prompt(i int) string {
	text := f.message
	if len(f.fields) > 1 || text == "" {
		text = strings.TrimSpace(text + "\n\n" + f.fields[i].title)
	}
	return shorten(cmp.Or(text, noText), maxPrompt)
}

func shorten(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}
