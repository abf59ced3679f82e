//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/belayhq/belay/internal/calm"
	"github.com/belayhq/belay/internal/faketool"
	"github.com/belayhq/belay/internal/need"
)

// These tests drive the real binary with a raw client in front of a fake
// server that misbehaves in one way, and judge by the fake's witness.

var buildOnce = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "belay-edges-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "belay")
	out, err := exec.Command("go", slices.Concat([]string{"build"}, need.BuildFlags(), []string{"-o", path, "../cmd/belay"})...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build belay: %w\n%s", err, out)
	}
	return path, nil
})

// edge is one wrapped session.
type edge struct {
	*faketool.Client
	*faketool.Witness
	t   *testing.T
	log *os.File // Belay's stderr
	env string
}

// wrap starts `belay wrap flags -- fake server fakeFlags` and does the
// handshake.
func wrap(t *testing.T, flags []string, fakeFlags ...string) *edge {
	t.Helper()
	e := wrapRaw(t, flags, fakeFlags...)
	if _, err := e.Initialize("2025-11-25"); err != nil {
		t.Fatal(err, e.stderr())
	}
	return e
}

func wrapRaw(t *testing.T, flags []string, fakeFlags ...string) *edge {
	t.Helper()
	belay, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	e := &edge{Witness: faketool.NewWitness(filepath.Join(dir, "witness")), t: t, env: "BELAY_RUNTIME_DIR=" + filepath.Join(dir, "run")}
	if e.log, err = os.Create(filepath.Join(dir, "stderr")); err != nil {
		t.Fatal(err)
	}
	server := faketool.Command(append([]string{"server", "-life=60s", "-witness=" + e.Path}, fakeFlags...)...)
	argv := append(append(append([]string{belay, "wrap"}, flags...), "--"), server...)
	if e.Client, err = faketool.StartClient(argv, faketool.ClientOptions{Env: []string{e.env}, Stderr: e.log}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = e.Close()
		sweep(e.Witness)
		if t.Failed() {
			t.Log("belay said:\n" + e.stderr())
			for _, ev := range e.Events() {
				t.Log(ev.Time.Format("05.000"), ev.Pid, ev.Key, ev.Name, ev.Detail)
			}
		}
	})
	return e
}

func (e *edge) stderr() string {
	text, _ := os.ReadFile(e.log.Name())
	return string(text)
}

func (e *edge) ok(err error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatal(err)
	}
}

// wait waits for a witness event.
func (e *edge) wait(key, name string) faketool.Event {
	e.t.Helper()
	ev, err := e.WaitFor(key, name, 10*time.Second)
	e.ok(err)
	return ev
}

// works makes a call and expects its result.
func (e *edge) works(id string) {
	e.t.Helper()
	e.ok(e.Call(id, "echo", `{"a":1}`, ""))
	m, err := e.Expect(id)
	e.ok(err)
	if m.Text() != `{"a":1}` {
		e.t.Fatalf("call %s: %s", id, m.Raw)
	}
}

// unharmed fails on anything the fake must never have been sent.
func (e *edge) unharmed() {
	e.t.Helper()
	for _, v := range e.Violations() {
		e.t.Error("violation:", v.Detail)
	}
}

// weather takes off what the machine delays the rows of a table for.
func weather(t *testing.T) func(from, to time.Time, limit time.Duration) time.Duration {
	w := calm.Start(t)
	return func(from, to time.Time, limit time.Duration) time.Duration { return w.Between(from, to).Allow(limit) }
}

var strict = []string{"--enforce", "strict", "--grace", "200ms", "--kill-after", "300ms"}

func TestIDsKeepTypeAndText(t *testing.T) { // MCP-G6, MCP-G7
	t.Parallel()
	e := wrap(t, nil)
	ids := []string{`0`, `"0"`, `1`, `"1"`, `1.0`, `-3`, `1152921504606846977`, `"b-1"`, `""`, `"ü\u0041"`}
	for _, id := range ids {
		e.ok(e.Call(id, "tick", `{"key":"k","n":3,"ms":30}`, ""))
	}
	for _, id := range ids {
		if _, err := e.Expect(id); err != nil {
			e.t.Error(err)
		}
		if n := len(e.Responses(id)); n != 1 {
			e.t.Errorf("id %s has %d answers", id, n)
		}
	}
	e.unharmed()
}

func TestCancelHitsItsTwinNever(t *testing.T) { // MCP-G7, MCP-16
	t.Parallel()
	e := wrap(t, []string{"--enforce", "never"})
	for _, id := range []string{`0`, `"0"`, `7`, `"7"`} {
		e.ok(e.Call(id, "tick", `{"key":`+fmt.Sprintf("%q", "k"+strings.ReplaceAll(id, `"`, "s"))+`,"n":50,"ms":20}`, ""))
	}
	e.wait("ks7s", "tick")
	e.ok(e.Cancel(`0`, "x"))
	e.ok(e.Cancel(`"7"`, "x"))
	e.wait("k0", "stopped")
	e.wait("ks7s", "stopped")
	for _, id := range []string{`"0"`, `7`} {
		if _, err := e.Expect(id); err != nil {
			t.Error(err)
		}
	}
	if e.Count("ks0s", "signal")+e.Count("k7", "signal") > 0 {
		t.Error("a twin was told")
	}
	if n := len(e.Responses(`0`)) + len(e.Responses(`"7"`)); n > 0 {
		t.Errorf("%d answers after the caller's own cancel", n)
	}
	e.unharmed()
}

func TestOddCancelsAreIgnored(t *testing.T) { // MCP-20..22, MCP-G14
	t.Parallel()
	e := wrap(t, strict)
	e.ok(e.Cancel(`"init"`, "no"))
	e.ok(e.Cancel(`"never"`, "no"))
	for _, params := range []string{`{}`, `{"requestId":null}`, `{"requestId":{}}`, `[]`, `"x"`} {
		e.ok(e.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":` + params + `}`))
	}
	e.ok(e.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled"}`))
	e.works("1")
	e.ok(e.Cancel("1", "too late"))
	e.works("2")
	if n := faketool.Starts(e.Path + ".starts"); n != 1 {
		t.Error("starts:", n)
	}
	e.unharmed()
}

func TestCancelBeforeItsCall(t *testing.T) { // MCP-G17
	t.Parallel()
	e := wrap(t, nil)
	e.ok(e.Cancel("9", "early"))
	e.ok(e.Call("9", "tick", `{"key":"k","n":3}`, ""))
	e.works("10")
	if e.Count("k", "start") > 0 {
		t.Error("the call was started")
	}
	e.works("9") // one use: the id is free again
}

func TestOneCallStoppedTheOtherUnharmed(t *testing.T) { // MCP-G36
	t.Parallel()
	for _, isolation := range []string{"shared", "call"} {
		t.Run(isolation, func(t *testing.T) {
			e := wrap(t, append([]string{"--isolation", isolation}, strict...), "-deaf", "-no-subscribe")
			e.ok(e.Call("1", "tick", `{"key":"a","n":1000,"ms":20}`, ""))
			e.ok(e.Call("2", "tick", `{"key":"b","n":60,"ms":20}`, ""))
			e.wait("a", "tick")
			e.wait("b", "tick")
			e.ok(e.Cancel("1", "this one"))
			m, err := e.Expect("2")
			e.ok(err)
			if m.Text() != "b: 60 ticks" {
				t.Error(m.Raw)
			}
			pids := e.Pids("a")
			if left := faketool.WaitDead(pids, 5*time.Second); len(left) > 0 {
				t.Error("alive:", left)
			}
			e.works("3")
			e.unharmed()
		})
	}
}

func TestForkedHelpersDie(t *testing.T) { // MCP-G35
	t.Parallel()
	for _, cgroup := range []string{"auto", "off"} {
		t.Run(cgroup, func(t *testing.T) {
			e := wrap(t, append([]string{"--cgroup", cgroup}, strict...), "-deaf")
			e.ok(e.Call("1", "fork", `{"key":"k","n":2000,"fork":["child","setsid","daemon","envi","respawn","termproof"]}`, ""))
			for _, how := range []string{"child", "setsid", "daemon", "envi", "respawn", "termproof"} {
				e.wait("k/"+how, "tick")
			}
			e.ok(e.Cancel("1", "all of them"))
			if left := faketool.WaitDead([]int{e.wait("k", "start").Pid}, 5*time.Second); len(left) > 0 {
				t.Fatal("alive:", left)
			}
			if left := faketool.WaitDead(e.Pids("k/*"), 2*time.Second); len(left) > 0 {
				t.Error("alive:", left)
			}
			if e.StillTicking("k/respawn", 300*time.Millisecond) {
				t.Error("the pair respawned")
			}
			e.works("2")
		})
	}
}

func TestDevServerOfAnEarlierCallSurvives(t *testing.T) { // DESIGN 11: no collateral
	t.Parallel()
	e := wrap(t, []string{"--enforce", "auto", "--grace", "200ms"})
	e.ok(e.Call("1", "devserver", `{"key":"dev"}`, ""))
	_, err := e.Expect("1")
	e.ok(err)
	e.wait("dev/setsid", "tick")
	e.ok(e.Call("2", "tick", `{"key":"k","n":1000}`, ""))
	e.wait("k", "tick")
	e.ok(e.Cancel("2", "only this"))
	e.wait("k", "stopped")
	if !e.StillTicking("dev/setsid", 2*time.Second) {
		t.Error("the dev server of an earlier call died")
	}
	e.works("3")
	if n := faketool.Starts(e.Path + ".starts"); n != 1 {
		t.Error("an obedient server was restarted: starts", n)
	}
}

func TestReplayedSession(t *testing.T) { // MCP-G36, DESIGN 11.3
	t.Parallel()
	e := wrap(t, strict, "-deaf", "-start-ask=roots")
	q, err := e.Notification("roots/list")
	e.ok(err)
	e.ok(e.Sendf(`{"jsonrpc":"2.0","id":%s,"result":{"roots":[{"uri":"file:///a"}]}}`, q.ID))
	e.ok(e.Send(`{"jsonrpc":"2.0","id":"l","method":"logging/setLevel","params":{"level":"error"}}`))
	e.ok(e.Send(`{"jsonrpc":"2.0","id":"s","method":"resources/subscribe","params":{"uri":"a:b"}}`))
	_, err = e.Expect(`"s"`)
	e.ok(err)
	e.ok(e.Call("1", "tick", `{"key":"k","n":1000}`, ""))
	e.wait("k", "tick")
	e.ok(e.Cancel("1", "x"))
	if left := faketool.WaitDead(e.Pids("k"), 5*time.Second); len(left) > 0 {
		t.Fatal("alive:", left)
	}
	e.ok(e.Call("2", "state", `{}`, ""))
	m, err := e.Expect("2")
	e.ok(err)
	for _, want := range []string{`"start":2`, `"level":"error"`, `"subscribed":["a:b"]`, `"initialized":1`, `"ready":1`, `file:///a`} {
		if !strings.Contains(m.Text(), want) {
			t.Errorf("state lacks %s: %s", want, m.Text())
		}
	}
	asked := 0
	for _, m := range e.Messages() {
		if m.Method == "roots/list" {
			asked++
		}
	}
	if asked != 1 {
		t.Errorf("the user was asked %d times", asked)
	}
	e.unharmed()
}

func TestMisbehavingServers(t *testing.T) { // MCP-24, MCP-G3, MCP-G28
	t.Parallel()
	e := wrap(t, nil, "-misbehave=noise,flood-stderr,flood-stdout", "-bytes=300000")
	for i, what := range []string{"noise", "invalid", "unknown-id", "null-id", "twice", "flood-stdout", "flood-stderr"} {
		id := fmt.Sprint(100 + i)
		e.ok(e.Call(id, "misbehave", fmt.Sprintf(`{"what":%q,"bytes":500000}`, what), ""))
		if _, err := e.Expect(id); err != nil {
			t.Error(what, err)
		}
		e.works(fmt.Sprint(200 + i))
		if n := len(e.Responses(id)); n != 1 {
			t.Errorf("%s: %d answers", what, n)
		}
	}
	for _, m := range e.Messages() {
		if !m.JSON {
			t.Errorf("noise reached the client: %.60q", m.Raw)
			break
		}
	}
}

func TestDyingServersAreRestarted(t *testing.T) { // MCP-G28, MCP-76
	t.Parallel()
	e := wrap(t, nil)
	for i, args := range []string{`{"what":"exit"}`, `{"what":"half-exit"}`, `{"what":"close-stdout"}`} {
		id := fmt.Sprint(10 + i)
		w, began := calm.Start(t), time.Now()
		e.ok(e.Call(id, "misbehave", args, ""))
		m, err := e.Expect(id)
		if err != nil {
			t.Error(args, err)
			continue
		}
		if m.Error == nil {
			t.Errorf("%s: %s", args, m.Raw)
		}
		w.Within(t, m.Time.Sub(began), 2*time.Second, "the answer to "+args)
		e.works(fmt.Sprint(20 + i))
	}
	e.ok(e.Call("30", "crash", `{}`, ""))
	if m, err := e.Expect("30"); err != nil || m.Error == nil {
		t.Error("crash", m.Raw, err)
	}
	e.works("31")
}

func TestHugeLines(t *testing.T) { // MCP-G3
	t.Parallel()
	e := wrap(t, nil)
	e.ok(e.Call("1", "bigresult", `{"bytes":20000000}`, ""))
	m, err := e.Expect("1")
	e.ok(err)
	if m.Error == nil {
		t.Error("a line over the bound passed")
	}
	e.works("2")
	e.ok(e.Call("3", "bigresult", `{"bytes":9000000}`, ""))
	m, err = e.Expect("3")
	e.ok(err)
	if len(m.Text()) != 9000000 {
		t.Errorf("%.200s", m.Raw)
	}
	e.ok(e.Call("4", "echo", `{"x":"`+strings.Repeat("y", 20_000_000)+`"}`, ""))
	if m, err := e.Expect("4"); err != nil || m.Error == nil {
		t.Errorf("%.200s %v", m.Raw, err)
	}
	e.works("5")
}

func TestAskInBothDirections(t *testing.T) { // MCP-G9, MCP-G22
	t.Parallel()
	e := wrap(t, []string{"--enforce", "never"})
	e.ok(e.Call("1", "ask", `{"method":"elicit","key":"a","askId":1}`, ""))
	q, err := e.Notification("elicitation/create")
	e.ok(err)
	e.ok(e.Sendf(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept","content":{"folder":"x"}}}`, q.ID))
	m, err := e.Expect("1")
	e.ok(err)
	if !strings.Contains(m.Text(), "accept") {
		t.Error(m.Raw)
	}
	// The server cancels its own question.
	e.ok(e.Call("2", "ask", `{"method":"sampling","key":"b","cancelMs":50}`, ""))
	q, err = e.Notification("sampling/createMessage")
	e.ok(err)
	n, err := e.Await("a cancel of the question", func(m faketool.Message) bool {
		return m.Method == "notifications/cancelled" && strings.Contains(string(m.Params), `"requestId":`+q.ID)
	})
	e.ok(err)
	_ = n
	_, err = e.Expect("2")
	e.ok(err)
	// The caller stops the call that asked: its question is cancelled too.
	e.ok(e.Call("3", "ask", `{"method":"roots","key":"c"}`, ""))
	q, err = e.Notification("roots/list")
	e.ok(err)
	e.ok(e.Cancel("3", "x"))
	_, err = e.Await("a cancel of the question", func(m faketool.Message) bool {
		return m.Method == "notifications/cancelled" && strings.Contains(string(m.Params), `"requestId":`+q.ID)
	})
	e.ok(err)
	e.ok(e.Sendf(`{"jsonrpc":"2.0","id":%s,"result":{"roots":[]}}`, q.ID)) // too late, must be dropped
	e.works("4")
	e.unharmed()
}

func TestModernStdio(t *testing.T) { // MCP-52..57, MCP-73
	t.Parallel()
	e := wrapRaw(t, strict, "-era=modern", "-deaf")
	e.ok(e.Send(`{"jsonrpc":"2.0","id":0,"method":"server/discover","params":{"_meta":{` + faketool.ModernMeta + `}}}`))
	_, err := e.Expect("0")
	e.ok(err)
	e.ok(e.Send(`{"jsonrpc":"2.0","id":"L","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},"_meta":{` + faketool.ModernMeta + `}}}`))
	_, err = e.Notification("notifications/subscriptions/acknowledged")
	e.ok(err)
	e.ok(e.CallModern("1", "tick", `{"key":"k","n":1000}`, `"p"`))
	e.wait("k", "tick")
	e.ok(e.Sendf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"_meta":{%s}}}`, faketool.ModernMeta))
	if left := faketool.WaitDead(e.Pids("k"), 5*time.Second); len(left) > 0 {
		t.Fatal("alive:", left)
	}
	e.ok(e.CallModern("2", "list_changed", `{}`, ""))
	_, err = e.Expect("2")
	e.ok(err)
	n, err := e.Notification("notifications/tools/list_changed")
	e.ok(err)
	if !strings.Contains(string(n.Params), `"L"`) {
		t.Errorf("the listen was not sent again under its id: %s", n.Raw)
	}
	e.unharmed()
}

func TestBelayDies(t *testing.T) { // DESIGN 6
	t.Parallel()
	for name, end := range map[string]func(*edge){
		"SIGKILL": func(e *edge) { e.ok(e.Signal(syscall.SIGKILL)) },
		"SIGTERM": func(e *edge) { e.ok(e.Signal(syscall.SIGTERM)) },
		"EOF":     func(e *edge) { e.ok(e.CloseStdin()) },
	} {
		t.Run(name, func(t *testing.T) {
			e := wrap(t, nil, "-deaf", "-deaf-term", "-deaf-eof", "-stay")
			e.ok(e.Call("1", "fork", `{"key":"k","n":2000,"fork":["child","setsid","daemon","envi","respawn","termproof"]}`, ""))
			for _, how := range []string{"child", "setsid", "daemon", "envi", "respawn", "termproof"} {
				e.wait("k/"+how, "tick")
			}
			w, at := calm.Start(t), time.Now()
			end(e)
			pids := append(e.Pids("k/*"), e.Pids("k")...)
			if left := faketool.WaitDead(pids, 30*time.Second); len(left) > 0 {
				t.Error("alive:", left)
			}
			w.Within(t, time.Since(at), 1500*time.Millisecond, "the end of all that Belay started")
			if e.StillTicking("k/respawn", 300*time.Millisecond) {
				t.Error("the pair respawned")
			}
		})
	}
}

func TestDeadlineIsAbsolute(t *testing.T) { // MCP-G23, MCP-G26
	t.Parallel()
	e := wrap(t, append([]string{"--deadline", "1s"}, strict...), "-deaf")
	e.ok(e.Call("1", "tick", `{"key":"k","n":1000}`, `"p"`))
	m, err := e.Expect("1")
	e.ok(err)
	if m.Error == nil || m.Error.Code != -32800 || !strings.Contains(string(m.Error.Data), `"deadline"`) {
		t.Error(m.Raw)
	}
	if left := faketool.WaitDead(e.Pids("k"), 5*time.Second); len(left) > 0 {
		t.Error("alive:", left)
	}
	for _, p := range e.Messages() {
		if p.Method == "notifications/progress" && p.Time.After(m.Time) {
			t.Error("progress after the answer:", p.Raw)
		}
	}
	if _, err := e.WaitCount("server", "initialized", 2, 30*time.Second); err != nil { // the deadline holds for the next call, too
		t.Fatal(err)
	}
	e.works("2")
}

func TestLateAnswersAreMuted(t *testing.T) { // MCP-G24, MCP-G27
	t.Parallel()
	for _, reply := range []string{"result", "iserror", "error0", "-32800"} {
		e := wrap(t, []string{"--enforce", "never"}, "-reply="+reply, "-late=100ms")
		e.ok(e.Call("1", "tick", `{"key":"k","n":1000}`, `"p"`))
		e.wait("k", "tick")
		e.ok(e.Cancel("1", "x"))
		e.wait("k", "stopped")
		time.Sleep(250 * time.Millisecond) // longer than -late
		e.works("2")
		if n := len(e.Responses("1")); n != 0 {
			t.Errorf("-reply=%s: %d answers after the caller's own cancel", reply, n)
		}
	}
}

func TestNextCallBehindADeafBlockedServer(t *testing.T) { // MCP-G33, G36
	t.Parallel()
	// The server's only thread is inside the deaf call: the next call, made at
	// once, sits behind it unread. It must not hold the force back.
	e := wrap(t, strict, "-single", "-deaf")
	e.ok(e.Call("1", "tick", `{"key":"k","n":2000,"ms":20}`, ""))
	e.wait("k", "tick")
	w, stop := calm.Start(t), time.Now()
	e.ok(e.Cancel("1", "stop"))
	e.works("2")
	w.Within(t, time.Since(stop), 5*time.Second, "the next call")
	if e.StillTicking("k", 300*time.Millisecond) {
		t.Error("still ticking")
	}
}
