// Package schema judges the arguments of tools by their JSON Schema (RAP-46,
// RAP-57), for package rap, which is to stay light. It knows the drafts 2020-12 and
// 7; schemas that refer to others outside of themselves are refused, since nothing
// is fetched here.
package schema

import (
	"encoding/json"
	"fmt"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/belayhq/belay"
)

// Compile returns what judges arguments by the schema. Its errors say what is wrong,
// for a model to read. An error of Compile wraps belay.ErrBadRequest: the schema is
// none, or one that cannot be judged by here. The function is safe for concurrent
// use.
func Compile(schema json.RawMessage) (check func(arguments json.RawMessage) error, err error) {
	var s jsonschema.Schema
	if err := json.Unmarshal(schema, &s); err != nil {
		return nil, fmt.Errorf("%w: the schema cannot be read: %w", belay.ErrBadRequest, err)
	}
	resolved, err := s.Resolve(nil)
	if err != nil {
		return nil, fmt.Errorf("%w: the schema cannot be used: %w", belay.ErrBadRequest, err)
	}
	// What cannot be judged by, such as another draft, shows with the first value.
	return func(arguments json.RawMessage) error {
		var value any
		if err := json.Unmarshal(arguments, &value); err != nil {
			return fmt.Errorf("the arguments cannot be read: %w", err)
		}
		if err := resolved.Validate(value); err != nil {
			return fmt.Errorf("the arguments do not fit the tool's schema: %w", err)
		}
		return nil
	}, nil
}
