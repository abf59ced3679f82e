package script

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/belayhq/belay"
)

// project writes a project and loads it.
func project(t *testing.T, approval bool, source string) *Tool {
	t.Helper()
	tool, err := Load(projectDir(t, approval, source))
	if err != nil {
		t.Fatal(err)
	}
	return tool
}

func projectDir(t *testing.T, approval bool, source string) string {
	t.Helper()
	dir := t.TempDir()
	manifest := fmt.Sprintf(`{"id":"probe","displayName":"Probe","description":"A probe.","requireApproval":%t,"autoApprove":true,
		"parameters":[{"name":"n","type":"integer","description":"how many","required":false}]}`, approval)
	for name, text := range map[string]string{ManifestFile: manifest, "assistant_tool.tsx": source} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// execute is the source of a tool with this body.
func execute(body string) string {
	return "AssistantTool.registerExecuteTool<any>(async (params: any) => {\n" + body + "\n})"
}

// watch collects what a call tells its owner.
type watch struct {
	mu       sync.Mutex
	reports  []string
	logs     []string
	messages []string
	reported chan string
}

func (w *watch) hooks() Hooks {
	w.reported = make(chan string, 1000)
	return Hooks{
		Report: func(m, id string) {
			w.mu.Lock()
			w.reports = append(w.reports, id+"="+m)
			w.mu.Unlock()
			w.reported <- m
		},
		Log: func(level, m string) {
			w.mu.Lock()
			w.logs = append(w.logs, level+": "+m)
			w.mu.Unlock()
		},
		Cancelled: func(m string, partial bool) {
			w.mu.Lock()
			w.messages = append(w.messages, fmt.Sprintf("%t %s", partial, m))
			w.mu.Unlock()
		},
	}
}

func (w *watch) said() (logs, messages string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.logs, "\n"), strings.Join(w.messages, "\n")
}

var theStop = &belay.Cancellation{Cause: belay.CauseUser, Reason: "enough"}

// stopAt runs a call and stops it when it reports "now".
func stopAt(t *testing.T, tool *Tool, o Options, then func(*Call)) (Ended, *watch) {
	t.Helper()
	w := &watch{}
	ask := o.Ask
	o.Hooks = w.hooks()
	o.Ask = ask
	call, err := tool.Call([]byte(`{}`), o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	ended := make(chan Ended, 1)
	go func() { ended <- call.Run(ctx) }()
	for {
		select {
		case m := <-w.reported:
			if m != "now" {
				continue
			}
			cancel(theStop)
			if then != nil {
				then(call)
			}
		case e := <-ended:
			cancel(theStop)
			return e, w
		case <-time.After(time.Minute):
			t.Fatal("the call did not end")
		}
	}
}

func text(r Result) string {
	var all []string
	for _, p := range r.Assistant {
		all = append(all, p.Text)
	}
	return strings.Join(all, "|")
}

// TestResults is what a call without a Stop ends with (AT-67 to AT-72, AT-87).
func TestResults(t *testing.T) {
	for name, test := range map[string]struct{ body, want string }{
		"message":     {`return {success: true, message: "fine"}`, "true fine"},
		"parts":       {`return {success: true, output: {assistantParts: ["a", {type: "text", text: "b"}]}}`, "true a|b"},
		"output wins": {`return {success: true, message: "m", output: {assistantParts: ["o"]}}`, "true o"},
		"undefined":   {`return`, "false " + TextInvalid},
		"string":      {`return "yes"`, "false " + TextInvalid},
		"word":        {`return {success: "yes", message: "x"}`, "false " + TextInvalid},
		"neither":     {`return {success: true}`, "false " + TextInvalid},
		"part":        {`return {success: true, output: {assistantParts: [7]}}`, "false " + TextInvalid},
		"image":       {`return {success: true, output: {assistantParts: [{type: "image", base64: "?"}]}}`, "false " + TextInvalid},
		"cycle":       {`const a: any = {success: true}; a.message = a; return a`, "false " + TextInvalid},
		"trap":        {`return {get success() { throw new Error("trap") }}`, "false " + TextInvalid},
		"large":       {`return {success: true, message: "x".repeat(2 << 20)}`, "false " + TextInvalid},
		"throws":      {`throw new Error("no luck")`, "false Error: no luck"},
		"throws odd":  {`throw {get message() { throw 1 }}`, "false Error: the tool threw something that cannot be shown"},
		"never":       {`await new Promise(() => {})`, "false " + TextNever},
		"recursion":   {`const f = (): any => f() + 1; return f()`, "false Error: "},
		"waits":       {`await new Promise(r => setTimeout(r, 20)); return {success: true, message: "late"}`, "true late"},
		"exit":        {`(globalThis as any).Script.exit({success: true, message: "out"}); while (true) {}`, "true out"},
		"exit none":   {`(globalThis as any).Script.exit(); while (true) {}`, "false " + TextInvalid},
		"prototype":   {`Promise.prototype.then = null as any; JSON.stringify = null as any; return {success: true, message: "own"}`, "true own"},
		"no require":  {`return {success: true, message: [typeof (globalThis as any).require, typeof process, typeof (globalThis as any).host].join()}`, "true undefined,undefined,undefined"},
		"missing":     {`return {success: true, message: String((globalThis as any).Location.isAvailable)}`, "true false"},
		"missing use": {`(globalThis as any).Location.requestCurrent()`, "false Error: Location.requestCurrent is not available in Belay"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			call, err := project(t, false, execute(test.body)).Call([]byte(`{"n":1}`), Options{})
			if err != nil {
				t.Fatal(err)
			}
			e := call.Run(context.Background())
			got := fmt.Sprintf("%t %s", e.Result.Success, text(e.Result))
			if e.Cancelled || !strings.HasPrefix(got, test.want) || len(test.want) > 15 && got != test.want && name != "recursion" {
				t.Errorf("got %q (%+v), want %q", got, e, test.want)
			}
		})
	}
}

// TestStop is the Stop of running scripts (AT-5 to AT-8, AT-12, AT-15 to AT-17,
// AT-24, AT-27 to AT-34).
func TestStop(t *testing.T) {
	const now = `AssistantTool.report("now");`
	patient, quick := Options{Grace: time.Minute}, Options{Grace: 150 * time.Millisecond, KillAfter: 600 * time.Millisecond}
	for name, test := range map[string]struct {
		body    string
		message string // of Cancelled
		ending  Ending
		late    bool
		log     string
	}{
		"none":           {now + `await new Promise(r => setTimeout(r, 50)); return {success: true, message: "late"}`, "false ", Returned, true, ""},
		"partial":        {`AssistantTool.onCancel = () => "half"; ` + now + `await new Promise(r => setTimeout(r, 50))`, "true half", Returned, true, ""},
		"flag":           {now + `while (!AssistantTool.isCancelled) {}; return`, "false ", Returned, true, ""},
		"busy":           {`AssistantTool.onCancel = () => "kept"; ` + now + `while (true) { try { while (true) {} } catch (e) {} finally {} }`, "true kept", Interrupted, false, ""},
		"promise chain":  {now + `const f = (): any => Promise.resolve().then(f); await f()`, "false ", Interrupted, false, ""},
		"waits for ever": {now + `await new Promise(() => setInterval(() => {}, 5))`, "false ", Returned, false, ""},
		"null":           {`AssistantTool.onCancel = () => null; ` + now + `await new Promise(r => setTimeout(r, 30))`, "false ", Returned, true, ""},
		"empty":          {`AssistantTool.onCancel = () => ""; ` + now + `await new Promise(r => setTimeout(r, 30))`, "true ", Returned, true, ""},
		"number":         {`AssistantTool.onCancel = (() => 7) as any; ` + now + `await new Promise(r => setTimeout(r, 30))`, "false ", Returned, true, "onCancel returned number"},
		"promise":        {`AssistantTool.onCancel = (async () => "x") as any; ` + now + `await new Promise(r => setTimeout(r, 30))`, "false ", Returned, true, "onCancel returned object"},
		"throwing":       {`AssistantTool.onCancel = () => { throw new Error("bad") }; ` + now + `await new Promise(r => setTimeout(r, 30))`, "false ", Returned, true, "onCancel failed: bad"},
		"looping":        {`AssistantTool.onCancel = () => { while (true) {} }; ` + now + `await new Promise(r => setTimeout(r, 30))`, "false ", Returned, true, "onCancel was interrupted"},
		"exits":          {`AssistantTool.onCancel = () => { (globalThis as any).Script.exit({success: true, message: "x"}); return "kept" }; ` + now + `await new Promise(r => setTimeout(r, 30))`, "true kept", Returned, true, ""},
		"chain behind":   {`AssistantTool.onCancel = () => { const f = (): any => Promise.resolve().then(f); f(); return "kept" }; ` + now + `await new Promise(r => setTimeout(r, 30))`, "true kept", Returned, true, ""},
		"set late":       {now + `while (!AssistantTool.isCancelled) {}; await null; AssistantTool.onCancel = () => "late"; await new Promise(r => setTimeout(r, 30))`, "false ", Returned, true, ""},
		"late throw":     {now + `await new Promise(r => setTimeout(r, 30)); throw new Error("late")`, "false ", Returned, true, ""},
		"reset":          {`AssistantTool.onCancel = () => "once"; ` + now + `await new Promise(r => setTimeout(r, 30)); if (AssistantTool.onCancel !== null) while (true) {}`, "true once", Returned, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := patient // what ends by itself has the time that a slow machine needs
			if test.ending == Interrupted || !test.late {
				o = quick
			}
			e, w := stopAt(t, project(t, false, execute(test.body)), o, nil)
			logs, messages := w.said()
			if !e.Cancelled || messages != test.message || e.Ending != test.ending || e.Late != test.late {
				t.Errorf("ended %+v, message %q; want message %q, %s, late %t (log %q)", e, messages, test.message, test.ending, test.late, logs)
			}
			if !strings.Contains(logs, test.log) {
				t.Errorf("log %q, want %q in it", logs, test.log)
			}
		})
	}
}

// TestSecondStop interrupts a busy loop at once (AT-29).
func TestSecondStop(t *testing.T) {
	tool := project(t, false, execute(`AssistantTool.report("now"); while (true) {}`))
	begin := time.Now()
	e, _ := stopAt(t, tool, Options{Grace: time.Minute, KillAfter: time.Minute}, (*Call).Interrupt)
	for !e.Cancelled || e.Ending != Interrupted || time.Since(begin) > 5*time.Second {
		t.Fatalf("ended %+v after %s", e, time.Since(begin))
	}
}

// TestOnCancelOutside has no effect outside of the execution (AT-13, AT-19, AT-65).
func TestOnCancelOutside(t *testing.T) {
	const source = `
AssistantTool.onCancel = () => "top"
AssistantTool.registerApprovalRequest<any>(async () => { AssistantTool.onCancel = () => "asked"; return {message: "?", primaryButtonLabel: "Yes"} })
AssistantTool.registerExecuteToolWithApproval<any>(async () => { AssistantTool.report("now"); await new Promise(r => setTimeout(r, 30)); return {success: true, message: "x"} })`
	e, w := stopAt(t, project(t, true, source), Options{AutoApprove: true}, nil)
	if _, messages := w.said(); !e.Cancelled || messages != "false " {
		t.Errorf("ended %+v with %q", e, messages)
	}
}

// TestApproval is every answer with its flags (AT-58 to AT-63).
func TestApproval(t *testing.T) {
	const source = `
AssistantTool.registerApprovalRequest<any>(async () => ({message: "Sure?", LABELS}))
AssistantTool.registerExecuteToolWithApproval<any>(async (p: any, a: any) => ({success: a.primaryConfirmed, message: a.primaryConfirmed + "/" + a.secondaryConfirmed}))`
	const both = `primaryButtonLabel: "Do", secondaryButtonLabel: "Keep"`
	for name, test := range map[string]struct {
		labels   string
		auto     bool
		answer   Answer
		want     string
		declined bool
	}{
		"primary":      {both, false, Primary, "true/false", false},
		"secondary":    {both, false, Secondary, "false/true", true},
		"dismissed":    {both, false, Dismissed, "false/false", true},
		"no primary":   {`secondaryButtonLabel: "Keep"`, false, Primary, "false/false", true},
		"auto":         {both, true, Dismissed, "true/false", false},
		"auto, no way": {`secondaryButtonLabel: "Keep"`, true, Dismissed, "false/false", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked *Dialog
			call, err := project(t, true, strings.ReplaceAll(source, "LABELS", test.labels)).Call([]byte("{}"), Options{
				AutoApprove: test.auto,
				Hooks: Hooks{Ask: func(_ context.Context, d Dialog) (Answer, error) {
					asked = &d
					return test.answer, nil
				}},
			})
			if err != nil {
				t.Fatal(err)
			}
			e := call.Run(context.Background())
			if text(e.Result) != test.want || e.Declined != test.declined || e.Cancelled {
				t.Errorf("ended %+v, want %q, declined %t", e, test.want, test.declined)
			}
			if test.auto == (asked != nil) || asked != nil && (asked.Title != "Probe" || asked.Message != "Sure?") {
				t.Errorf("asked %+v", asked)
			}
		})
	}
}

// TestStopWhileAsking withdraws the dialog and never executes (AT-65).
func TestStopWhileAsking(t *testing.T) {
	const source = `
AssistantTool.registerApprovalRequest<any>(async () => ({message: "Sure?", primaryButtonLabel: "Do"}))
AssistantTool.registerExecuteToolWithApproval<any>(async () => { AssistantTool.report("executed"); return {success: true, message: "x"} })`
	w := &watch{}
	ctx, cancel := context.WithCancelCause(context.Background())
	hooks := w.hooks()
	withdrawn := make(chan error, 1)
	hooks.Ask = func(ctx context.Context, _ Dialog) (Answer, error) {
		cancel(theStop)
		<-ctx.Done()
		withdrawn <- context.Cause(ctx)
		return Primary, nil
	}
	call, err := project(t, true, source).Call([]byte("{}"), Options{Hooks: hooks})
	if err != nil {
		t.Fatal(err)
	}
	e := call.Run(ctx)
	if cause := <-withdrawn; !e.Cancelled || e.Declined || cause != error(theStop) || len(w.reports) != 0 {
		t.Errorf("ended %+v, cause %v, reports %q", e, cause, w.reports)
	}
}

// TestLoadRefuses names what is wrong with a project (acceptance: bad input).
func TestLoadRefuses(t *testing.T) {
	for name, test := range map[string]struct{ source, want string }{
		"syntax":      {"const x = {\nAssistantTool.", "assistant_tool.tsx:2:"},
		"import":      {`import fs from "fs"; fs.readFileSync("x")`, `"fs" is not a file of this project`},
		"outside":     {`import x from "../../etc/passwd"; x()`, "../../etc/passwd"},
		"await":       {`await fetch("x")`, "Top-level await"},
		"throws":      {`throw new Error("at once")`, "its top level threw: Error: at once"},
		"nothing":     {`const a = 1`, "AssistantTool.registerExecuteTool must be called"},
		"wrong kind":  {`AssistantTool.registerApprovalRequest(async () => ({message: ""}))`, "registerExecuteTool must be called"},
		"no function": {`AssistantTool.registerExecuteTool(7 as any)`, "takes a function"},
		"view":        {`AssistantTool.registerUIView(() => null as any)`, "needs a user interface"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Load(projectDir(t, false, test.source))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q in it", err, test.want)
			}
		})
	}
}
