package front_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/faketool"
	"github.com/belayhq/belay/local"
)

// editor is a real "belay acp" with an editor in front and an agent behind.
type editor struct {
	*faketool.Client
	*rig // looks at the processes
	n    int
}

func newEditor(t *testing.T, flags ...string) *editor {
	t.Helper()
	return newEditorWith(t, nil, flags...)
}

// newEditorWith is newEditor with more in the agent's environment.
func newEditorWith(t *testing.T, env []string, flags ...string) *editor {
	t.Helper()
	dir, err := os.MkdirTemp("", "belay")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	e := &editor{rig: &rig{t: t, dir: dir, mesh: local.NewMesh(local.MeshOptions{Dirs: []string{dir}})}}
	argv := slices.Concat([]string{os.Args[0], "acp"}, flags, []string{"--", os.Args[0], agentMarker})
	e.Client, err = faketool.StartClient(argv, faketool.ClientOptions{
		Env: append([]string{local.EnvDir + "=" + dir, "BELAY_LOG=debug", "GORACE=atexit_sleep_ms=0"}, env...), Stderr: &e.logs,
	})
	if err != nil {
		t.Fatal(err)
	}
	e.Timeout = 30 * time.Second
	t.Cleanup(func() {
		_ = e.CloseStdin()
		if !e.Ended(20 * time.Second) {
			t.Error("belay acp does not end")
		}
		e.Wait()
		if t.Failed() {
			t.Logf("log:\n%s", e.logs.String())
		}
	})
	e.ok(e.Send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{}}}`))
	e.result("0")
	return e
}

func (e *editor) result(id string) faketool.Message {
	e.t.Helper()
	m, err := e.Expect(id)
	e.ok(err)
	if m.Error != nil {
		e.t.Fatalf("%s", m.Raw)
	}
	return m
}

// open opens a session by one of the methods.
func (e *editor) open(method, session string, entries ...string) {
	e.t.Helper()
	e.n++
	if method == "session/new" {
		e.ok(e.Sendf(`{"jsonrpc":"2.0","id":"o%d","method":%q,"params":{"cwd":"/","mcpServers":%s}}`, e.n, method, array(entries...)))
	} else {
		e.ok(e.Sendf(`{"jsonrpc":"2.0","id":"o%d","method":%q,"params":{"sessionId":%q,"cwd":"/","mcpServers":%s}}`, e.n, method, session, array(entries...)))
	}
	if m := e.result(fmt.Sprintf(`"o%d"`, e.n)); !strings.Contains(m.Raw, `"`+session+`"`) {
		e.t.Fatalf("got %s", m.Raw)
	}
}

// prompt begins a turn whose tool ticks.
func (e *editor) prompt(session, what string) (id string) {
	e.t.Helper()
	e.n++
	id = fmt.Sprint(100 + e.n)
	e.ok(e.Sendf(`{"jsonrpc":"2.0","id":%s,"method":"session/prompt","params":{"sessionId":%q,"prompt":[{"type":"text","text":%q}]}}`, id, session, what))
	return id
}

func (e *editor) stop(session string) {
	e.t.Helper()
	e.ok(e.Sendf(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":%q}}`, session))
}

// path is the kinds of the runs above a call, the call's first, and its names.
func (e *editor) path(address string) (kinds []string, runs []belay.Info) {
	e.t.Helper()
	list, err := e.mesh.List(e.t.Context(), belay.Filter{Ended: true})
	e.ok(err)
	at := e.call(address)
	for len(runs) < 10 {
		kinds, runs = append(kinds, string(at.Kind)), append(runs, at)
		i := slices.IndexFunc(list, func(i belay.Info) bool { return i.ID == at.Parent })
		if i < 0 {
			return kinds, runs
		}
		at = list[i]
	}
	return kinds, runs
}

// tree is the path to a line of belay ps --tree, from the innermost on.
func (e *editor) tree(line string) (path []string) {
	e.t.Helper()
	cmd := exec.Command(os.Args[0], "ps", "--tree")
	cmd.Env = append(os.Environ(), local.EnvDir+"="+e.dir)
	cmd.Stderr = &e.logs
	out, err := cmd.Output()
	e.ok(err)
	depth := -1
	for _, l := range slices.Backward(strings.Split(string(out), "\n")) {
		text := strings.TrimLeft(l, " │├└─")
		at := utf8.RuneCountInString(l) - utf8.RuneCountInString(text)
		if depth < 0 && strings.HasPrefix(text, line) || at < depth {
			depth = at
			what, _, _ := strings.Cut(text, "  ")
			path = append(path, what)
		}
		if depth == 0 {
			break
		}
	}
	if len(path) < 2 {
		e.t.Logf("belay ps --tree:\n%s", out)
	}
	return path
}

// All three kinds of servers, in session/new, load and resume, behind a real belay
// acp: a Stop by the editor stops the server's work although the agent tells its
// servers nothing; calls of the other session live on; the tree spans the
// processes (acceptance 14 and 18).
func TestACP_B11_EditorsStop(t *testing.T) {
	t.Parallel()
	files := newFake(t)
	web, webSeen, webURL := upstream(t, "http", false)
	old, oldSeen, oldURL := upstream(t, "sse", false)
	e := newEditor(t, "--linger=20ms")
	servers := map[string]fake{"files": files, "web": web, "old": old}
	entries := []string{files.entry("files", ""), webEntry("http", "web", webURL, hush), webEntry("sse", "old", oldURL, hush)}
	e.open("session/new", "s_1", entries...)
	e.open("session/load", "s_l", entries...)
	e.open("session/resume", "s_r", entries...)
	beside := e.prompt("s_l", `{"server":"web","key":"beside"}`)
	e.saw(web, "beside", "tick")
	for i, session := range []string{"s_1", "s_r"} {
		for name, f := range servers {
			key := fmt.Sprint(name, i)
			id := e.prompt(session, fmt.Sprintf(`{"server":%q,"key":%q,"toolCall":"tc_%s","title":"some work","use":"tc_%s"}`, name, key, key, key))
			e.saw(f, key, "tick")
			if name == "files" {
				shown := e.tree("tick (call of files)")
				if want := []string{"tick (call of files)", "some work (call of front.test)", "prompt (turn of front.test)", "session (session of front.test)"}; len(shown) != 5 || !slices.Equal(shown[:4], want) {
					t.Errorf("belay ps --tree shows %q", shown)
				}
				kinds, runs := e.path(fmt.Sprintf("%q", key))
				if got := strings.Join(kinds, " < "); got != "call < call < turn < session < session" || runs[1].Labels["tool_call_id"] != "tc_"+key || runs[0].Pid == runs[1].Pid || runs[0].Server != "files" {
					t.Errorf("the tree is %s: %+v", got, runs)
				}
			}
			e.stop(session)
			if m := e.result(id); !strings.Contains(m.Raw, `"cancelled"`) {
				t.Errorf("%s: the editor got %s", key, m.Raw)
			}
			e.saw(f, key, "stopped")
		}
	}
	e.lives(web, "beside")
	for _, h := range slices.Concat(webSeen.headers(), oldSeen.headers()) {
		if h.Get("Authorization") != "Bearer hush" {
			t.Errorf("a server got %v", h)
		}
	}
	e.stop("s_l")
	e.result(beside)
	e.saw(web, "beside", "stopped")
}

// An operator stops one MCP call: the model reads of it and the turn goes on to
// its own end (acceptance 15).
func TestACP_B27_OperatorsStop(t *testing.T) {
	t.Parallel()
	e := newEditor(t)
	f := newFake(t)
	e.open("session/new", "s_1", f.entry("files", ""))
	id := e.prompt("s_1", `{"server":"files","key":"w"}`)
	e.saw(f, "w", "tick")
	kinds, _ := e.path(`"w"`)
	if got := strings.Join(kinds, " < "); got != "call < turn < session < session" {
		t.Errorf("the tree is %s", got)
	}
	_, err := e.mesh.Cancel(t.Context(), belay.CancelRequest{
		Filter:       belay.Filter{IDs: []belay.RunID{e.call(`"w"`).ID}},
		Cancellation: belay.Cancellation{Cause: belay.CauseOperator, By: "ops", Reason: "cost"},
	})
	e.ok(err)
	e.saw(f, "w", "stopped")
	if m := e.result(id); !strings.Contains(m.Raw, "end_turn") {
		t.Errorf("the editor got %s", m.Raw)
	}
	_, err = e.Await("what the model read", func(m faketool.Message) bool {
		return strings.Contains(m.Raw, "the tool said") && strings.Contains(m.Raw, "Cancelled") && strings.Contains(m.Raw, "cost")
	})
	e.ok(err)
}

// A server that the user has put behind wrap in the agent's own configuration is
// placed as well: the Stop of the only turn reaches it, and leaves it to the next.
func TestACP_B13_OwnConfiguration(t *testing.T) {
	f := newFake(t)
	own, err := json.Marshal(slices.Concat([]string{os.Args[0], "wrap", "--name=own", "--"}, f.argv))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(envOwn, string(own))
	e := newEditor(t, "--linger=20ms")
	e.open("session/new", "s_1")
	e.open("session/new", "s_2")
	for _, session := range []string{"s_1", "s_2"} {
		id := e.prompt(session, fmt.Sprintf(`{"server":"own","key":"%s"}`, session))
		e.saw(f, session, "tick")
		if kinds, _ := e.path(fmt.Sprintf("%q", session)); strings.Join(kinds, " < ") != "call < turn < session < session" {
			t.Errorf("the tree is %v", kinds)
		}
		e.stop(session)
		e.result(id)
		e.saw(f, session, "stopped")
	}
}

// A closed session's servers end although the agent keeps them; and when Belay is
// killed, or the editor is gone, nothing is left (ACP-B32, ACP-B35, acceptance 17).
func TestACP_B32_NoOrphans(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"close", "EOF", "SIGKILL"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			e := newEditor(t, "--exit-grace=200ms", "--kill-after=300ms")
			f := newFake(t, "-deaf-eof")
			e.open("session/new", "s_1", f.entry("files", ""))
			e.prompt("s_1", `{"server":"files","key":"w"}`)
			e.saw(f, "w", "tick")
			pids := append(f.Pids("w"), e.call(`"w"`).Pid)
			within := 5 * time.Second
			switch how {
			case "close":
				e.ok(e.Send(`{"jsonrpc":"2.0","id":"c","method":"session/close","params":{"sessionId":"s_1"}}`))
				e.result(`"c"`)
			case "EOF":
				e.ok(e.CloseStdin())
			case "SIGKILL":
				e.ok(e.Signal(syscall.SIGKILL))
				within = time.Second
			}
			if left := faketool.WaitDead(pids, within+10*time.Second); len(left) > 0 { // a busy machine
				t.Errorf("alive: %v", left)
			}
		})
	}
}
