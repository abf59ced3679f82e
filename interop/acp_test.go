package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay/internal/fakemodel"
	"github.com/belayhq/belay/internal/faketool"
	"github.com/belayhq/belay/internal/pinned"
)

// TestACPPins: the pins of the agents are whole, and name one package each.
func TestACPPins(t *testing.T) {
	for _, key := range append(acpNames(), "node") {
		raw, err := peerFiles.ReadFile("peers/acp-agents/" + key + "/package-lock.json")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := pinned.Locked(raw); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
	for _, a := range acpAgents {
		if name, version, ok := strings.Cut(a.pin(), " "); !ok || version == "" || strings.ContainsAny(version, "^~*x") || name == "" {
			t.Errorf("%s is pinned as %q", a.key, a.pin())
		}
	}
}

// TestACPSelected: all, those named, or in CI those marked for it: at least two.
func TestACPSelected(t *testing.T) {
	t.Setenv("CI", "")
	all, err := acpSelected("")
	if err != nil || len(all) != len(acpAgents) {
		t.Error(len(all), err)
	}
	t.Setenv("CI", "true")
	if some, err := acpSelected(""); err != nil || len(some) < 2 || len(some) == len(acpAgents) {
		t.Error(len(some), err)
	}
	if named, err := acpSelected("opencode,claude"); err != nil || len(named) != 2 || named[0].key != "opencode" {
		t.Error(named, err)
	}
	if _, err := acpSelected("nobody"); err == nil || !strings.Contains(err.Error(), "claude, codex") {
		t.Error(err)
	}
}

// TestACPSettings: an agent knows no model but ours, and no home but its own.
func TestACPSettings(t *testing.T) {
	for _, a := range acpAgents {
		for _, ask := range []bool{false, true} {
			place := acpPlace{home: t.TempDir(), work: t.TempDir(), model: "http://127.0.0.1:9"}
			env, err := a.settings(place, ask)
			if err != nil {
				t.Fatal(err)
			}
			all := strings.Join(env, "\n")
			err = filepath.WalkDir(place.home, func(path string, entry os.DirEntry, err error) error {
				if err != nil || entry.IsDir() {
					return err
				}
				raw, err := os.ReadFile(path)
				if strings.HasSuffix(path, ".json") && !json.Valid(raw) {
					t.Errorf("%s: %s is no JSON", a.key, path)
				}
				all += "\n" + string(raw)
				return err
			})
			if err != nil || !strings.Contains(all, place.model) {
				t.Errorf("%s does not know the model: %v\n%s", a.key, err, all)
			}
			if strings.Count(all, "http") != strings.Count(all, place.model) {
				t.Errorf("%s knows another address: %s", a.key, all)
			}
		}
	}
}

func TestNodeMajor(t *testing.T) {
	for version, want := range map[string]int{"v22.23.3\n": 22, "v9.0.0": 9, "22": 22, "": 0, "none": 0} {
		if got := nodeMajor(version); got != want {
			t.Errorf("%q: %d", version, got)
		}
	}
}

// fine is a row under Belay with nothing to say against it.
func fine() acpRow {
	return acpRow{belay: true, told: "cancelled", ends: 1, alive: []int{1, 1, 0}, receipt: "confirmed", next: "ok"}
}

func TestACPJudge(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*acpRow)
		fail   bool
	}{
		"fine":             {func(*acpRow) {}, false},
		"bare":             {func(r *acpRow) { *r = acpRow{told: "not answered", alive: []int{1, 1, 1}} }, false},
		"another end":      {func(r *acpRow) { r.told = "end_turn" }, true},
		"no end":           {func(r *acpRow) { r.told = errNoEnd.Error() }, true},
		"two ends":         {func(r *acpRow) { r.ends = 2 }, true},
		"settled":          {func(r *acpRow) { r.toldAfter = acpSettle + acpExtra/2 }, false},
		"settled late":     {func(r *acpRow) { r.toldAfter = acpSettle + 2*acpExtra }, true},
		"later than bare":  {func(r *acpRow) { r.toldAfter, r.bare = 4*time.Second, &acpRow{told: "cancelled"} }, true},
		"bare never ends":  {func(r *acpRow) { r.toldAfter, r.bare = 4*time.Second, &acpRow{told: "not answered"} }, false},
		"left alive":       {func(r *acpRow) { r.alive = []int{1, 1, 1} }, true},
		"went on":          {func(r *acpRow) { r.wentOn = acpGone + time.Second }, true},
		"still at it":      {func(r *acpRow) { r.stillAt = true }, true},
		"ran after it":     {func(r *acpRow) { r.ran = true }, true},
		"no receipt":       {func(r *acpRow) { r.receipt = "" }, true},
		"not proven":       {func(r *acpRow) { r.receipt = "signalled" }, false},
		"an innocent died": {func(r *acpRow) { r.hurt = []string{"the MCP server"} }, true},
		"next fails":       {func(r *acpRow) { r.next = "not answered" }, true},
		"end, gone":        {func(r *acpRow) { r.end, r.limit, r.told, r.alive = true, 5*time.Second, "", []int{9, 9, 2, 0} }, false},
		"end, left":        {func(r *acpRow) { r.end, r.limit, r.alive = true, 5*time.Second, []int{9, 9, 2, 1} }, true},
		"end, no answer":   {func(r *acpRow) { r.end, r.answered, r.told = true, true, errNoEnd.Error() }, true},
		"end, answered": {func(r *acpRow) {
			r.end, r.answered, r.told, r.limit, r.alive = true, true, "error", acpSettle, []int{0}
		}, false},
		"killed, gone":      {func(r *acpRow) { r.end, r.limit, r.alive = true, time.Second, []int{9, 0, 0} }, false},
		"killed, left":      {func(r *acpRow) { r.end, r.limit, r.alive = true, time.Second, []int{9, 1, 0} }, true},
		"second Stop":       {func(r *acpRow) { r.twice, r.early, r.bare = true, 1, &acpRow{early: 1} }, false},
		"taken too early":   {func(r *acpRow) { r.twice, r.bare = true, &acpRow{early: 1} }, true},
		"bare takes it too": {func(r *acpRow) { r.twice, r.bare = true, &acpRow{} }, false},
		"second Stop fails": {func(r *acpRow) { r.twice, r.early, r.late = true, 1, 1 }, true},
		"a problem remains": {func(r *acpRow) { r.problem = "it did not start" }, true},
	} {
		r := fine()
		c.change(&r)
		if r.judge(); (r.problem != "") != c.fail {
			t.Errorf("%s: problem %q", name, r.problem)
		}
		if cells := r.cells(); len(cells) != len(acpTable().columns) {
			t.Errorf("%s: %d cells", name, len(cells))
		}
	}
}

// scripted is a session whose other end says what the test wants.
func scripted(t *testing.T, version int) (*acpSession, func(line string)) {
	t.Helper()
	ours, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	drain, toPeer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = drain.Close(), theirs.Close() })
	s := &acpSession{Client: faketool.NewClient(ours, toPeer), version: version, id: "s", record: &acpRecord{}}
	return s, func(line string) {
		if _, err := theirs.WriteString(line + "\n"); err != nil {
			t.Error(err)
		}
	}
}

// TestACPEnds: which lines end a turn, in both versions, and that a second end is
// seen.
func TestACPEnds(t *testing.T) {
	const idle = `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"state_update","state":"idle"%s}}}`
	for _, c := range []struct {
		version int
		lines   []string
		want    []string
	}{
		{1, []string{`{"jsonrpc":"2.0","id":1,"result":{"stopReason":"cancelled"}}`}, []string{"cancelled"}},
		{1, []string{`{"jsonrpc":"2.0","id":"1","result":{"stopReason":"cancelled"}}`}, nil},
		{1, []string{`{"jsonrpc":"2.0","id":1,"error":{"code":-32800,"message":"x"}}`}, []string{"error -32800: x"}},
		{1, []string{`{"jsonrpc":"2.0","id":1,"result":{"stopReason":"cancelled"}}`, `{"jsonrpc":"2.0","id":1,"result":{"stopReason":"end_turn"}}`}, []string{"cancelled", "end_turn"}},
		{2, []string{`{"jsonrpc":"2.0","id":1,"result":{"messageId":"m"}}`, strings.Replace(idle, "%s", "", 1)}, nil},
		{2, []string{`{"jsonrpc":"2.0","id":1,"result":{}}`, strings.Replace(idle, "%s", `,"stopReason":"cancelled"`, 1)}, []string{"cancelled"}},
		{2, []string{strings.Replace(strings.Replace(idle, "%s", `,"stopReason":"cancelled"`, 1), `"s"`, `"other"`, 1)}, nil},
	} {
		s, peer := scripted(t, c.version)
		turn, err := s.prompt("x")
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range c.lines {
			peer(line)
		}
		peer(`{"jsonrpc":"2.0","method":"over"}`)
		if _, err := s.Notification("over"); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range s.ends(turn) {
			got = append(got, e.word)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("version %d, %q: %q", c.version, c.lines, got)
		}
		if n := len(s.record.lines); n != 1 || !strings.HasPrefix(s.record.lines[0].text, `> {"jsonrpc":"2.0","id":1,"method":"session/prompt"`) {
			t.Errorf("recorded: %v", s.record.lines)
		}
	}
}

func TestACPAllowing(t *testing.T) {
	id, err := allowing([]byte(`{"options":[{"optionId":"no","kind":"reject_once"},{"optionId":"y\u0065s","kind":"allow_once"}]}`))
	if err != nil || string(id) != `"y\u0065s"` {
		t.Errorf("%s %v", id, err)
	}
	if _, err := allowing([]byte(`{"options":[]}`)); err == nil {
		t.Error("an empty list allows nothing")
	}
}

// TestSlow: the MCP server lists its tool, works, writes it down, and stops when
// it is told.
func TestSlow(t *testing.T) {
	w := faketool.NewWitness(filepath.Join(t.TempDir(), "witness"))
	c, err := faketool.StartClient([]string{executable(), slowMarker, w.Path}, faketool.ClientOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := c.Initialize("2025-06-18"); err != nil || !strings.Contains(string(m.Result), "2025-06-18") {
		t.Error(m.Raw, err)
	}
	if err := c.Send(`{"jsonrpc":"2.0","id":"l","method":"tools/list"}`); err != nil {
		t.Fatal(err)
	}
	if m, err := c.Expect(`"l"`); err != nil || !strings.Contains(string(m.Result), `"slow"`) {
		t.Error(m.Raw, err)
	}
	if err := c.Call("7", "slow", `{"seconds":60}`, ""); err != nil {
		t.Fatal(err)
	}
	if err := c.Call("8", "slow", `{"seconds":0.2}`, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Expect("8"); err != nil {
		t.Error(err)
	}
	if err := c.Cancel("7", "enough"); err != nil {
		t.Fatal(err)
	}
	if e, err := w.WaitFor(slowKey, "stopped", 10*time.Second); err != nil || e.Detail != "7" {
		t.Error(e, err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if len(c.Responses("7")) > 0 || w.Count(slowKey, "eof") != 1 {
		t.Errorf("%v", w.Of(slowKey, ""))
	}
}

// TestMarked finds a process by what it inherited, and no other.
func TestMarked(t *testing.T) {
	if !acpHere {
		t.Skip("the agents' rows are measured on Linux only")
	}
	dir := t.TempDir()
	argv := faketool.Command("tick", "-life=30s")
	c, err := faketool.StartClient(argv, faketool.ClientOptions{Alone: true, Env: []string{"HOME=" + dir}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	list := marked(dir)
	if len(list) != 1 || list[0].pid != c.Pid() || list[0].command != strings.Join(argv, " ") {
		t.Errorf("%v", list)
	}
	if err := c.Signal(os.Kill); err != nil {
		t.Fatal(err)
	}
	if left := faketool.WaitDead([]int{c.Pid()}, 10*time.Second); len(left) > 0 {
		t.Error(left)
	}
	if list := marked(dir); len(list) > 0 {
		t.Errorf("a dead one is listed: %v", list)
	}
}

// TestACPRecord: a transcript holds no place of this machine and no version, and
// is in order.
func TestACPRecord(t *testing.T) {
	model, err := fakemodel.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(model.Close)
	s, peer := scripted(t, 1)
	s.agent, s.dir, s.model = acpAgents[0], "/scratch/acp-1", model
	_, version, _ := strings.Cut(s.agent.pin(), " ")
	if err := s.say(`{"method":"hello","cwd":"/scratch/acp-1/repo","run":"` + executable() + `"}`); err != nil {
		t.Fatal(err)
	}
	peer(`{"method":"over","version":"` + version + `","at":"` + model.URL() + `/v1"}`)
	if _, err := s.Notification("over"); err != nil {
		t.Fatal(err)
	}
	if err := s.say(`{"method":"bye"}`); err != nil {
		t.Fatal(err)
	}
	h := &harness{record: t.TempDir(), cache: "/somewhere"}
	if err := h.keepRecord(&acpRun{s: s, r: &acpRow{}}, acpCells[0]); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(h.record, "claude_v1_stop_shell_tool.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	_, lines, _ := strings.Cut(string(raw), "-- lines --\n")
	want := `> {"method":"hello","cwd":"/session/repo","run":"/usr/bin/tool"}
< {"method":"over","version":"0.0.0","at":"http://127.0.0.1:1/v1"}
> {"method":"bye"}
`
	if lines != want {
		t.Errorf("%s", lines)
	}
}
