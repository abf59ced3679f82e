package bridge

import (
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/belayhq/belay/acp"
	"github.com/belayhq/belay/jsonrpc"
)

// Acceptance 5: sessions of real agents, with a Stop and a next prompt, pass byte for
// byte, ids aside. What is different is what Belay is there for: questions that were
// open at the Stop are answered by it, so that the editor's own answers, and the
// agent's withdrawals, are not needed any more.
func TestACP_B2_RecordedSessionsPassUnchanged(t *testing.T) {
	files, err := filepath.Glob("testdata/real/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no recorded sessions", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, Options{})
				defer r.end()
				p := replay{rig: r, ids: map[string]string{}, dialogs: map[string]string{}, settled: map[string]bool{}}
				for line := range strings.Lines(string(archive.Files[0].Data)) {
					p.line(strings.TrimSuffix(line, "\n"))
				}
				if p.passed < 10 {
					t.Errorf("only %d lines passed", p.passed)
				}
			})
		})
	}
}

// replay plays both ends of a recorded session.
type replay struct {
	*rig
	ids     map[string]string // asker's side and id: the id at the other hop
	dialogs map[string]string // id of an open question of the agent: its method
	settled map[string]bool   // those that Belay has answered
	stopped bool
	passed  int
}

// line plays one line of the recording.
func (p *replay) line(line string) {
	p.Helper()
	if len(line) < 3 {
		return
	}
	from, to, mark := p.editor, p.agent, line[:1]
	if mark == "<" {
		from, to = p.agent, p.editor
	}
	line = line[2:]
	rest, e, ok := bare(line)
	if !ok {
		p.Fatalf("the recording has a line that is no message: %s", line)
	}
	said := line
	id := e.ID.Raw()
	if e.Kind == jsonrpc.Response { // an answer has the id of the hop on which it is given
		other := map[string]string{">": "<", "<": ">"}[mark]
		said = line[:e.IDAt.Start] + p.ids[other+id] + line[e.IDAt.End:]
	}
	vanishes := e.Kind == jsonrpc.Response && mark == ">" && p.settled[id]
	if c, err := acp.ParseCancel(e.Method, e.Params.Of([]byte(line))); err == nil {
		p.withdrawn(from, to, said, c.Request.Raw())
		return
	}
	from.say(said)
	time.Sleep(10 * time.Millisecond)
	got := to.heard()
	if vanishes {
		if len(got) > 0 {
			p.Errorf("a late answer has passed: %q", got)
		}
		return
	}
	if len(got) == 0 {
		p.Fatalf("%s %s\nhas not passed", mark, line)
	}
	gotRest, g, _ := bare(got[0])
	if gotRest != rest {
		p.Errorf("%s %s\npassed as\n  %s", mark, line, got[0])
	}
	p.passed++
	if e.Kind == jsonrpc.Request {
		p.ids[mark+id] = g.ID.Raw()
		if mark == "<" && acp.Dialog(e.Method) {
			p.dialogs[id] = e.Method
		}
	}
	if e.Kind == jsonrpc.Response && mark == ">" {
		delete(p.dialogs, id)
	}
	p.stopped = p.stopped || e.Method == acp.NoticeSessionCancel
	p.dismissed(got[1:])
	if mark == "<" {
		p.dismissed(p.agent.heard())
	}
}

// dismissed checks that what the agent hears beside the recording are answers to
// questions that were open when the turn was stopped.
func (p *replay) dismissed(lines []string) {
	p.Helper()
	for _, line := range lines {
		var e jsonrpc.Envelope
		_ = jsonrpc.Parse([]byte(line), &e)
		method := p.dialogs[e.ID.Raw()]
		if !p.stopped || method == "" || line != string(acp.AppendDismissed(nil, e.ID, method)) {
			p.Errorf("a line that nobody has said: %s", line)
			continue
		}
		delete(p.dialogs, e.ID.Raw())
		p.settled[e.ID.Raw()] = true
	}
}

// withdrawn plays a cancel of a single request.
func (p *replay) withdrawn(from, to *peer, said, id string) {
	p.Helper()
	from.say(said)
	got := to.heard()
	if p.settled[id] && len(got) == 0 {
		return
	}
	want := `{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":` + p.ids["<"+id] + `}}`
	if len(got) != 1 || got[0] != want {
		p.Errorf("a withdrawal has passed as %q, want %s", got, want)
	}
}
