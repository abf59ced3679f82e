package script

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
)

// MaxParams bounds the parameters of one call (AT-88), in bytes of JSON.
const MaxParams = 1 << 20

// ErrParams is wrapped by what is wrong with the parameters of a call. The script
// was not started then (AT-57).
var ErrParams = errors.New("invalid parameters")

// CheckParams compares the parameters of a call with the manifest. The error names
// the parameter.
func (m *Manifest) CheckParams(params []byte) error {
	if len(params) > MaxParams {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrParams, len(params), MaxParams)
	}
	var given map[string]json.RawMessage
	if err := unmarshal(params, &given); err != nil || given == nil {
		return fmt.Errorf("%w: they must be one JSON object", ErrParams)
	}
	for _, p := range m.Parameters {
		value, ok := given[p.Name]
		if !ok {
			if p.Required {
				return fmt.Errorf("%w: %q is missing", ErrParams, p.Name)
			}
			continue
		}
		if got := typeOf(value); got != p.Type && (got != "integer" || p.Type != "number") {
			return fmt.Errorf("%w: %q must be of type %s, it is %s", ErrParams, p.Name, p.Type, got)
		}
		delete(given, p.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		return fmt.Errorf("%w: there is no parameter %.80q", ErrParams, name)
	}
	return nil
}

// typeOf is the JSON Schema type of a value; a number without a fraction is an
// integer, 1.0 included.
func typeOf(value json.RawMessage) string {
	value = bytes.TrimSpace(value)
	switch value[0] {
	case '"':
		return "string"
	case '{':
		return "object"
	case '[':
		return "array"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	}
	var number float64
	if json.Unmarshal(value, &number) == nil && number == math.Trunc(number) {
		return "integer"
	}
	return "number"
}
