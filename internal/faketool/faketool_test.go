//go:build unix

package faketool

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	MaybeRun()
	os.Exit(m.Run())
}

// start runs a fake server and returns its client and witness.
func start(t *testing.T, flags ...string) (*Client, *Witness) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "witness")
	argv := Command(append([]string{"server", "-life=30s", "-witness=" + path}, flags...)...)
	c, err := StartClient(argv, ClientOptions{Stderr: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c, NewWitness(path)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func expect(t *testing.T, c *Client, id string) Message {
	t.Helper()
	m, err := c.Expect(id)
	must(t, err)
	return m
}

func TestListeningToolStopsSilently(t *testing.T) { // MCP-8, MCP-10
	for _, version := range legacyVersions {
		c, w := start(t)
		m, err := c.Initialize(version)
		must(t, err)
		if !strings.Contains(string(m.Result), version) {
			t.Fatalf("asked for %s, got %s", version, m.Result)
		}
		must(t, c.Call("1", "tick", `{"key":"k","n":1000}`, `"p"`))
		_, err = w.WaitFor("k", "tick", 5*time.Second)
		must(t, err)
		_, err = c.Notification("notifications/progress")
		must(t, err)
		must(t, c.Cancel("1", "enough"))
		e, err := w.WaitFor("k", "stopped", 5*time.Second)
		must(t, err)
		if told, _ := w.Last("k", "signal"); told.Detail != "enough" || e.Time.Before(told.Time) {
			t.Fatalf("signal %+v, stopped %+v", told, e)
		}
		must(t, c.Call("2", "echo", `{"x":1}`, ""))
		if text := expect(t, c, "2").Text(); text != `{"x":1}` {
			t.Fatal(text)
		}
		if len(c.Responses("1")) != 0 || len(w.Violations()) != 0 {
			t.Fatal(c.Responses("1"), w.Violations())
		}
		must(t, c.Close())
	}
}

func TestDeafToolGoesOn(t *testing.T) {
	c, w := start(t, "-deaf", "-reply=result")
	_, err := c.Initialize(newestLegacy)
	must(t, err)
	must(t, c.Call("1", "tick", `{"key":"k","n":20,"busy":true}`, ""))
	_, err = w.WaitFor("k", "tick", 5*time.Second)
	must(t, err)
	must(t, c.Cancel("1", "please"))
	_, err = w.WaitFor("k", "signal", 5*time.Second)
	must(t, err)
	if !w.StillTicking("k", 2*time.Second) {
		t.Fatal("a deaf tool stopped")
	}
	_, err = w.WaitFor("k", "done", 5*time.Second)
	must(t, err)
	expect(t, c, "1")
}

func TestDeafProcessNeedsKill(t *testing.T) {
	c, w := start(t, "-stay", "-deaf-term", "-deaf")
	_, err := c.Initialize(newestLegacy)
	must(t, err)
	must(t, c.Call("1", "tick", `{"key":"k","n":10000}`, ""))
	must(t, c.CloseStdin())
	_, err = w.WaitFor("server", "eof", 5*time.Second)
	must(t, err)
	must(t, c.Signal(syscall.SIGTERM))
	_, err = w.WaitFor("server", "sigterm", 5*time.Second)
	must(t, err)
	if !w.StillTicking("k", 2*time.Second) {
		t.Fatal("it stopped")
	}
	must(t, c.Signal(syscall.SIGKILL))
	if code := c.Wait(); code != -1 {
		t.Fatal("exit code", code)
	}
}

func TestForksTickOutsideTheProcess(t *testing.T) {
	c, w := start(t)
	_, err := c.Initialize(newestLegacy)
	must(t, err)
	must(t, c.Call("1", "fork", `{"key":"k","n":1000,"fork":["child","setsid","daemon","envi","respawn","termproof"]}`, ""))
	for how := range strings.SplitSeq(forkKinds, ", ") {
		_, err := w.WaitFor("k/"+how, "tick", 10*time.Second)
		must(t, err)
	}
	_, err = w.WaitCount("k/respawn", "start", 2, 5*time.Second)
	must(t, err)
	must(t, syscall.Kill(w.Of("k/respawn", "start")[0].Pid, syscall.SIGKILL))
	_, err = w.WaitCount("k/respawn", "start", 3, 5*time.Second)
	must(t, err)
	// End them all: stop first, so that no half of the pair sees the other die.
	for len(killAll(w.Pids("k/*"))) > 0 {
	}
}

func killAll(pids []int) []int {
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGSTOP)
	}
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	return WaitDead(pids, 2*time.Second)
}

func TestAskBothDirections(t *testing.T) { // MCP-G9, MCP-G22
	c, w := start(t)
	_, err := c.Initialize(newestLegacy)
	must(t, err)
	must(t, c.Call("1", "ask", `{"method":"sampling"}`, ""))
	q, err := c.Notification("sampling/createMessage")
	must(t, err)
	must(t, c.Sendf(`{"jsonrpc":"2.0","id":%s,"result":{"role":"assistant","content":{"type":"text","text":"hi"},"model":"m"}}`, q.ID))
	if text := expect(t, c, "1").Text(); !strings.Contains(text, `"hi"`) {
		t.Fatal(text)
	}
	must(t, c.Call("2", "ask", `{"method":"elicit","cancelMs":20}`, ""))
	if text := expect(t, c, "2").Text(); text != "question cancelled" {
		t.Fatal(text)
	}
	_, err = c.Notification("notifications/cancelled")
	must(t, err)
	must(t, c.Call("3", "ask", `{"method":"roots","key":"k3"}`, ""))
	_, err = w.WaitFor("k3", "ask", 5*time.Second)
	must(t, err)
	must(t, c.Cancel("3", ""))
	_, err = w.WaitFor("k3", "ask-cancelled", 5*time.Second)
	must(t, err)
}

func TestModernNeedsNoHandshake(t *testing.T) { // MCP-57, MCP-66, MCP-68, MCP-73
	c, w := start(t, "-era=modern")
	must(t, c.Send(`{"jsonrpc":"2.0","id":"d","method":"server/discover","params":{"_meta":{`+ModernMeta+`}}}`))
	if m := expect(t, c, `"d"`); !strings.Contains(string(m.Result), `"supportedVersions":["2026-07-28"]`) {
		t.Fatalf("%s", m.Raw)
	}
	must(t, c.CallModern("1", "echo", `{}`, ""))
	if m := expect(t, c, "1"); !strings.Contains(string(m.Result), `"resultType":"complete"`) {
		t.Fatal(m.Raw)
	}
	must(t, c.Call("2", "echo", `{}`, ""))
	if m := expect(t, c, "2"); m.Error == nil || m.Error.Code != -32602 {
		t.Fatal(m.Raw)
	}
	must(t, c.Send(`{"jsonrpc":"2.0","id":"L","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},"_meta":{`+ModernMeta+`}}}`))
	_, err := c.Notification("notifications/subscriptions/acknowledged")
	must(t, err)
	must(t, c.CallModern("3", "list_changed", `{}`, ""))
	_, err = c.Notification("notifications/tools/list_changed")
	must(t, err)
	must(t, c.Cancel(`"L"`, ""))
	_, err = w.WaitFor("server", "unlisten", 5*time.Second)
	must(t, err)
	must(t, c.CallModern("4", "ask", `{"method":"elicit"}`, ""))
	if m := expect(t, c, "4"); !strings.Contains(m.Raw, "input_required") {
		t.Fatal(m.Raw)
	}
}

func TestStateAndStarts(t *testing.T) {
	c, w := start(t, "-versions", "-tools-change", "-start-ask=roots")
	m, err := c.Initialize("2025-06-18")
	must(t, err)
	if !strings.Contains(string(m.Result), "1.0.1") {
		t.Fatal(m.Raw)
	}
	must(t, c.Call("1", "state", `{}`, "")) // waits for the answer to the question
	q, err := c.Notification("roots/list")
	must(t, err)
	must(t, c.Sendf(`{"jsonrpc":"2.0","id":%s,"result":{"roots":[]}}`, q.ID))
	expect(t, c, "1")
	must(t, c.Send(`{"jsonrpc":"2.0","id":2,"method":"logging/setLevel","params":{"level":"warning"}}`))
	must(t, c.Send(`{"jsonrpc":"2.0","id":3,"method":"resources/subscribe","params":{"uri":"a:b"}}`))
	must(t, c.Call("4", "state", `{}`, ""))
	var st state
	must(t, json.Unmarshal([]byte(expect(t, c, "4").Text()), &st))
	if st.Level != "warning" || len(st.Subscribed) != 1 || st.Version != "2025-06-18" || len(st.Answers) != 1 {
		t.Fatalf("%+v", st)
	}
	if n := Starts(w.Path + ".starts"); n != 1 || st.Start != 1 {
		t.Fatal(n, st.Start)
	}
	_, err = c.Initialize("2025-06-18") // the second is a violation
	must(t, err)
	if _, err := w.WaitFor("server", "violation", 5*time.Second); err != nil {
		t.Fatal(err)
	}
}

func TestMischief(t *testing.T) {
	log := filepath.Join(t.TempDir(), "raw")
	c, _ := start(t, "-misbehave=noise,flood-stderr,flood-stdout", "-bytes=100000", "-log="+log, "-early", "-reply=error0", "-deaf")
	_, err := c.Initialize(newestLegacy)
	must(t, err)
	if c.Messages()[0].JSON {
		t.Fatal("no noise")
	}
	for i, what := range []string{"noise", "invalid", "unknown-id", "null-id", "huge", "twice"} {
		must(t, c.Call(fmt.Sprint(i+10), "misbehave", fmt.Sprintf(`{"what":%q,"bytes":1000000}`, what), ""))
		expect(t, c, fmt.Sprint(i+10))
	}
	_, err = c.Await("a huge line", func(m Message) bool { return len(m.Raw) > 1_000_000 })
	must(t, err)
	must(t, c.Call("1", "tick", `{"key":"k","n":5}`, ""))
	must(t, c.Cancel("1", ""))
	if m := expect(t, c, "1"); m.Error == nil || m.Error.Code != 0 {
		t.Fatal(m.Raw)
	}
	must(t, c.Call("2", "misbehave", `{"what":"half-exit"}`, ""))
	if code := c.Wait(); code != exitCrash {
		t.Fatal(code)
	}
	raw, err := os.ReadFile(log)
	must(t, err)
	if !strings.Contains(string(raw), ` > {"jsonrpc":"2.0","id":"init"`) || !strings.Contains(string(raw), " < ") {
		t.Fatal("raw log lacks a direction")
	}
}

func TestCrashMidCall(t *testing.T) {
	c, _ := start(t)
	_, err := c.Initialize(newestLegacy)
	must(t, err)
	must(t, c.Call("1", "crash", `{}`, ""))
	if _, err := c.Expect("1"); err == nil {
		t.Fatal("a crashed server answered")
	}
	if code := c.Wait(); code != -1 {
		t.Fatal(code)
	}
}

func TestLifeIsBounded(t *testing.T) {
	c, w := start(t, "-life=300ms", "-stay", "-deaf-term")
	_, err := c.Initialize(newestLegacy)
	must(t, err)
	must(t, c.Call("1", "fork", `{"key":"k","n":1000,"fork":["envi","respawn"]}`, ""))
	_, err = w.WaitFor("k/envi", "start", 5*time.Second)
	must(t, err)
	if left := WaitDead(append(w.Pids("k/*"), c.Pid()), 5*time.Second); len(left) > 0 {
		t.Fatal("still alive", left)
	}
}

func TestRelayCopies(t *testing.T) {
	argv := append(Command("relay", "--"), Command("server", "-life=30s")...)
	c, err := StartClient(argv, ClientOptions{})
	must(t, err)
	_, err = c.Initialize(newestLegacy)
	must(t, err)
	must(t, c.Call("1", "bigresult", `{"bytes":2000000}`, ""))
	if n := len(expect(t, c, "1").Text()); n != 2_000_000 {
		t.Fatal(n)
	}
	must(t, c.Close())
}

func TestWrongUse(t *testing.T) {
	for _, args := range [][]string{nil, {"fly"}, {"server", "-nonsense"}, {"server", "-reply=maybe"}, {"relay"}} {
		if code := Main(args); code != exitUsage {
			t.Errorf("Main(%q) = %d, want %d", args, code, exitUsage)
		}
	}
}
