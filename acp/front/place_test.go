package front

import (
	"testing"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/local"
)

// Agents name the same tool in ways of their own (ACP-B13).
func TestACP_B13_NamesFit(t *testing.T) {
	for name, want := range map[string]int{
		"mcp__files__read_file": 2, "files.read_file": 2, "files_read_file": 2, "read_file (files MCP Server)": 2,
		"Tool: files/read_file": 2, "READ_FILE of Files": 2, "read_file": 1, `read_file {"path":"x"}`: 1,
		"read_files": 0, "mcp__file__read_file": 0, "cat read_file": 0, "": 0, "Bash": 0,
	} {
		if got := fits(name, &local.Asked{Server: "files", Tool: "read_file"}); got != want {
			t.Errorf("%q: %d, want %d", name, got, want)
		}
	}
	for _, call := range []local.Asked{{Server: "files"}, {}, {Server: "files", Tool: "--"}} {
		if fits("files", &call) != 0 || fits("", &call) != 0 {
			t.Errorf("%+v fits", call)
		}
	}
}

// A call belongs to the tool call that it names, else to the only one that fits,
// else to the turn; never to one that is over, or of another turn.
func TestACP_B13_WhichToolCall(t *testing.T) {
	tree := belay.NewTree(belay.Options{})
	f := New(Options{Tree: tree})
	register := func(kind belay.Kind, name string, above *belay.Run, id string) *belay.Run {
		t.Helper()
		spec := belay.Spec{Kind: kind, Name: name, Parent: above}
		if id != "" {
			spec.Labels = map[string]string{labelToolCall: id}
		}
		run, err := tree.Register(spec)
		if err != nil {
			t.Fatal(err)
		}
		return run
	}
	session := register(belay.KindSession, "editor", nil, "")
	if _, _, err := f.Rewrite(t.Context(), session, []byte("[]")); err != nil {
		t.Fatal(err)
	}
	call := local.Asked{Server: "files", Tool: "read", ToolUse: "t1"}
	at := func(want ...*belay.Run) {
		t.Helper()
		got := f.Where(session.ID(), call)
		if len(got) != len(want) {
			t.Fatalf("%v, want %d", got, len(want))
		}
		for i := range got {
			if got[i] != want[i].ID() {
				t.Errorf("%d is %s, want %s", i, got[i], want[i].Name())
			}
		}
	}
	at() // no turn
	old := register(belay.KindTurn, "old", session, "")
	register(belay.KindCall, "files.read", old, "t1")
	turn := register(belay.KindTurn, "turn", session, "")
	f.Place(session, turn)
	at(turn)
	register(belay.KindCall, "files.read", turn, "") // a child request, say
	at(turn)
	one := register(belay.KindCall, "files.read", turn, "t7")
	at(one, turn)
	sub := register(belay.KindCall, "sub-agent", turn, "t8")
	named := register(belay.KindCall, "anything", sub, "t1")
	at(named, turn)
	call.ToolUse = ""
	at(one, turn)
	two := register(belay.KindCall, "mcp__files__read", turn, "t9")
	at(turn) // nobody can tell
	one.Finish(belay.Completed)
	at(two, turn)
	prefix := register(belay.KindCall, "read", turn, "t10")
	at(two, turn) // fits better
	two.Finish(belay.Completed)
	at(prefix, turn)
	call.ToolUse = "t9" // which is over
	at(prefix, turn)
	prefix.Finish(belay.Completed)
	at(turn)
	f.Place(session, nil)
	at()
	if f.Where(belay.NewRunID(), call) != nil {
		t.Error("an unknown session has turns")
	}
}
