package hook

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/jsonrpc"
)

// maxValue bounds one value that is filled in, in bytes.
const maxValue = 4 << 10

// part is literal text, or a placeholder.
type part struct {
	text  string
	place bool
}

var (
	// What stands in double braces is another program's template and passes
	// as it is; what looks like a placeholder must be one, or a slip of the pen
	// would be sent as text.
	braces  = regexp.MustCompile(`\{\{.*?\}\}|\{[A-Za-z_][A-Za-z0-9_.$-]*\}`)
	ownName = regexp.MustCompile(`^(run|server|tool|request_id|reason|cause|args(\.[A-Za-z0-9_$-]+)+)$`)
)

// parse reads a template.
func parse(text string) ([]part, error) {
	var parts []part
	last := 0
	for _, at := range braces.FindAllStringIndex(text, -1) {
		name := text[at[0]+1 : at[1]-1]
		if name[0] == '{' {
			continue
		}
		if !ownName.MatchString(name) {
			return nil, fmt.Errorf("unknown placeholder {%s} in %q; there are {run}, {server}, {tool}, {request_id}, {reason}, {cause} and {args.NAME}", name, text)
		}
		if at[0] > last {
			parts = append(parts, part{text[last:at[0]], false})
		}
		parts = append(parts, part{name, true})
		last = at[1]
	}
	if last < len(text) {
		parts = append(parts, part{text[last:], false})
	}
	return parts, nil
}

func plain(parts []part) bool {
	for _, p := range parts {
		if p.place {
			return false
		}
	}
	return true
}

// value is what is filled in for a placeholder.
type value struct {
	text   string // as text
	json   string // as JSON
	string bool   // it is a JSON string
}

func textValue(s string) value {
	return value{s, string(jsonrpc.AppendString(nil, s)), true}
}

// values finds what is filled in for one call and one Stop.
type values struct {
	call   *Call
	reason string
	cause  belay.Cause
	used   *[]string // the arguments that were filled in; nil: nobody asks
}

// hide takes out of a text what was filled in from the call's arguments.
func (v values) hide(text string) string {
	if v.used == nil {
		return text
	}
	for _, s := range *v.used {
		text = strings.ReplaceAll(text, s, "[argument]")
	}
	return text
}

// get returns the value of a placeholder. Errors wrap ErrFill.
func (v values) get(name string) (value, error) {
	got, err := v.find(name)
	if err == nil && len(got.text) > maxValue {
		err = fmt.Errorf("it is longer than %d bytes", maxValue)
	}
	if err == nil && strings.ContainsRune(got.text, 0) {
		err = errors.New("it contains a NUL byte")
	}
	if err != nil {
		return value{}, fmt.Errorf("%w: {%s}: %w", ErrFill, name, err)
	}
	return got, nil
}

func (v values) find(name string) (value, error) {
	switch name {
	case "run":
		return textValue(v.call.Run.String()), nil
	case "server":
		return textValue(v.call.Server), nil
	case "tool":
		return textValue(v.call.Tool), nil
	case "request_id":
		return textValue(v.call.RequestID), nil
	case "reason":
		return textValue(belay.CleanReason(v.reason)), nil
	case "cause":
		return textValue(string(v.cause)), nil
	}
	got, err := argument(v.call.Args, strings.Split(name, ".")[1:])
	if v.used != nil && len(got.text) > 2 { // a shorter one is no secret, and part of many words
		*v.used = append(*v.used, got.text)
	}
	return got, err
}

// argument reads one argument of the call: a string that is not empty, a
// number, or a boolean.
func argument(args []byte, path []string) (value, error) {
	at, ok, err := jsonrpc.Path(args, jsonrpc.Span{Start: 0, End: len(args)}, path...)
	switch {
	case err != nil:
		return value{}, err
	case !ok:
		return value{}, errors.New("the call has no such argument")
	}
	raw := string(at.Of(args))
	switch kind := jsonrpc.KindAt(args, at); kind {
	case jsonrpc.NumberValue, jsonrpc.TrueValue, jsonrpc.FalseValue:
		return value{raw, raw, false}, nil
	case jsonrpc.StringValue:
		text, err := jsonrpc.ReadString(args, at, maxValue)
		if err == nil && text == "" {
			err = errors.New("it is empty")
		}
		return textValue(text), err
	}
	return value{}, errors.New("it must be a string, a number or a boolean")
}

// checkArgs makes sure that the reader above is only used on valid JSON.
func checkArgs(args []byte) []byte {
	if len(args) == 0 || !json.Valid(args) {
		return nil
	}
	return []byte(strings.TrimSpace(string(args)))
}

// fill puts the template together; each value goes through put.
func fill(parts []part, v values, put func(out string, x value) (string, error)) (string, error) {
	var b strings.Builder
	for _, p := range parts {
		if !p.place {
			b.WriteString(p.text)
			continue
		}
		x, err := v.get(p.text)
		if err != nil {
			return "", err
		}
		text, err := put(b.String(), x)
		if err != nil {
			return "", fmt.Errorf("%w: {%s}: %w", ErrFill, p.text, err)
		}
		b.WriteString(text)
	}
	return b.String(), nil
}

// argv fills a command. A value is never an option: an argument that a
// placeholder begins must not begin with a dash, unless "--" stands before it.
func argv(command []string, v values) ([]string, error) {
	out := make([]string, 0, len(command))
	ended := false // the options
	for _, text := range command {
		parts, err := parse(text)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrFill, err)
		}
		filled, err := fill(parts, v, func(before string, x value) (string, error) {
			if before == "" && strings.HasPrefix(x.text, "-") && !ended {
				return "", errors.New(`its value would be read as an option; put "--" before it if the program knows that`)
			}
			return x.text, nil
		})
		if err != nil {
			return nil, err
		}
		ended = ended || text == "--"
		out = append(out, filled)
	}
	return out, nil
}

// target fills a URL: values are escaped for where they stand, and none can
// become a segment that leads elsewhere.
func (h *HTTP) target(v values) (string, error) {
	front, rest, err := h.split()
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrFill, err)
	}
	filled, err := fill(rest, v, func(before string, x value) (string, error) {
		if strings.Contains(before, "?") {
			return url.QueryEscape(x.text), nil
		}
		return url.PathEscape(x.text), nil
	})
	if err != nil {
		return "", err
	}
	path, _, _ := strings.Cut(filled, "?")
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "." || segment == ".." {
			return "", fmt.Errorf("%w: the path would have the segment %q", ErrFill, segment)
		}
	}
	return front + filled, nil
}

// headerValue fills a header; control characters become blanks.
func headerValue(text string, v values) (string, error) {
	parts, err := parse(text)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrFill, err)
	}
	filled, err := fill(parts, v, func(_ string, x value) (string, error) { return x.text, nil })
	return strings.TrimSpace(clean(filled)), err
}

func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == utf8.RuneError || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, s)
}

// kinds of body.
const (
	typeJSON = "application/json"
	typeForm = "application/x-www-form-urlencoded"
	typeText = "text/plain; charset=utf-8"
)

// bodyType is the content type that a body is filled and sent as.
func (h *HTTP) bodyType() string {
	for _, header := range h.Header {
		if strings.EqualFold(header.Name, "Content-Type") {
			return header.Value
		}
	}
	switch body := strings.TrimSpace(h.Body); {
	case body == "":
		return ""
	case body[0] == '{' || body[0] == '[':
		return typeJSON
	}
	return typeText
}

// body fills the body: in JSON a value inside a string is escaped, and one that
// stands alone is the JSON value itself; in a form it is escaped; else it is
// text.
func (h *HTTP) body(v values) (string, error) {
	parts, err := parse(h.Body)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrFill, err)
	}
	kind := strings.ToLower(h.bodyType())
	switch {
	case strings.Contains(kind, "json"):
		filled, err := fill(parts, v, func(before string, x value) (string, error) {
			if !inString(before) {
				return x.json, nil
			}
			if !x.string {
				return x.text, nil
			}
			return x.json[1 : len(x.json)-1], nil
		})
		if err == nil && filled != "" && !json.Valid([]byte(filled)) {
			err = fmt.Errorf("%w: the body would not be valid JSON", ErrFill)
		}
		return filled, err
	case strings.HasPrefix(kind, typeForm):
		return fill(parts, v, func(_ string, x value) (string, error) { return url.QueryEscape(x.text), nil })
	}
	return fill(parts, v, func(_ string, x value) (string, error) { return x.text, nil })
}

// inString reports whether the JSON text so far ends inside a string.
func inString(text string) bool {
	in := false
	for i := 0; i < len(text); i++ {
		switch {
		case in && text[i] == '\\':
			i++
		case text[i] == '"':
			in = !in
		}
	}
	return in
}
