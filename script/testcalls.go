package script

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
)

// MaxTests bounds the calls of test functions that are remembered of a script.
const MaxTests = 64

// TestCall is one call of a test function that a script made at its top level: the
// functions that the registrations return (AT-48 to AT-51). They do nothing by
// themselves (AT-52); whoever tests a tool makes real calls of them.
type TestCall struct {
	Kind   string          `json:"kind"`             // the registration, registerExecuteTool say
	Params json.RawMessage `json:"params"`           // {} if none were given
	Action *Action         `json:"action,omitempty"` // what a person is to have done, of registerExecuteToolWithApproval
}

// Action is what a person did in answer to a dialog, as the execute function of a
// tool with approval gets it.
type Action struct {
	PrimaryConfirmed   bool `json:"primaryConfirmed"`
	SecondaryConfirmed bool `json:"secondaryConfirmed"`
}

// Rehearsal makes a call a test: part of what a real one does is given, or left out.
type Rehearsal struct {
	// Action is what the person did: the request function is not called and nobody is
	// asked. Nil: as in any call.
	Action *Action `json:"action,omitempty"`

	// AskOnly ends the call with the answer to its dialog, as its result.
	AskOnly bool `json:"askOnly,omitempty"`
}

// Rehearsal is how a test of the script is to be called. A view cannot be: ok is
// false.
func (t *TestCall) Rehearsal() (r Rehearsal, ok bool) {
	return Rehearsal{Action: t.Action, AskOnly: t.Kind == "registerApprovalRequest"}, t.Kind != "registerUIView"
}

// Tests are the calls of test functions at the top level of the script, in order.
func (t *Tool) Tests() []TestCall { return slices.Clone(t.tests) }

// testCall reads the arguments of a test function; what is none gives a call without
// parameters, which fails as it would have with the function itself.
func testCall(kind, args string) TestCall {
	t := TestCall{Kind: kind, Params: json.RawMessage("{}")}
	var list []json.RawMessage
	if err := json.Unmarshal([]byte(args), &list); err != nil || len(list) == 0 {
		return t
	}
	if string(list[0]) != "null" {
		t.Params = list[0]
	}
	if kind == "registerExecuteToolWithApproval" && len(list) > 1 {
		var a Action
		if json.Unmarshal(list[1], &a) == nil {
			t.Action = &a
		}
	}
	return t
}

// noteTest is the host's side of every test function. Only the try of a script that
// is loaded remembers the calls; later ones, and those of real calls, do nothing.
func (c *Call) noteTest(kind, args string) {
	if c.tests != nil && c.phase == loading && len(*c.tests) < MaxTests && len(args) <= MaxParams {
		*c.tests = append(*c.tests, testCall(kind, args))
	}
}

// errAsked ends a rehearsal that is about the dialog alone.
var errAsked = errors.New("the question was answered")

// approval is approve, or the part of it that a rehearsal wants.
func (c *Call) approval(ctx context.Context) (flags string, err error) {
	r := c.options.Test
	if r == nil {
		return c.approve(ctx)
	}
	if r.Action != nil {
		c.ended.Declined = !r.Action.PrimaryConfirmed
		return string(asJSON(r.Action)), nil
	}
	flags, err = c.approve(ctx)
	if err == nil && r.AskOnly {
		c.ended.Declined = false
		c.settle(Result{Success: true, Assistant: []Part{{Text: flags}}})
		err = errAsked
	}
	return flags, err
}
