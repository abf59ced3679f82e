//go:build unix

package acceptance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/belayhq/belay"
)

// stops is a server of scripts that are hard to stop, or to bear. Each says "here" to
// a workshop when it has got into its work, under the key it was given.
type stops struct {
	*server
	web  *httptest.Server
	here sync.Map // key -> chan struct{}
}

// misbehaved are the scripts, by id: what stands in their execute function.
var misbehaved = map[string]string{
	"fine":       `return {success: true, message: "fine " + params.key}`,
	"polite":     `AssistantTool.onCancel = () => "half of " + params.key; await here(); while (!AssistantTool.isCancelled) await pause(5); return {success: true, message: "LATE"}`,
	"silent":     `await here(); while (!AssistantTool.isCancelled) await pause(5); return {success: true, message: "LATE"}`,
	"flag":       `await here(); while (!AssistantTool.isCancelled) {}; throw new Error("LATE")`,
	"busy":       `AssistantTool.onCancel = () => "kept " + params.key; await here(); for (;;) { try { for (;;) {} } catch (e) {} finally {} }`,
	"chain":      `AssistantTool.onCancel = () => "kept"; await here(); const f = (): any => Promise.resolve().then(f); await f()`,
	"regex":      `await here(); AssistantTool.onCancel = () => "never"; return {success: true, message: String(/^(a+)+\1$/.test("a".repeat(50) + "!"))}`,
	"null":       `AssistantTool.onCancel = () => null; await here(); await pause(60000)`,
	"undef":      `AssistantTool.onCancel = () => undefined; await here(); await pause(60000)`,
	"empty":      `AssistantTool.onCancel = () => ""; await here(); await pause(60000)`,
	"seven":      `AssistantTool.onCancel = (() => 7) as any; await here(); await pause(60000)`,
	"object":     `AssistantTool.onCancel = (() => ({toString: () => "no"})) as any; await here(); await pause(60000)`,
	"promise":    `AssistantTool.onCancel = (async () => "x") as any; await here(); await pause(60000)`,
	"throwing":   `AssistantTool.onCancel = () => { throw new Error("bad") }; await here(); await pause(60000)`,
	"looping":    `AssistantTool.onCancel = () => { for (;;) {} }; await here(); await pause(60000)`,
	"state":      `const A = AssistantTool as any, before = A.getState("k"); A.setState("k", params.key); for (const m of ["1", "2", "3"]) A.report(m, "one"); return {success: true, message: String(before) + A.getState("k")}`,
	"parts":      `return {success: false, output: {assistantParts: ["a", {type: "image", base64: "aGk="}], userParts: [{type: "text", text: "u"}]}}`,
	"recursion":  `const f = (): any => f() + 1; return f()`,
	"bytes":      `const b = new Uint8Array(1 << 20).fill(1), a = []; for (;;) a.push(b.slice())`,
	"gigabyte":   `const a = new Uint8Array(1 << 30).fill(1); return {success: true, message: String(a.length)}`,
	"string":     `let s = "x"; for (;;) s += s`,
	"repeat":     `return {success: true, message: "x".repeat(2 ** 30)}`,
	"terabyte":   `return {success: true, message: String(new Uint8Array(2 ** 40).length)}`,
	"microtasks": `const b = new Array(1000).fill(1), l: any[] = []; const f = (): any => { l.push(b.slice()); return Promise.resolve().then(f) }; await f()`,
	"timers":     `for (;;) setTimeout(() => {}, 1e9)`,
	"reports":    `for (let i = 0; i < 3000; i++) AssistantTool.report("r" + i); return {success: true, message: "told"}`,
	"trap":       `return {get success() { throw new Error("trap") }}`,
	"proto":      `Object.prototype.toString = () => { throw 1 }; Promise.prototype.then = null as any; JSON.parse = null as any; return {success: true, message: "own"}`,
	"nothing":    `return`,
	"throws":     `throw new Error("no luck")`,
	"mistake":    `return {success: true, message: "x".repeat(2 ** 53)}`,
}

const tools1 = `
const pause = (ms: number) => new Promise(r => setTimeout(r, ms))
AssistantTool.registerExecuteTool<any>(async (params: any) => {
	const here = () => fetch("AT/" + params.key)
	BODY
})`

// badProjects are refused at load; the others load.
var badProjects = map[string]string{
	"bad_syntax": "const x = {",
	"bad_none":   "const x = 1",
	"bad_twice":  `AssistantTool.registerApprovalRequest(async () => ({message: ""}))`,
	"bad_throw":  `throw {toString() { throw 1 }}`,
}

func writeProject(dir, manifest, source string) error {
	err := os.MkdirAll(dir, 0o700)
	if manifest != "" {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, "assistant_tool.json"), []byte(manifest), 0o600))
	}
	return errors.Join(err, os.WriteFile(filepath.Join(dir, "assistant_tool.tsx"), []byte(source), 0o600))
}

// onStops starts belay serve before these scripts; more are settings of the server.
func onStops(t testing.TB, more map[string]any, change ...func(*settings)) *stops {
	t.Helper()
	s := &stops{}
	s.web = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := s.here.LoadAndDelete(strings.TrimPrefix(r.URL.Path, "/")); ok {
			close(c.(chan struct{}))
		}
	}))
	t.Cleanup(s.web.Close)
	dir := t.TempDir()
	manifest := `{"id":%q,"displayName":"A tool","description":"Does it.","parameters":[{"name":"key","type":"string"},{"name":"n","type":"integer"}]}`
	for id, body := range misbehaved {
		if err := writeProject(filepath.Join(dir, id), fmt.Sprintf(manifest, id), strings.ReplaceAll(strings.Replace(tools1, "BODY", body, 1), "AT", s.web.URL)); err != nil {
			t.Fatal(err)
		}
	}
	server := map[string]any{
		"scripts": map[string]any{"dirs": []string{dir}, "allow_hosts": []string{"127.0.0.1"}, "memory": "128MiB"},
		"grace":   "300ms", "kill_after": "400ms",
	}
	if more["isolation"] == nil {
		server["spares"] = 1 // the calls are made one by one
	}
	maps.Copy(server, more)
	s.server = start(t, append([]func(*settings){func(c *settings) {
		c.servers = map[string]any{"hard": server}
		c.top["rap"] = map[string]any{"addresses": "local"}
	}}, change...)...)
	return s
}

// into calls a tool under an id of its own and returns when it has got into its work.
func (s *stops) into(t testing.TB, c *session, tool, key string) <-chan reply {
	t.Helper()
	arrived := make(chan struct{})
	s.here.Store(key, arrived)
	got := c.call(t, fmt.Sprintf("%q", key), tool, fmt.Sprintf(`{"key":%q}`, key))
	select {
	case <-arrived:
	case r := <-got:
		t.Fatalf("%s was answered before it began: %s", tool, r.raw)
	case <-time.After(time.Minute):
		t.Fatalf("%s never began", tool)
	}
	return got
}

// alive fails unless the server's next call works.
func (s *stops) alive(t testing.TB, c *session, after string) {
	t.Helper()
	list, bad := wait(t, c.call(t, fmt.Sprintf("%q", "after-"+after+fmt.Sprint(rand.Int64())), "fine", `{"key":"k"}`)).texts(t)
	if bad || len(list) != 1 || list[0] != "fine k" {
		t.Errorf("after %s: %q", after, list)
	}
}

// evidence is the first that settled a receipt.
func evidence(r belay.Receipt) (list []string) {
	for _, step := range r.Steps {
		if step.Evidence != nil {
			list = append(list, fmt.Sprintf("%s (%s)", step.Evidence.Kind, step.Evidence.Detail))
		}
	}
	return list
}

// TestAT37_StopsByEvidence stops each kind of script as an operator does: what the
// caller gets, and by what the receipt knows that it has stopped (AT-1, AT-8, AT-15 to
// AT-17, AT-28 to AT-31, AT-33 to AT-38; acceptance 1 to 5, 15).
func TestAT37_StopsByEvidence(t *testing.T) {
	t.Parallel()
	s := onStops(t, map[string]any{"kill_after": "2s"}) // what is interrupted is to be seen before it, on any machine
	c := s.begin(t, "ann", "hard")
	for _, test := range []struct{ tool, partial, kind, ended string }{
		{"polite", "half of K", "handler_returned", "returned"},
		{"silent", "-", "handler_returned", "returned"},
		{"flag", "-", "handler_returned", "returned"},
		{"busy", "kept K", "interrupted", "interrupted"},
		{"chain", "kept", "interrupted", "interrupted"},
		{"regex", "-", "process_gone", ""},
		{"null", "-", "handler_returned", "returned"},
		{"undef", "-", "handler_returned", "returned"},
		{"empty", "-", "handler_returned", "returned"},
		{"seven", "-", "handler_returned", "returned"},
		{"object", "-", "handler_returned", "returned"},
		{"promise", "-", "handler_returned", "returned"},
		{"throwing", "-", "handler_returned", "returned"},
		{"looping", "-", "handler_returned", "returned"},
	} {
		key := "stop-" + test.tool
		got := s.into(t, c, test.tool, key)
		x := s.cancel(t, "op", key, `"reason":"enough"`, `"wait":20`)
		r := wait(t, got)
		want := strings.ReplaceAll(test.partial, "K", key)
		answered := want
		if test.kind == "interrupted" && r.Result == nil { // what they had came after partial_wait: the receipt has it
			answered = "-"
		}
		if strings.Contains(r.raw, "LATE") {
			t.Errorf("%s: the caller got what came too late: %s", test.tool, r.raw)
		}
		if answered == "-" {
			if r.code() != -32800 || r.Error.Data.Partial == nil || *r.Error.Data.Partial {
				t.Errorf("%s: the caller got %s", test.tool, r.raw)
			}
		} else if list, isError := r.texts(t); !isError || len(list) != 2 || !strings.HasPrefix(list[0], "Cancelled by operator") || list[1] != want {
			t.Errorf("%s: the caller got %q", test.tool, list)
		}
		if x.Run == nil {
			t.Fatalf("%s: %+v", test.tool, x)
		}
		receipt := s.finally(t, *x.Run)
		seen := strings.Join(evidence(receipt), "; ")
		if receipt.Verdict != belay.Confirmed || receipt.Outcome != belay.Cancelled || !strings.HasPrefix(seen, test.kind) || !strings.Contains(seen, test.ended) {
			t.Errorf("%s: verdict %s, evidence %s", test.tool, receipt.Verdict, seen)
		}
		if want != "-" && receipt.Partial != want || want == "-" && receipt.Partial != "" {
			t.Errorf("%s: partial result %q on the receipt", test.tool, receipt.Partial)
		}
		s.alive(t, c, test.tool)
	}
}

// TestAT29_SecondStop: a person who presses again need not wait for the grace (AT-29,
// acceptance 4).
func TestAT29_SecondStop(t *testing.T) {
	t.Parallel()
	s := onStops(t, map[string]any{"grace": "30s", "kill_after": "30s"})
	c := s.begin(t, "ann", "hard")
	got := s.into(t, c, "busy", "pressed")
	x := s.cancel(t, "op", "pressed")
	if r := wait(t, got); r.code() != -32800 {
		t.Errorf("the caller got %s", r.raw)
	}
	began := time.Now()
	s.do(t, "POST", "/v1/runs/"+x.Run.String()+"/cancel", "op", `{"escalate":true}`)
	receipt := s.finally(t, *x.Run)
	if seen := strings.Join(evidence(receipt), "; "); receipt.Verdict != belay.Confirmed || !strings.HasPrefix(seen, "interrupted") || receipt.Partial != "kept pressed" || time.Since(began) > 25*time.Second {
		t.Errorf("%s after %s: %s, %q", receipt.Verdict, time.Since(began), seen, receipt.Partial)
	}
	s.alive(t, c, "a second Stop")
}

// TestAT36_SharedWorker: where calls share a worker, force waits until the others are
// done; then it is used, and the receipt says so (AT-35, AT-36, acceptance 15).
func TestAT36_SharedWorker(t *testing.T) {
	t.Parallel()
	s := onStops(t, map[string]any{"isolation": "shared"})
	c := s.begin(t, "ann", "hard")
	other := s.into(t, c, "polite", "bystander")
	got := s.into(t, c, "regex", "stuck")
	x := s.cancel(t, "op", "stuck")
	if r := wait(t, got); r.code() != -32800 {
		t.Errorf("the caller got %s", r.raw)
	}
	pending(t, other)
	patiently(t, "the survivor and what force waits for", func() bool {
		r := s.receipt(t, "op", *x.Run)
		if r.Verdict == belay.Confirmed {
			t.Fatalf("confirmed, although the worker lives: %+v", r)
		}
		return len(r.Survivors) > 0 && r.Held != ""
	})
	s.cancel(t, "op", "bystander")
	_ = wait(t, other)
	patiently(t, "the receipt that says that the worker is dead", func() bool {
		r := s.receipt(t, "op", *x.Run)
		return r.Final && r.Verdict == belay.Confirmed && len(r.Survivors) == 0 && strings.Contains(strings.Join(evidence(r), "; "), "process_gone")
	})
	s.alive(t, c, "the worker's death")
}

// TestAT89_Hostile gives each of these its outcome, and goes on: what needs more
// memory than a worker may have ends its worker and nothing else (AT-36, AT-69, AT-70,
// AT-87 to AT-89). It is not parallel: who fills memory again and again leaves
// nobody beside him any time.
func TestAT89_Hostile(t *testing.T) {
	s := onStops(t, nil)
	c := s.begin(t, "ann", "hard")
	const memory, invalid = "Error: the tool ran out of memory.", "Error: the tool returned an invalid result."
	for tool, want := range map[string]string{
		"recursion": "Error: the tool called itself too deeply.", "bytes": memory, "gigabyte": memory, "string": memory, "repeat": memory, "terabyte": memory, "microtasks": memory,
		"timers": "Error: too many timers are open", "trap": invalid, "nothing": invalid, "throws": "Error: no luck", "mistake": "Error: the interpreter failed",
	} {
		key := "hostile-" + tool
		var r reply
		select {
		case r = <-c.call(t, fmt.Sprintf("%q", key), tool, `{"key":"k"}`):
		case <-time.After(3 * time.Minute): // memory is filled slowly under the race detector
			t.Errorf("%s: no answer", tool)
			continue
		}
		list, isError := r.texts(t)
		if !isError || len(list) != 1 || list[0] != want {
			t.Errorf("%s: %q, want %q", tool, list, want)
		}
		if outcome := s.status(t, "op", key).Outcome; outcome != belay.Failed {
			t.Errorf("%s: outcome %s", tool, outcome)
		}
		s.alive(t, c, tool)
	}
	for tool, want := range map[string]string{"proto": "own", "reports": "told"} {
		if list, isError := wait(t, c.call(t, fmt.Sprintf("%q", "odd-"+tool), tool, `{"key":"k"}`)).texts(t); isError || len(list) != 1 || list[0] != want {
			t.Errorf("%s: %q", tool, list)
		}
	}
	for args, want := range map[string]string{`[]`: "object", `{"m":1}`: "m", `{"n":"x"}`: "n", `{"n":1.5}`: "n"} {
		if r := wait(t, c.call(t, fmt.Sprintf("%q", "bad-"+args), "fine", args)); r.code() != -32602 || !strings.Contains(r.Error.Message, want) {
			t.Errorf("%s: %s", args, r.raw)
		}
	}
	if r := wait(t, c.call(t, `"unknown"`, "bad_syntax", `{}`)); r.code() == 0 || !strings.Contains(r.raw, "unknown tool") {
		t.Errorf("a refused project: %s", r.raw)
	}
}

// TestAT86_Refused: what cannot be loaded is refused by itself, named with file and
// line; the others are served (AT-40 to AT-46, AT-82 to AT-84, AT-86).
func TestAT86_Refused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const manifest = `{"id":%q,"description":"d","parameters":[]}`
	err := errors.Join(
		writeProject(filepath.Join(dir, "no_manifest"), "", ""),
		writeProject(filepath.Join(dir, "odd_type"), `{"id":"odd","description":"d","parameters":[{"name":"x","type":"date"}]}`, ""),
		writeProject(filepath.Join(dir, "again"), fmt.Sprintf(manifest, "fine"), `AssistantTool.registerExecuteTool(async () => ({success: true, message: "the first"}))`),
		writeProject(filepath.Join(dir, "fine"), fmt.Sprintf(manifest, "fine"), `AssistantTool.registerExecuteTool(async () => ({success: true, message: "the later"}))`))
	for id, source := range badProjects {
		err = errors.Join(err, writeProject(filepath.Join(dir, id), fmt.Sprintf(manifest, id), source))
	}
	if err != nil {
		t.Fatal(err)
	}
	s, err := launch(t.TempDir(), func(c *settings) {
		c.servers = map[string]any{"bad": map[string]any{"scripts": map[string]any{"dirs": []string{dir}}}}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.end() }) // it has said what start takes for a complaint: that projects are refused
	c := s.begin(t, "ann", "bad")
	patiently(t, "the list without what is refused", func() bool { // what cannot be tried in time is listed first
		a := c.post(t, `{"jsonrpc":"2.0","id":"list","method":"tools/list"}`)
		return a.status == http.StatusOK && strings.Count(a.body, `"inputSchema"`) == 1 && strings.Contains(a.body, `"fine"`)
	})
	if list, isError := wait(t, c.call(t, `"fine"`, "fine", `{}`)).texts(t); isError || len(list) != 1 || list[0] != "the first" {
		t.Errorf("%q", list)
	}
	if r := wait(t, c.call(t, `"unknown"`, "bad_syntax", `{}`)); r.code() == 0 || !strings.Contains(r.raw, "unknown tool") {
		t.Errorf("a refused project: %s", r.raw)
	}
	log := s.log.String()
	for _, bad := range []string{"bad_syntax: the script cannot be compiled: assistant_tool.tsx:1:12", "bad_none", "bad_twice", "bad_throw", "no_manifest: bad assistant_tool.json", "odd_type: bad assistant_tool.json: parameters[0].type", "that of " + filepath.Join(dir, "again")} {
		if !strings.Contains(log, bad) {
			t.Errorf("the log does not name %s: %.3000s", bad, log)
		}
	}
}

// TestAT71_Results: parts reach MCP with whom they are for, and one call knows nothing
// of the state of another (AT-55, AT-67, AT-68, AT-71, acceptance 12 and 13).
func TestAT71_Results(t *testing.T) {
	t.Parallel()
	s := onStops(t, nil)
	c := s.begin(t, "ann", "hard")
	r := wait(t, c.call(t, `"parts"`, "parts", `{"key":"k"}`))
	var result struct {
		IsError bool
		Content []struct {
			Type, Text, Data, MIMEType string
			Annotations                struct{ Audience []string }
		}
	}
	if err := json.Unmarshal(r.Result, &result); err != nil {
		t.Fatal(r.raw)
	}
	got := fmt.Sprint(result)
	if want := "{true [{text a   {[assistant]}} {image  aGk= image/png {[assistant]}} {text u   {[user]}}]}"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, key := range []string{"one", "two"} {
		if list, _ := wait(t, c.call(t, fmt.Sprintf("%q", key), "state", fmt.Sprintf(`{"key":%q}`, key))).texts(t); len(list) != 1 || list[0] != "null"+key {
			t.Errorf("state: %q", list)
		}
	}
}

// TestAT39_AllDoors stops the same script through MCP, RAP, REST and the CLI, and by a
// deadline and a caller who goes away: the outcome is the same (AT-1, AT-39,
// acceptance 17).
func TestAT39_AllDoors(t *testing.T) {
	t.Parallel()
	s := onStops(t, map[string]any{"tools": map[string]any{"silent": map[string]any{"deadline": "2s"}}, "disconnect": "cancel"})
	c := s.begin(t, "ann", "hard")
	rt := rapRuntime(t, s.server, "ann", "hard")
	cli := func(key string) {
		cmd := exec.Command(program, "cancel", "--server", s.url, "--request-id", key, "--json")
		cmd.Env = append(os.Environ(), "BELAY_TOKEN="+token("op"), "HOME="+s.dir, "XDG_CONFIG_HOME="+s.dir, "BELAY_RUNTIME_DIR="+filepath.Join(s.dir, "run2"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("belay cancel: %v\n%s", err, out)
		}
	}
	gone, end := context.WithCancel(t.Context())
	defer end()
	for door, how := range map[string]struct {
		tool  string
		cause belay.Cause
		press func(key string)
	}{
		"mcp": {"polite", belay.CauseUser, func(key string) {
			c.post(t, fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%q}}`, key))
		}},
		"rest": {"polite", belay.CauseOperator, func(key string) { s.cancel(t, "op", key) }},
		"cli":  {"polite", belay.CauseOperator, cli},
		"rap": {"polite", belay.CauseParent, func(key string) {
			if a, err := rt.Cancel("thread", key); err != nil || a.Status/100 != 2 {
				t.Errorf("rap: %+v, %v", a, err)
			}
		}},
		"deadline": {"silent", belay.CauseDeadline, func(string) {}},
		"hang up":  {"polite", belay.CauseDisconnect, func(string) { end() }},
	} {
		key := "door-" + strings.ReplaceAll(door, " ", "-")
		arrived := make(chan struct{})
		s.here.Store(key, arrived)
		args := fmt.Sprintf(`{"key":%q}`, key)
		switch door {
		case "rap":
			if a, err := rt.Invoke(how.tool, "thread", key, map[string]string{"key": key}); err != nil || a.Status != 200 {
				t.Fatalf("rap: %+v, %v", a, err)
			}
		case "hang up":
			got, abort := s.modernCall(t, "ann", "hard", fmt.Sprintf("%q", key), how.tool, args)
			context.AfterFunc(gone, abort)
			defer func() { <-got }()
		default:
			got := c.call(t, fmt.Sprintf("%q", key), how.tool, args)
			defer func() { wait(t, got) }()
		}
		if door == "deadline" { // it may come before the script has begun
			close(arrived)
			s.here.Delete(key)
		}
		select {
		case <-arrived:
		case <-time.After(time.Minute):
			t.Fatalf("%s: the script never began", door)
		}
		run := s.runOf(t, key, door)
		how.press(key)
		patiently(t, "the Stop by "+door, func() bool { return s.do(t, "GET", "/v1/receipts/"+run.String(), "op", "").status == http.StatusOK })
		receipt := s.finally(t, run)
		if receipt.Outcome != belay.Cancelled || receipt.Verdict != belay.Confirmed || receipt.Cancellation.Cause != how.cause ||
			how.tool == "polite" && receipt.Partial != "half of "+key {
			t.Errorf("%s: %s, %s, %s, %q: %v", door, receipt.Outcome, receipt.Verdict, receipt.Cancellation.Cause, receipt.Partial, evidence(receipt))
		}
	}
}

// runOf finds the run of a call by the caller's name for it: that of the MCP call, and
// behind RAP the one below it.
func (s *stops) runOf(t testing.TB, key, door string) (run belay.RunID) {
	t.Helper()
	patiently(t, "the run of "+key, func() bool {
		if a := s.tryStatus(t, "op", key); a.status == http.StatusOK && door != "rap" {
			run = into[status](t, a, 200).Run
			return true
		}
		for _, r := range s.runs(t, "op", "?kind=call&state=running") {
			if r.Kind == belay.KindCall {
				run = r.ID
				return true
			}
		}
		return false
	})
	return run
}

// TestAT88_Busy: of one tool at most eight calls run; more are told that it is busy.
// The others go on (AT-88).
func TestAT88_Busy(t *testing.T) {
	t.Parallel()
	s := onStops(t, map[string]any{"at_once": 2})
	c := s.begin(t, "ann", "hard")
	one, two := s.into(t, c, "polite", "first"), s.into(t, c, "polite", "second")
	if list, isError := wait(t, c.call(t, `"third"`, "polite", `{"key":"third"}`)).texts(t); !isError || len(list) != 1 || list[0] != "Error: the tool is busy." {
		t.Errorf("a third call: %q", list)
	}
	s.alive(t, c, "busy")
	s.cancel(t, "op", "first")
	_ = wait(t, one)
	pending(t, two)
	s.cancel(t, "op", "second")
	_ = wait(t, two)
}

// TestAT88_CPU: a script has so much of the interpreter's time and no more; what it
// waits for does not count (AT-87, AT-88).
func TestAT88_CPU(t *testing.T) {
	t.Parallel()
	s := onStops(t, nil, func(c *settings) {
		c.servers["hard"].(map[string]any)["scripts"].(map[string]any)["cpu"] = "1s" // of a clock on the wall: to begin takes a part of it on a busy machine
	})
	c := s.begin(t, "ann", "hard")
	for _, tool := range []string{"busy", "chain"} {
		got := c.call(t, fmt.Sprintf("%q", "cpu-"+tool), tool, fmt.Sprintf(`{"key":%q}`, "cpu-"+tool))
		if list, isError := wait(t, got).texts(t); !isError || len(list) != 1 || list[0] != "Error: the tool used up its processor time." {
			t.Errorf("%s: %q", tool, list)
		}
	}
	waiting := s.into(t, c, "polite", "cpu-waits")
	time.Sleep(1100 * time.Millisecond) // longer than it may run
	pending(t, waiting)
	s.cancel(t, "op", "cpu-waits")
	_ = wait(t, waiting)
	s.alive(t, c, "scripts without time")
}

// TestScriptCrowd makes many calls at once and stops half of them at random times:
// each is settled once, with its own text, and afterwards no worker, no request and no
// memory is left (acceptance 6 and 16).
func TestScriptCrowd(t *testing.T) {
	s := onStops(t, map[string]any{"isolation": "shared", "at_once": 0}, func(c *settings) { c.top["log"] = "info" })
	c := s.begin(t, "ann", "hard")
	s.alive(t, c, "the beginning")
	const calls = 200
	var all sync.WaitGroup
	var stopped atomic.Int32
	for i := range calls {
		all.Go(func() {
			key := fmt.Sprintf("crowd-%d", i)
			if i%2 == 1 {
				if list, isError := wait(t, c.call(t, fmt.Sprintf("%q", key), "fine", fmt.Sprintf(`{"key":%q}`, key))).texts(t); isError || len(list) != 1 || list[0] != "fine "+key {
					t.Errorf("%s: %q", key, list)
				}
				return
			}
			arrived := make(chan struct{})
			s.here.Store(key, arrived)
			got := c.call(t, fmt.Sprintf("%q", key), "polite", fmt.Sprintf(`{"key":%q}`, key))
			select {
			case <-arrived:
			case <-time.After(2 * time.Minute):
				t.Errorf("%s never began", key)
				return
			}
			time.Sleep(rand.N(100 * time.Millisecond))
			s.cancel(t, "op", key)
			r := wait(t, got)
			if r.Error != nil && r.code() == -32800 { // its text took more than partial_wait on this machine
				stopped.Add(1)
				return
			}
			if list, isError := r.texts(t); !isError || len(list) != 2 || list[1] != "half of "+key {
				t.Errorf("%s: %q", key, list)
			} else {
				stopped.Add(1)
			}
		})
	}
	all.Wait()
	if stopped.Load() != calls/2 {
		t.Errorf("%d of %d were stopped", stopped.Load(), calls/2)
	}
	patiently(t, "no call in flight", func() bool { return len(s.runs(t, "op", "?kind=call&state=running")) == 0 })
	s.alive(t, c, "the crowd")
	// Nothing of it survives the server.
	pids := below(s.cmd.Process.Pid)
	if len(pids) == 0 {
		t.Error("no worker was there")
	}
	if err := s.end(); err != nil {
		t.Error(err)
	}
	patiently(t, "the end of all workers", func() bool {
		for _, pid := range pids {
			if syscall.Kill(pid, 0) == nil {
				return false
			}
		}
		return true
	})
}

// below lists the processes below one.
func below(root int) (list []int) {
	parents := map[int]int{}
	entries, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range entries {
		raw, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		var pid, parent int
		text := string(raw)
		_, _ = fmt.Sscanf(filepath.Base(filepath.Dir(path)), "%d", &pid)
		if fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:]); len(fields) > 1 {
			_, _ = fmt.Sscanf(fields[1], "%d", &parent)
		}
		parents[pid] = parent
	}
	for pid := range parents {
		for up := parents[pid]; up > 1; up = parents[up] {
			if up == root {
				list = append(list, pid)
				break
			}
		}
	}
	return list
}
