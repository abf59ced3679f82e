package cli

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/calm"
	"github.com/belayhq/belay/internal/faketool"
)

const quick = "--grace 300ms --kill-after 300ms "

// stoppedData is the data of the answer to a call that somebody else stopped.
type stoppedData struct {
	Run    belay.RunID `json:"run"`
	Cause  belay.Cause `json:"cause"`
	Reason string      `json:"reason"`
}

// stopped waits for the one answer of a call that somebody else stopped.
func (w *wrapped) stopped(id string) (m faketool.Message, d stoppedData) {
	w.m.t.Helper()
	m, err := w.Expect(id)
	w.ok(err)
	if m.Error == nil || m.Error.Code != belay.CodeCancelled || json.Unmarshal(m.Error.Data, &d) != nil {
		w.m.t.Fatalf("the caller got %s", m.Raw)
	}
	return m, d
}

// Issue, DESIGN 3: `belay cancel` from another terminal stops a call: its
// client is answered at once, the witness stops, the receipt says confirmed,
// the exit code is 0, and the session lives on.
func TestWrapCancel(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	w := m.wrap(quick + "--enforce strict")
	w.start("1", "fork", "k", `,"deaf":true,"fork":["daemon","termproof"]`)
	info := m.find(belay.KindCall, "fork")

	out, _, code := m.belay("cancel", info.ID.String(), "--dry-run")
	if code != 0 || !strings.Contains(out, strconv.Itoa(w.w.Pids("server")[0])) || w.w.Count("k", "signal") != 0 {
		t.Errorf("dry run: exit code %d\n%s", code, out)
	}
	if !w.w.StillTicking("k", 2*time.Second) {
		t.Error("the dry run stopped something")
	}

	look := calm.Start(t)
	out, errs, code := m.belay("cancel", info.ID.String(), "--reason", "wrong branch")
	if code != 0 || !strings.Contains(out, "confirmed") {
		t.Errorf("exit code %d\n%s\n%s", code, out, errs)
	}
	answer, data := w.stopped("1")
	if data.Run != info.ID || data.Cause != belay.CauseUser || data.Reason != "wrong branch" {
		t.Errorf("data %+v", data)
	}
	told, err := w.w.WaitFor("k", "signal", 30*time.Second)
	w.ok(err)
	// At once: partial_wait after the Stop, not after the grace.
	look.Within(t, answer.Time.Sub(told.Time), 290*time.Millisecond, "the client's answer after the server was told")
	if !strings.Contains(told.Detail, "wrong branch") {
		t.Errorf("the server was told %q", told.Detail)
	}
	if w.w.StillTicking("k", 100*time.Millisecond) {
		t.Error("the tool works on")
	}
	if left := faketool.WaitDead(w.w.Pids("k/"), time.Second); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
	w.echo()
	if n := len(w.Responses("1")); n != 1 {
		t.Errorf("the client got %d answers", n)
	}
}

// Issue: a deadline stops a call as a cancel does, with cause deadline, also
// while progress arrives.
func TestWrapDeadline(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	w := m.wrap(quick + "--enforce strict --deadline 1s")
	w.start("1", "tick", "k", `,"deaf":true`)
	_, data := w.stopped("1")
	if data.Cause != belay.CauseDeadline {
		t.Errorf("data %+v", data)
	}
	var detail belay.Detail
	for end := time.Now().Add(10 * time.Second); detail.Receipt == nil || !detail.Receipt.Final; time.Sleep(100 * time.Millisecond) {
		out, errs, _ := m.belay("status", data.Run.String(), "--json")
		if err := json.Unmarshal([]byte(out), &detail); err != nil || time.Now().After(end) {
			t.Fatalf("status: %v\n%s\n%s", err, out, errs)
		}
	}
	if r := detail.Receipt; r.Verdict != belay.Confirmed || r.Cancellation.Cause != belay.CauseDeadline {
		t.Errorf("receipt %+v", r)
	}
	if w.w.StillTicking("k", 100*time.Millisecond) {
		t.Error("the tool works on")
	}
	// The deadline holds for the next call as well, so that it waits for the new process.
	_, err := w.w.WaitCount("server", "initialized", 2, 30*time.Second)
	w.ok(err)
	w.echo()
}

// DESIGN 11.1: the default auto keeps a server that obeys in silence, `cancel`
// says that this is no proof (3), and a second one uses force (0).
func TestWrapSecondStop(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	w := m.wrap(quick)
	w.ok(w.Call("1", "tick", `{"key":"k","n":1000,"ms":100}`, ""))
	_, err := w.w.WaitFor("k", "tick", 20*time.Second)
	w.ok(err)
	info := m.find(belay.KindCall, "tick")
	out, errs, code := m.belay("cancel", info.ID.String(), "--wait", "1s")
	if code != ExitUnconfirmed {
		t.Errorf("exit code %d\n%s\n%s", code, out, errs)
	}
	server := w.w.Pids("server")[0]
	if !faketool.Alive(server) || w.w.Count("server", "sigterm") != 0 {
		t.Error("force was used at the first Stop")
	}
	out, errs, code = m.belay("cancel", info.ID.String())
	if code != 0 || !strings.Contains(out, "confirmed") {
		t.Errorf("second Stop: exit code %d\n%s\n%s", code, out, errs)
	}
	if faketool.Alive(server) {
		t.Error("the process lives after the second Stop")
	}
	w.echo()
}

// Issue: whatever ends Belay, no process of a tool is left after a second.
func TestWrapEnds(t *testing.T) {
	t.Parallel()
	ends := map[string]func(w *wrapped) error{
		"SIGKILL":     func(w *wrapped) error { return w.Signal(syscall.SIGKILL) },
		"SIGTERM":     func(w *wrapped) error { return w.Signal(syscall.SIGTERM) },
		"SIGINT":      func(w *wrapped) error { return w.Signal(os.Interrupt) },
		"end of file": func(w *wrapped) error { return w.CloseStdin() },
	}
	for name, end := range ends {
		for _, cgroup := range []string{"auto", "off"} {
			t.Run(name+"/"+cgroup, func(t *testing.T) {
				t.Parallel()
				m := newMachine(t)
				w := m.wrap(quick+"--cgroup "+cgroup, "-deaf-term", "-stay")
				w.start("1", "fork", "k", `,"deaf":true,"fork":["child","setsid","daemon","envi","respawn","termproof"]`)
				for _, how := range []string{"child", "setsid", "daemon", "envi", "respawn", "termproof"} {
					_, err := w.w.WaitFor("k/"+how, "tick", 20*time.Second)
					w.ok(err)
				}
				look, at := calm.Start(t), time.Now()
				w.ok(end(w))
				pids := append(w.w.Pids("k/"), w.w.Pids("server")...)
				left := faketool.WaitDead(pids, 5*time.Second)
				pids = append(w.w.Pids("k/"), w.w.Pids("server")...) // a pair may have respawned meanwhile
				left = append(left, faketool.WaitDead(pids, time.Second)...)
				last := time.Time{}
				for _, e := range w.w.Events() {
					if e.Time.After(last) {
						last = e.Time
					}
				}
				if len(left) > 0 {
					t.Errorf("processes are left: %v", left)
				}
				look.Within(t, last.Sub(at), busy*time.Second, "the tool's work after the end")
				if name != "SIGKILL" && w.Wait() != 0 {
					t.Errorf("exit code %d", w.Wait())
				}
			})
		}
	}
}

// A caller whose stdin ends while a call is in flight, and whose server obeys:
// everything is over and the exit code is 0. What Belay says goes to stderr.
func TestWrapEndOfFileObedient(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	w := m.wrap(quick)
	w.start("1", "tick", "k", "")
	w.ok(w.CloseStdin())
	if code := w.Wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if w.w.StillTicking("k", 100*time.Millisecond) {
		t.Error("the tool works on")
	}
	for _, got := range w.Messages() {
		if !got.JSON {
			t.Errorf("stdout has %q", got.Raw)
		}
	}
}

// Issue, bad input: each gets one clear line and the right exit code.
func TestWrapBadInput(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, []byte("no program"), 0o644); err != nil {
		t.Fatal(err)
	}
	dies := strings.Join(faketool.Command("server", "-die"), " ")
	cases := []struct {
		name, args string
		code       int
		says       []string
	}{
		{"not found", "wrap -- /no/such/command", ExitUsage, []string{"/no/such/command", "not found"}},
		{"not in PATH", "wrap -- no-such-command-anywhere x", ExitUsage, []string{"no-such-command-anywhere", "PATH"}},
		{"not executable", "wrap -- " + plain, ExitUsage, []string{plain, "execut"}},
		{"a directory", "wrap -- " + dir, ExitUsage, []string{dir}},
		{"dies at once", "wrap -- " + dies, ExitFailed, []string{"exit code 41"}},
		{"no command", "wrap", ExitUsage, []string{"command", "wrap --help"}},
		{"no command after --", "wrap --", ExitUsage, []string{"missing", "wrap --help"}},
		{"wrong flag", "wrap --nonsense -- true", ExitUsage, []string{"unknown flag --nonsense", "wrap --help"}},
		{"wrong enforce", "wrap --enforce maybe -- true", ExitUsage, []string{"enforce", "auto", "strict", "lenient", "never"}},
		{"wrong isolation", "wrap --isolation total -- true", ExitUsage, []string{"isolation", "shared", "call"}},
		{"wrong time", "wrap --grace soon -- true", ExitUsage, []string{"grace"}},
		{"negative time", "wrap --grace=-1s -- true", ExitUsage, []string{"grace"}},
		{"command and url", "wrap --url http://127.0.0.1:9/mcp -- true", ExitUsage, []string{"--url", "exclude"}},
		{"wrong url", "wrap --url ftp://127.0.0.1/mcp", ExitUsage, []string{"ftp://127.0.0.1/mcp", "http"}},
		{"header without url", "wrap --header a:b -- true", ExitUsage, []string{"--header", "--url"}},
		{"wrong header", "wrap --url http://127.0.0.1:9/mcp --header nonsense", ExitUsage, []string{"nonsense", "NAME: VALUE"}},
		{"wrong label", "wrap --label job -- true", ExitUsage, []string{"job", "KEY=VALUE"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.env = append(m.env, "BELAY_LOG=error")
			out, errs, code := m.belay(strings.Fields(c.args)...)
			var lines []string // the server's own words are not Belay's
			for line := range strings.SplitSeq(strings.TrimSpace(errs), "\n") {
				if !strings.HasPrefix(line, "faketool") {
					lines = append(lines, line)
				}
			}
			if code != c.code || out != "" || len(lines) != 1 {
				t.Errorf("exit code %d, want %d; stdout %q, stderr:\n%s", code, c.code, out, errs)
			}
			for _, text := range c.says {
				if !strings.Contains(lines[0], text) {
					t.Errorf("%q does not say %q", lines[0], text)
				}
			}
		})
	}
}

// A server that dies before the handshake, with its client waiting: the client
// gets an error, Belay says why in one line and exits with 1.
func TestWrapDiesBeforeHandshake(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	argv := append([]string{"belay", "wrap", "--"}, faketool.Command("server", "-die")...)
	errs := &faketool.Text{}
	c, err := faketool.StartClient(argv, faketool.ClientOptions{Env: append(m.env, "BELAY_LOG=error"), Stderr: errs})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if m, err := c.Initialize("2025-06-18"); err == nil && m.Error == nil {
		t.Errorf("initialize succeeded: %s", m.Raw)
	}
	if code := c.Wait(); code != ExitFailed || !strings.Contains(errs.String(), "belay: wrap: ") || !strings.Contains(errs.String(), "exit code 41") {
		t.Errorf("exit code %d\n%s", code, errs)
	}
}

// DESIGN 4: a Belay under a Belay attaches its runs below the run that started
// it, over processes, and is stopped with it.
func TestWrapNested(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	w := m.wrapBelow(quick+"--name outer", []string{"belay", "wrap", "--name", "mid", "--", "belay", "wrap", "--name", "inner", "--"})
	w.start("1", "fork", "k", `,"deaf":true,"fork":["daemon"]`)
	outer, mid, inner := m.find(belay.KindSession, "outer"), m.find(belay.KindSession, "mid"), m.find(belay.KindSession, "inner")
	if mid.Parent != outer.ID || inner.Parent != mid.ID || inner.Pid == mid.Pid || mid.Pid == outer.Pid {
		t.Errorf("not one below the other:\n%+v\n%+v\n%+v", outer, mid, inner)
	}
	var above []belay.RunID
	for _, i := range m.runs() {
		if i.Kind == belay.KindCall && i.Name == "fork" {
			above = append(above, i.Parent)
		}
	}
	if len(above) != 3 || !slices.Contains(above, outer.ID) || !slices.Contains(above, mid.ID) || !slices.Contains(above, inner.ID) {
		t.Errorf("runs below %v stand for the call, want one in each Belay", above)
	}
	// The Belays in the middle end within the half second that the one above
	// leaves them, or are ended with the rest: then only that one has proof.
	out, errs, code := m.belay("cancel", outer.ID.String(), "--json")
	var results []belay.CancelResult
	if err := json.Unmarshal([]byte(out), &results); err != nil || code != 0 && code != ExitUnconfirmed {
		t.Fatalf("%v, exit code %d\n%s\n%s", err, code, out, errs)
	}
	for _, r := range results {
		if r.Receipt == nil || r.Run.Cancellation == nil || r.Run.ID == outer.ID && !r.Receipt.OK() {
			t.Errorf("result %+v, receipt %+v", r.Run, r.Receipt)
		}
	}
	pids := append(w.w.Pids("k/"), w.w.Pids("server")...)
	if left := faketool.WaitDead(append(pids, inner.Pid, mid.Pid), 3*time.Second); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
	if _, data := w.stopped("1"); data.Cause != belay.CauseParent && data.Cause != belay.CauseUser {
		t.Errorf("the client was told %+v", data)
	}
	if code := w.Wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// A call of the outer Belay that is stopped stops its counterpart in the inner
// one, by the protocol; the tool's own tool, run by `belay exec`, hangs below
// the session and ends with it.
func TestWrapExecInside(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	w := m.wrap(quick + "--name outer --enforce strict")
	belayPath, err := exec.LookPath("belay")
	w.ok(err)
	tick := strings.Join(faketool.Command("tick", "-witness="+w.w.Path, "-key=inside", "-deaf-term"), " ")
	w.ok(w.Call("1", "shell", `{"key":"sh","text":"exec `+belayPath+` exec -- `+tick+`"}`, ""))
	_, err = w.w.WaitFor("inside", "tick", 20*time.Second)
	w.ok(err)
	outer := m.find(belay.KindSession, "outer")
	var inside belay.Info
	for _, i := range m.runs() {
		if i.Kind == belay.KindProcess {
			inside = i
		}
	}
	if inside.Parent != outer.ID {
		t.Errorf("exec's run %+v does not hang below %s", inside, outer.ID)
	}
	out, errs, code := m.belay("cancel", m.find(belay.KindCall, "shell").ID.String())
	if code != 0 {
		t.Errorf("exit code %d\n%s\n%s", code, out, errs)
	}
	if left := faketool.WaitDead(append(w.w.Pids("inside"), inside.Pid), 2*time.Second); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
	w.echo()
	if runs := m.runs(); slices.ContainsFunc(runs, func(i belay.Info) bool { return i.Kind == belay.KindProcess && !i.Over() }) {
		t.Errorf("exec's run is still there: %+v", runs)
	}
}
