package script

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// testedScript calls its test functions at its top level, as authors do, and counts
// what is executed.
const testedScript = `
let ran = 0
const ask = AssistantTool.registerApprovalRequest(async () => ({ message: "Sure?", primaryButtonLabel: "Yes", secondaryButtonLabel: "No" }))
const run = AssistantTool.registerExecuteToolWithApproval(async (p, user) => {
  ran++
  return { success: true, message: JSON.stringify([p, user, ran]) }
})
run({ a: 1 }, { primaryConfirmed: true, secondaryConfirmed: false })
run()
ask({ a: 2 })
AssistantTool.registerUIView(() => null)({ a: 3 })
setTimeout(() => run({ a: 4 }), 0)
`

func testedTool(t *testing.T) *Tool {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		ManifestFile:        `{"id": "t", "description": "d", "requireApproval": true, "parameters": [{"name": "a", "type": "integer", "required": false}]}`,
		"assistant_tool.js": testedScript,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tool, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return tool
}

// TestAT52_TestFunctions: test functions do nothing by themselves, and what they were
// called with can be called for real by whoever tests.
func TestAT52_TestFunctions(t *testing.T) {
	tool := testedTool(t)
	tests := tool.Tests()
	if len(tests) != 4 {
		t.Fatalf("%d tests: %+v", len(tests), tests)
	}
	for i, want := range []struct {
		kind, params string
		action       *Action
		can          bool
	}{
		{"registerExecuteToolWithApproval", `{"a":1}`, &Action{PrimaryConfirmed: true}, true},
		{"registerExecuteToolWithApproval", `{}`, nil, true},
		{"registerApprovalRequest", `{"a":2}`, nil, true},
		{"registerUIView", `{"a":3}`, nil, false},
	} {
		got := tests[i]
		if got.Kind != want.kind || string(got.Params) != want.params || fmt.Sprint(got.Action != nil) != fmt.Sprint(want.action != nil) ||
			got.Action != nil && *got.Action != *want.action {
			t.Errorf("test %d is %+v, want %+v", i, got, want)
		}
		if _, ok := got.Rehearsal(); ok != want.can {
			t.Errorf("test %d can be made: %t", i, ok)
		}
	}
	// The top level of a real call calls them, too: nothing comes of it.
	call, err := tool.Call([]byte(`{"a":5}`), Options{})
	if err != nil {
		t.Fatal(err)
	}
	ended := call.Run(context.Background())
	if got, want := ended.Result.Assistant[0].Text, `[{"a":5},{"primaryConfirmed":false,"secondaryConfirmed":false},1]`; got != want {
		t.Errorf("a real call ended with %s, want %s", got, want)
	}
}

// TestAT50_Rehearsal: with an action nobody is asked; of the dialog alone the answer is
// the result, and nothing is executed.
func TestAT50_Rehearsal(t *testing.T) {
	tool := testedTool(t)
	asked := 0
	run := func(r Rehearsal) Ended {
		t.Helper()
		call, err := tool.Call([]byte(`{"a":1}`), Options{Test: &r, Hooks: Hooks{
			Ask: func(context.Context, Dialog) (Answer, error) { asked++; return Secondary, nil },
		}})
		if err != nil {
			t.Fatal(err)
		}
		return call.Run(context.Background())
	}
	ended := run(Rehearsal{Action: &Action{PrimaryConfirmed: true}})
	if got, want := ended.Result.Assistant[0].Text, `[{"a":1},{"primaryConfirmed":true,"secondaryConfirmed":false},1]`; got != want || asked != 0 || ended.Declined {
		t.Errorf("with an action: %s, asked %d times, declined %t", got, asked, ended.Declined)
	}
	if ended := run(Rehearsal{Action: &Action{SecondaryConfirmed: true}}); !ended.Declined {
		t.Error("a given no is no decline")
	}
	ended = run(Rehearsal{AskOnly: true})
	if got, want := ended.Result.Assistant[0].Text, `{"primaryConfirmed":false,"secondaryConfirmed":true}`; got != want || asked != 1 || !ended.Result.Success || ended.Declined {
		t.Errorf("of the dialog alone: %s, asked %d times: %+v", got, asked, ended)
	}
}
