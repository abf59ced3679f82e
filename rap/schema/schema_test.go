package schema

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/belayhq/belay"
)

// TestRAP57_ArgumentsAreJudged by the tool's schema.
func TestRAP57_ArgumentsAreJudged(t *testing.T) {
	check, err := Compile(json.RawMessage(`{"type":"object","properties":{"path":{"type":"string","pattern":"^/"},"n":{"type":"integer","minimum":1}},"required":["path"],"additionalProperties":false}`))
	if err != nil {
		t.Fatal(err)
	}
	for arguments, ok := range map[string]bool{
		`{"path":"/a"}`: true, `{"path":"/a","n":3}`: true, `{"path":"/a","n":1.0}`: true,
		`{}`: false, `{"path":"a"}`: false, `{"path":5}`: false, `{"path":"/a","n":0}`: false, `{"path":"/a","n":1.5}`: false,
		`{"path":"/a","more":1}`: false, `x`: false,
	} {
		if err := check(json.RawMessage(arguments)); (err == nil) != ok {
			t.Errorf("%s: %v", arguments, err)
		}
	}
}

// TestRAP46_BadSchemas are found when they are compiled.
func TestRAP46_BadSchemas(t *testing.T) {
	for _, bad := range []string{`x`, `{"type":5}`, `{"properties":[]}`, `{"$ref":"https://elsewhere.test/schema"}`, `{"properties":{"a":{"pattern":"("}}}`} {
		if _, err := Compile(json.RawMessage(bad)); !errors.Is(err, belay.ErrBadRequest) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
