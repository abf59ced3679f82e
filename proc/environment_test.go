package proc

import (
	"slices"
	"strings"
	"testing"
)

// A tool is not handed its user's token (DESIGN 11, 10), and everything else is.
func TestEnvironmentOfTools(t *testing.T) {
	t.Setenv("BELAY_TOKEN", "secret")
	t.Setenv("BELAY_TOKENS_ELSEWHERE", "kept")
	env := Environment()
	if slices.ContainsFunc(env, func(e string) bool { return strings.HasPrefix(e, "BELAY_TOKEN=") }) {
		t.Error("the token is handed on")
	}
	if !slices.Contains(env, "BELAY_TOKENS_ELSEWHERE=kept") {
		t.Error("another variable is missing")
	}
}
