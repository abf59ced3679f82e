package script

import (
	"encoding/base64"
	"encoding/json"
)

// Bounds of a result (AT-88).
const (
	MaxResult = 1 << 20 // bytes of its JSON
	MaxParts  = 256
)

// Texts that a model reads when a tool gave it none.
const (
	TextInvalid = "Error: the tool returned an invalid result."
	TextNever   = "Error: the tool never finished."
	TextBusy    = "Error: the tool is busy."
	TextMemory  = "Error: the tool ran out of memory."
	TextCPU     = "Error: the tool used up its processor time."
	TextDeep    = "Error: the tool called itself too deeply."

	textOdd = "the tool threw something that cannot be shown" // as the prelude says
)

// Result is what a call ended with, if it was not stopped.
type Result struct {
	Success   bool
	Assistant []Part // for the model
	User      []Part // for the person
}

// Part is one piece of a result: a text or an image.
type Part struct {
	Text     string
	Image    []byte // set for an image
	MIMEType string // of the image
}

// failure is a result that only says what went wrong.
func failure(text string) Result {
	return Result{Assistant: []Part{{Text: text}}}
}

// parseResult reads the JSON of what an execute function returned (AT-67 to AT-69).
// Everything that is no result is one that says so.
func parseResult(text []byte) Result {
	var fields struct {
		Success *bool           `json:"success"`
		Message *string         `json:"message"`
		Output  json.RawMessage `json:"output"`
	}
	if len(text) > MaxResult || json.Unmarshal(text, &fields) != nil || fields.Success == nil {
		return failure(TextInvalid)
	}
	r := Result{Success: *fields.Success}
	switch {
	case len(fields.Output) > 0 && fields.Output[0] == '{':
		var output struct {
			User      []json.RawMessage `json:"userParts"`
			Assistant []json.RawMessage `json:"assistantParts"`
		}
		if json.Unmarshal(fields.Output, &output) != nil || len(output.User)+len(output.Assistant) > MaxParts {
			return failure(TextInvalid)
		}
		var ok bool
		if r.Assistant, ok = parseParts(output.Assistant); !ok {
			return failure(TextInvalid)
		}
		if r.User, ok = parseParts(output.User); !ok {
			return failure(TextInvalid)
		}
	case len(fields.Output) > 0 && string(fields.Output) != "null", fields.Message == nil:
		return failure(TextInvalid)
	default:
		r.Assistant = []Part{{Text: *fields.Message}}
	}
	return r
}

func parseParts(list []json.RawMessage) ([]Part, bool) {
	parts := make([]Part, 0, len(list))
	for _, raw := range list {
		p, ok := parsePart(raw)
		if !ok {
			return nil, false
		}
		parts = append(parts, p)
	}
	return parts, true
}

// parsePart reads a string, a text or an image (AT-68).
func parsePart(raw json.RawMessage) (Part, bool) {
	var text string
	if json.Unmarshal(raw, &text) == nil && len(raw) > 0 && raw[0] == '"' {
		return Part{Text: text}, true
	}
	var fields struct {
		Type   string  `json:"type"`
		Text   *string `json:"text"`
		Base64 *string `json:"base64"`
		MIME   string  `json:"mimeType"`
	}
	if json.Unmarshal(raw, &fields) != nil {
		return Part{}, false
	}
	switch {
	case fields.Type == "text" && fields.Text != nil:
		return Part{Text: *fields.Text}, true
	case fields.Type == "image" && fields.Base64 != nil:
		image, err := base64.StdEncoding.DecodeString(*fields.Base64)
		if err != nil || len(image) == 0 {
			return Part{}, false
		}
		if fields.MIME == "" {
			fields.MIME = "image/png"
		}
		return Part{Image: image, MIMEType: fields.MIME}, true
	}
	return Part{}, false
}
