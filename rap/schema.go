package rap

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// checkSchema says whether raw is shaped like a JSON Schema with the type object:
// the keywords whose values have a fixed shape have it, at every depth. Whether
// patterns compile and references lead anywhere is found by who validates with it
// (package rap/schema); without a validator nobody would notice.
func checkSchema(raw json.RawMessage) error {
	var v any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return fmt.Errorf("%w: it is not valid JSON", ErrMalformed)
	}
	top, ok := v.(map[string]any)
	if !ok {
		return fmt.Errorf("%w: it must be an object", ErrMalformed)
	}
	if err := checkSchemaAt(top, "#", 0); err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return nil
}

// Keywords by the shape of their value, in the drafts from 4 on. What is not
// listed may be anything.
var (
	schemaKeys  = []string{"additionalProperties", "additionalItems", "propertyNames", "contains", "not", "if", "then", "else", "unevaluatedItems", "unevaluatedProperties", "contentSchema"}
	schemaLists = []string{"allOf", "anyOf", "oneOf", "prefixItems"}
	schemaMaps  = []string{"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}
	schemaTexts = []string{"$schema", "$id", "$ref", "$anchor", "$dynamicRef", "$comment", "title", "description", "format", "pattern", "contentEncoding", "contentMediaType"}
	schemaSizes = []string{"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "minContains", "maxContains"}
	schemaTypes = []string{"null", "boolean", "object", "array", "number", "string", "integer"}
)

// maxSchemaDepth bounds the recursion; nobody writes schemas that deep.
const maxSchemaDepth = 200

func checkSchemaAt(v any, path string, depth int) error {
	if depth > maxSchemaDepth {
		return fmt.Errorf("it is nested more than %d deep", maxSchemaDepth)
	}
	if _, ok := v.(bool); ok {
		return nil
	}
	s, ok := v.(map[string]any)
	if !ok {
		return fmt.Errorf("%.200s must be an object or a boolean", path)
	}
	// In a fixed order, so that the same schema gives the same error.
	for _, key := range slices.Sorted(maps.Keys(s)) {
		if err := checkKeyword(key, s[key], path+"/"+key, depth); err != nil {
			return err
		}
	}
	return nil
}

func checkKeyword(key string, v any, path string, depth int) error {
	switch {
	case key == "type":
		return checkType(v, path)
	case key == "required":
		return checkTexts(v, path)
	case key == "enum":
		if _, ok := v.([]any); !ok {
			return fmt.Errorf("%.200s must be an array", path)
		}
	case key == "items":
		if list, ok := v.([]any); ok { // as it was before 2020-12
			return checkSchemas(list, path, depth)
		}
		return checkSchemaAt(v, path, depth+1)
	case slices.Contains(schemaKeys, key):
		return checkSchemaAt(v, path, depth+1)
	case slices.Contains(schemaLists, key):
		list, ok := v.([]any)
		if !ok || len(list) == 0 {
			return fmt.Errorf("%.200s must be an array of schemas", path)
		}
		return checkSchemas(list, path, depth)
	case slices.Contains(schemaMaps, key):
		members, ok := v.(map[string]any)
		if !ok {
			return fmt.Errorf("%.200s must be an object of schemas", path)
		}
		for _, name := range slices.Sorted(maps.Keys(members)) {
			if err := checkSchemaAt(members[name], path+"/"+name, depth+1); err != nil {
				return err
			}
		}
	case slices.Contains(schemaTexts, key):
		if _, ok := v.(string); !ok {
			return fmt.Errorf("%.200s must be a string", path)
		}
	case slices.Contains(schemaSizes, key):
		if n, ok := v.(json.Number); !ok || n[0] == '-' {
			return fmt.Errorf("%.200s must be a number that is not negative", path)
		}
	}
	return nil
}

func checkSchemas(list []any, path string, depth int) error {
	for i, e := range list {
		if err := checkSchemaAt(e, fmt.Sprintf("%s/%d", path, i), depth+1); err != nil {
			return err
		}
	}
	return nil
}

func checkType(v any, path string) error {
	names, ok := v.([]any)
	if !ok {
		names = []any{v}
	}
	for _, name := range names {
		if text, ok := name.(string); !ok || !slices.Contains(schemaTypes, text) {
			return fmt.Errorf("%.200s: %.60v is no type of JSON Schema", path, name)
		}
	}
	if len(names) == 0 {
		return fmt.Errorf("%.200s names no type", path)
	}
	return nil
}

func checkTexts(v any, path string) error {
	list, ok := v.([]any)
	if !ok {
		return fmt.Errorf("%.200s must be an array of strings", path)
	}
	for _, e := range list {
		if _, ok := e.(string); !ok {
			return fmt.Errorf("%.200s must be an array of strings", path)
		}
	}
	return nil
}
