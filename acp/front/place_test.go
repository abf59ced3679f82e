package front

import (
	"testing"
	"testing/synctest"
	"time"

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

// A server of the agent's own configuration serves all sessions: its calls belong to
// the tool call that they name, or to the only turn that runs.
func TestACP_B13_OwnServers(t *testing.T) {
	tree := belay.NewTree(belay.Options{})
	register := func(kind belay.Kind, above *belay.Run, labels map[string]string) *belay.Run {
		t.Helper()
		run, err := tree.Register(belay.Spec{Kind: kind, Name: "run", Parent: above, Labels: labels})
		if err != nil {
			t.Fatal(err)
		}
		return run
	}
	agent := register(belay.KindSession, nil, nil)
	f := New(Options{Tree: tree, Agent: agent.ID()})
	at := func(use string, want ...*belay.Run) {
		t.Helper()
		got := f.Where(agent.ID(), local.Asked{Server: "own", Tool: "read", ToolUse: use})
		if len(got) != len(want) {
			t.Fatalf("%v, want %d", got, len(want))
		}
		for i := range got {
			if got[i] != want[i].ID() {
				t.Errorf("%d is %s, want %s", i, got[i], want[i].ID())
			}
		}
	}
	at("")
	var turns, tools []*belay.Run
	for i := range 2 {
		session := register(belay.KindSession, agent, nil)
		if _, _, err := f.Rewrite(t.Context(), session, []byte("[]")); err != nil {
			t.Fatal(err)
		}
		turn := register(belay.KindTurn, session, nil)
		f.Place(session, turn)
		turns = append(turns, turn)
		tools = append(tools, register(belay.KindCall, turn, map[string]string{labelToolCall: string(rune('a' + i))}))
		if i == 0 {
			at("", turn)
		}
	}
	at("") // two turns run
	at("a", tools[0], turns[0])
	at("b", tools[1], turns[1])
	at("c")
}

// A call that is read before the tool call that it names waits for it; an agent
// that never tells of what it names is not waited for again and again.
func TestACP_B13_CallBeforeItsToolCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tree := belay.NewTree(belay.Options{})
		f := New(Options{Tree: tree})
		session, err := tree.Register(belay.Spec{Kind: belay.KindSession, Name: "editor"})
		if err != nil {
			t.Fatal(err)
		}
		turn, err := tree.Register(belay.Spec{Kind: belay.KindTurn, Name: "turn", Parent: session})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := f.Rewrite(t.Context(), session, []byte("[]")); err != nil {
			t.Fatal(err)
		}
		f.Place(session, turn)
		where := func(use string) (at []belay.RunID, took time.Duration) {
			begin := time.Now()
			at = f.Where(session.ID(), local.Asked{Server: "files", Tool: "read", ToolUse: use})
			return at, time.Since(begin)
		}
		told := make(chan *belay.Run, 1)
		time.AfterFunc(10*time.Millisecond, func() {
			tool, err := tree.Register(belay.Spec{Kind: belay.KindCall, Name: "x", Parent: turn, Labels: map[string]string{labelToolCall: "t1"}})
			if err != nil {
				t.Error(err)
			}
			told <- tool
		})
		at, took := where("t1")
		tool := <-told
		if len(at) != 2 || at[0] != tool.ID() || took < 10*time.Millisecond || took > announceWait {
			t.Errorf("%v after %v", at, took)
		}
		if at, took := where(""); len(at) != 1 || took != 0 {
			t.Errorf("without an id: %v after %v", at, took)
		}
		for n := range 5 {
			at, took := where("t2")
			if len(at) != 1 || n < maxVain && took < announceWait || n >= maxVain && took != 0 {
				t.Errorf("never told of, %d: %v after %v", n, at, took)
			}
		}
		if at, took := where("t1"); len(at) != 2 || took != 0 {
			t.Errorf("told of: %v after %v", at, took)
		}
	})
}
