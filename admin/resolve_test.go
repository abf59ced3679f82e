package admin

import (
	"testing"

	"github.com/belayhq/belay"
)

// ORC-69, ORC-70: the text of a protocol id, whatever its JSON type.
func TestIsNamed(t *testing.T) {
	for _, tt := range []struct {
		raw, name string
		want      bool
	}{
		{`7`, "7", true},
		{`"7"`, "7", true},
		{`"7"`, `"7"`, false},
		{`"a\"b"`, `a"b`, true},
		{`"\u0041"`, "A", true},
		{`"\u0041"`, `\u0041`, false},
		{`task-1`, "task-1", true},
		{``, "", false},
		{`""`, "", true},
		{`"`, `"`, true},
		{`1.0`, "1", false},
	} {
		i := belay.Info{Address: tt.raw}
		if got := isNamed(&i, tt.name); got != tt.want || tt.raw != "" && (RequestText(&i) == tt.name) != tt.want {
			t.Errorf("%s named %s: %v", tt.raw, tt.name, got)
		}
	}
}
