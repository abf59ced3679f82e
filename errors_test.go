package belay

import (
	"errors"
	"fmt"
	"testing"
)

// An error keeps its class across a wire, and every door has a number for it.
func TestCodesRoundTrip(t *testing.T) {
	seen := map[Code]bool{}
	for _, c := range codes {
		wrapped := fmt.Errorf("do a thing: %w", fmt.Errorf("deeper: %w", c.err))
		code := CodeOf(wrapped)
		if code == "" || seen[code] || !errors.Is(ErrorOf(code), c.err) {
			t.Errorf("%v: code %q, error %v", c.err, code, ErrorOf(code))
		}
		seen[code] = true
		if s := HTTPStatus(wrapped); s < 400 || s > 599 {
			t.Errorf("%v: HTTP status %d", c.err, s)
		}
		if n := JSONRPCCode(wrapped); n >= 0 {
			t.Errorf("%v: JSON-RPC code %d", c.err, n)
		}
		if n := ExitCode(wrapped); n <= 0 {
			t.Errorf("%v: exit code %d", c.err, n)
		}
	}
	if CodeOf(&Cancellation{Cause: CauseUser}) != "cancelled" || JSONRPCCode(&Cancellation{}) != CodeCancelled || ExitCode(&Cancellation{}) != 130 {
		t.Error("a cancellation is not cancelled")
	}
	if CodeOf(&Restraint{Why: "busy"}) != "restrained" || (&Restraint{Why: "busy"}).Error() != "force was held back: busy" {
		t.Error("a restraint is not restrained")
	}
	other := errors.New("other")
	if CodeOf(nil) != "" || CodeOf(other) != "internal" || ErrorOf("internal") != nil || ErrorOf("") != nil {
		t.Error("what is no code of ours has one")
	}
	if HTTPStatus(other) != 500 || JSONRPCCode(other) != -32603 || ExitCode(other) != 1 || ExitCode(nil) != 0 {
		t.Error("an unknown error has the wrong numbers")
	}
}
