package script

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// says runs a script, with further files by name and text, and returns what it came to
// and what was logged.
func says(t *testing.T, source string, files ...string) (result, logs string) {
	t.Helper()
	dir := projectDir(t, false, source)
	for i := 0; i < len(files); i += 2 {
		more(t, dir, files[i], files[i+1])
	}
	tool, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	w := &watch{}
	e := run(t, tool, `{"n":1}`, Options{Hooks: w.hooks()})
	logs, _ = w.said()
	return fmt.Sprintf("%t %s", e.Result.Success, text(e.Result)), logs
}

// TestAT02_Surface is the cancellation surface as a script finds it: onCancel is null
// and writable, isCancelled false and not (AT-2, AT-9, AT-48, AT-56).
func TestAT02_Surface(t *testing.T) {
	t.Parallel()
	got, _ := says(t, execute(`
		"use strict"
		const A = AssistantTool as any, out: any[] = [A.onCancel, A.isCancelled]
		A.onCancel = () => "x"; out.push(typeof A.onCancel)
		A.onCancel = undefined; out.push(A.onCancel)
		const refused = (fn: () => void) => { try { fn(); out.push("taken") } catch (e: any) { out.push(e.name) } }
		refused(() => { A.isCancelled = true })
		refused(() => { A.report = 1 })
		refused(() => { A.more = 1 })
		refused(() => { delete A.report })
		refused(() => { A.onCancel = "text" })
		refused(() => { (globalThis as any).AssistantTool = 1 })
		return {success: true, message: out.map(String).join()}`))
	if got != "true null,false,function,null,TypeError,TypeError,TypeError,TypeError,TypeError,TypeError" {
		t.Error(got)
	}
}

// TestAT04_WithoutOnCancel stops each kind of tool without its help, a tool without
// approval and one with, asked or not: it is cancelled, no error, and what it returns
// is dropped (AT-1, AT-3 to AT-7, AT-14, AT-20, AT-24 to AT-26).
func TestAT04_WithoutOnCancel(t *testing.T) {
	const work = `AssistantTool.report("now"); while (!AssistantTool.isCancelled) await new Promise(r => setTimeout(r, 1)); RETURN`
	const asked = `AssistantTool.registerApprovalRequest<any>(async () => ({message: "?", primaryButtonLabel: "Yes"}))
AssistantTool.registerExecuteToolWithApproval<any>(async () => { BODY })`
	yes := func(context.Context, Dialog) (Answer, error) { return Primary, nil }
	for name, end := range map[string]string{"bare": `return`, "result": `return {success: true, message: "late"}`, "throw": `throw new Error("late")`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body := strings.Replace(work, "RETURN", end, 1)
			for kind, how := range map[string]struct {
				approval bool
				source   string
				o        Options
			}{
				"plain": {false, execute(body), Options{}},
				"asked": {true, strings.Replace(asked, "BODY", body, 1), Options{Hooks: Hooks{Ask: yes}}},
				"auto":  {true, strings.Replace(asked, "BODY", body, 1), Options{AutoApprove: true}},
			} {
				e, w := stopAt(t, project(t, how.approval, how.source), how.o, nil)
				if _, messages := w.said(); !e.Cancelled || e.Declined || e.Partial || e.Result.Assistant != nil && messages != "false " {
					t.Errorf("%s: ended %+v, told %q", kind, e, messages)
				}
			}
		})
	}
}

// TestAT11_PartialInEveryKind hands back what onCancel says wherever it may be set
// (AT-10, AT-11, AT-14, AT-16, AT-18, AT-20, AT-23), and a decline is something else:
// it runs the tool, which says so itself (AT-21, AT-62).
func TestAT11_PartialInEveryKind(t *testing.T) {
	t.Parallel()
	const source = `AssistantTool.registerApprovalRequest<any>(async () => ({message: "?", primaryButtonLabel: "Yes", secondaryButtonLabel: "No"}))
AssistantTool.registerExecuteToolWithApproval<any>(async (p: any, {primaryConfirmed, secondaryConfirmed}: any) => {
	if (!primaryConfirmed) return {success: false, message: "declined: " + secondaryConfirmed}
	const done: string[] = []
	AssistantTool.onCancel = () => ["Cancelled by the user.", "Partial results:", ...done].join("\n")
	for (let i = 0; i < 3; i++) done.push("item " + i)
	AssistantTool.report("now")
	while (!AssistantTool.isCancelled) await new Promise(r => setTimeout(r, 1))
	done.push("too late")
})`
	tool := project(t, true, source)
	for name, o := range map[string]Options{
		"asked": {Hooks: Hooks{Ask: func(context.Context, Dialog) (Answer, error) { return Primary, nil }}},
		"auto":  {AutoApprove: true},
	} {
		e, _ := stopAt(t, tool, o, nil)
		if want := "Cancelled by the user.\nPartial results:\nitem 0\nitem 1\nitem 2"; !e.Cancelled || strings.TrimSuffix(e.Message, "\ntoo late") != want { // the flag is there before onCancel's turn
			t.Errorf("%s: ended %+v", name, e)
		}
	}
	e := run(t, tool, "{}", Options{Hooks: Hooks{Ask: func(context.Context, Dialog) (Answer, error) { return Secondary, nil }}})
	if e.Cancelled || !e.Declined || text(e.Result) != "declined: true" {
		t.Errorf("declined: %+v", e)
	}
}

// TestAT22_OnCancelMayNotWait lets onCancel start what it must not, and takes none of
// it: its promise is no text, and nothing that it began keeps the call (AT-22, AT-31).
func TestAT22_OnCancelMayNotWait(t *testing.T) {
	t.Parallel()
	e, w := stopAt(t, project(t, false, execute(`
		AssistantTool.onCancel = () => { setInterval(() => {}, 1); fetch("http://127.0.0.1:1/").catch(() => {}); return "half" }
		AssistantTool.report("now")
		await new Promise(r => setTimeout(r, 20))`)), Options{}, nil)
	if _, messages := w.said(); !e.Cancelled || e.Ending != Returned || messages != "true half" {
		t.Errorf("ended %+v, told %q", e, messages)
	}
}

// TestAT33_NothingAfterTheGrace: once its timers were dropped and its requests aborted
// a script gets no new ones, so that it ends by itself (AT-33).
func TestAT33_NothingAfterTheGrace(t *testing.T) {
	t.Parallel()
	n, at, _ := site(t)
	e, w := stopAt(t, project(t, false, execute(`
		AssistantTool.report("now")
		try { await fetch("`+at+`/hang") } catch (e: any) { console.log(e.name) }
		try { await fetch("`+at+`/hang") } catch (e: any) { console.log(e.name) }
		await new Promise(r => setTimeout(r, 60000))`)), Options{Network: n, Grace: 50 * time.Millisecond, KillAfter: time.Minute}, nil)
	if logs, _ := w.said(); !e.Cancelled || e.Ending != Returned || logs != "info: AbortError\ninfo: AbortError" {
		t.Errorf("ended %+v, log %q", e, logs)
	}
}

// TestAT37_Ending says how the script ended (AT-37).
func TestAT37_Ending(t *testing.T) {
	t.Parallel()
	patient, quick := Options{Grace: time.Minute}, Options{Grace: 50 * time.Millisecond, KillAfter: 200 * time.Millisecond}
	for body, want := range map[string]Ended{
		`await new Promise(r => setTimeout(r, 10))`: {Cancelled: true, Ending: Returned, Late: true},
		`while (true) {}`:     {Cancelled: true, Ending: Interrupted},
		`for (;;) await null`: {Cancelled: true, Ending: Interrupted},
		`(globalThis as any).Script.exit({success: true, message: "x"})`: {Ending: Returned},
	} {
		e, _ := stopAt(t, project(t, false, execute(`if (!AssistantTool.isCancelled) AssistantTool.report(`+map[bool]string{true: `"now"`, false: `"not now"`}[want.Cancelled]+`); `+body)), map[Ending]Options{Returned: patient, Interrupted: quick}[want.Ending], nil)
		if e.Cancelled != want.Cancelled || e.Ending != want.Ending || e.Late != want.Late {
			t.Errorf("%s: %+v", body, e)
		}
	}
	// Stopped before it began.
	call, err := project(t, false, execute(`AssistantTool.report("ran")`)).Call([]byte("{}"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(theStop)
	if e := call.Run(ctx); !e.Cancelled || e.Ending != NotStarted {
		t.Errorf("stopped before: %+v", e)
	}
}

// TestAT48_Registration: what the register functions return does nothing when it is
// called, the last registration counts and the earlier one is warned about, and
// anything but a function is refused (AT-48 to AT-53).
func TestAT48_Registration(t *testing.T) {
	t.Parallel()
	got, logs := says(t, `
const kinds: any[] = [AssistantTool.registerExecuteTool, AssistantTool.registerApprovalRequest, AssistantTool.registerExecuteToolWithApproval, (AssistantTool as any).registerUIView]
let out = kinds.map(k => { try { k("no function"); return "taken" } catch (e: any) { return e.name } })
const test = AssistantTool.registerExecuteTool<any>(async () => { throw new Error("the first one ran") })
out.push(typeof test, String((test as any)({n: 1})))
AssistantTool.registerExecuteTool<any>(async () => ({success: true, message: out.join()}))
const view = (AssistantTool as any).registerUIView(() => null)
out.push(String(view({n: 1}, {isAutoApprove: true})))`)
	if got != "true TypeError,TypeError,TypeError,TypeError,function,undefined,undefined" || !strings.Contains(logs, "warn: AssistantTool.registerExecuteTool was called again") {
		t.Errorf("got %q, log %q", got, logs)
	}
}

// TestAT55_State is of this call only (AT-55, acceptance 12).
func TestAT55_State(t *testing.T) {
	t.Parallel()
	tool := project(t, false, execute(`
		const A = AssistantTool as any, before = A.getState("k")
		A.setState("k", {deep: [1, null]}); A.setState("gone", 1); A.removeState("gone"); A.setState("k2", "v")
		const kept = JSON.stringify([before, A.getState("k"), A.getState("gone"), A.getState("k2")])
		A.clearState()
		let odd = ""; try { A.setState(7, 1) } catch (e: any) { odd = e.name }
		const later = A.getState("k"); A.setState("k", "left behind")
		return {success: true, message: kept + later + odd}`))
	for range 2 {
		if e := run(t, tool, "{}", Options{}); text(e.Result) != `[null,{"deep":[1,null]},null,"v"]nullTypeError` {
			t.Errorf("%+v", e)
		}
	}
}

// TestAT54_Reports: the same id again replaces the earlier report, and after a Stop
// nothing is reported any more (AT-54, acceptance 12).
func TestAT54_Reports(t *testing.T) {
	t.Parallel()
	e, w := stopAt(t, project(t, false, execute(`
		for (const m of ["a", "b", "c"]) AssistantTool.report(m, "one")
		AssistantTool.report(7 as any)
		AssistantTool.report("now")
		while (!AssistantTool.isCancelled) await new Promise(r => setTimeout(r, 1))
		AssistantTool.report("after")`)), Options{}, nil)
	if got := strings.Join(w.reports, " "); !e.Cancelled || got != "one=a one=b one=c #1=7 #2=now" {
		t.Errorf("reports %q", got)
	}
}

// TestAT64_NoDialog fails the call where the request function gives nothing to ask
// about, and never executes (AT-58, AT-59, AT-64).
func TestAT64_NoDialog(t *testing.T) {
	const source = `AssistantTool.registerApprovalRequest<any>(async () => { REQUEST })
AssistantTool.registerExecuteToolWithApproval<any>(async () => { console.log("executed"); return {success: true, message: "x"} })`
	for request, want := range map[string]string{
		`throw new Error("no idea")`:                                "Error: no idea",
		`return undefined as any`:                                   "Error: the approval request has no message",
		`return {title: "t"} as any`:                                "Error: the approval request has no message",
		`return {message: 7} as any`:                                "Error: the approval request has no message, or a title or label that is no string",
		`return {message: "m", primaryButtonLabel: {}} as any`:      "Error: the approval request has no message, or a title or label that is no string",
		`return {get message() { throw 1 }} as any`:                 "Error: the approval request has no message",
		`await new Promise(() => {}); return {message: ""}`:         TextNever,
		`const f = (): any => f() + 1; return f()`:                  TextDeep,
		`return {message: "m", previewButton: {label: 7}} as any`:   "Error: the approval request has no message, or a title or label that is no string",
		`return {message: "m", title: ["x"]} as any`:                "Error: the approval request has no message, or a title or label that is no string",
		`return new Proxy({}, {get() { while (true) {} }}) as any`:  TextCPU,
		`(globalThis as any).Script.exit(); return {message: "no"}`: TextInvalid,
	} {
		t.Run(request, func(t *testing.T) {
			t.Parallel()
			w := &watch{}
			hooks := w.hooks()
			hooks.Ask = func(context.Context, Dialog) (Answer, error) { t.Error("asked"); return Primary, nil }
			e := run(t, project(t, true, strings.Replace(source, "REQUEST", request, 1)), "{}", Options{Hooks: hooks, CPU: 200 * time.Millisecond})
			if logs, _ := w.said(); e.Cancelled || e.Result.Success || !strings.HasPrefix(text(e.Result), want) || strings.Contains(logs, "executed") {
				t.Errorf("ended %+v, want %q; log %q", e, want, logs)
			}
		})
	}
}

// TestAT60_Preview runs what the preview button stands for before the decision, and
// only logs what goes wrong in it (AT-60).
func TestAT60_Preview(t *testing.T) {
	t.Parallel()
	const source = `AssistantTool.registerApprovalRequest<any>(async () => ({message: "?", primaryButtonLabel: "Yes",
	previewButton: {label: "Show", action: () => { console.log("shown"); throw new Error("half way") }}}))
AssistantTool.registerExecuteToolWithApproval<any>(async (p: any, a: any) => ({success: true, message: String(a.primaryConfirmed)}))`
	w := &watch{}
	hooks, shown := w.hooks(), make(chan struct{})
	log := hooks.Log
	hooks.Log = func(level, message string) {
		log(level, message)
		if strings.Contains(message, "half way") {
			close(shown)
		}
	}
	hooks.Ask = func(ctx context.Context, d Dialog) (Answer, error) {
		if d.Preview != "Show" || d.OnPreview == nil {
			return Dismissed, errors.New("there is no preview")
		}
		d.OnPreview(ctx)
		<-shown
		return Primary, nil
	}
	e := run(t, project(t, true, source), "{}", Options{Hooks: hooks})
	if logs, _ := w.said(); text(e.Result) != "true" || logs != "info: shown\nwarn: the preview failed: half way" {
		t.Errorf("ended %+v, log %q", e, logs)
	}
}

// TestAT73_Globals is what a script finds around it (AT-73, AT-74, AT-79, AT-80).
func TestAT73_Globals(t *testing.T) {
	for name, test := range map[string]struct{ body, want, log string }{
		"console":    {`console.log("a", 1, {b: 2}, null); console.warn("w"); console.error(new Error("e")); console.clear(); return typeof await console.present()`, "undefined", "info: a 1 {\"b\":2} null\nwarn: w\nerror: e"},
		"timers":     {`let n = 0; const i = setInterval(() => n++, 1); await new Promise(r => setTimeout(r, 50)); clearInterval(i); const gone = setTimeout(() => n = 1e9, 5); clearTimeout(gone); await new Promise(r => queueMicrotask(r as any)); await new Promise(r => setTimeout(r, 20)); return typeof i + (n > 2 && n < 1000)`, "numbertrue", ""},
		"timer args": {`return await new Promise(r => setTimeout((a: any, b: any) => r(a + b), 1, "x", "y"))`, "xy", ""},
		"Script":     {`return [Script.env, Script.name, Script.metadata.name, Script.metadata.version, JSON.stringify(Script.queryParameters), typeof Script.onResume(() => {})].join()`, `assistant_tool,Probe,Probe,1.0.0,{},function`, ""},
		"device":     {`const d = Location as any, out = [d.isAvailable]; for (const f of [() => d.requestCurrent(), () => new d(), () => d(), () => { d.x = 1 }, () => FileManager.readAsString("x")]) try { f() } catch (e: any) { out.push(e.name + ": " + e.message) }; return out.join("|")`, "false|NotAvailableError: Location.requestCurrent is not available in Belay|NotAvailableError: Location is not available in Belay|NotAvailableError: Location is not available in Belay|NotAvailableError: Location.x is not available in Belay|NotAvailableError: FileManager.readAsString is not available in Belay", ""},
		"nothing":    {`return ["require", "process", "module", "exports", "Deno", "Bun", "os", "fs", "Go", "host"].filter(n => n in globalThis).join()`, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, logs := says(t, `import { Script, Location, FileManager } from "scripting"`+"\n"+execute("const show = async () => {"+test.body+"}; return {success: true, message: String(await show())}"))
			if got != "true "+test.want || logs != test.log {
				t.Errorf("got %q, log %q", got, logs)
			}
		})
	}
}

// TestAT82_Compiling takes what the language has and the interpreter has not: async
// generators, for await, optional chaining, private fields, JSX (AT-82), and names
// that "scripting" lacks are undefined until they are used (AT-83, acceptance 14).
func TestAT82_Compiling(t *testing.T) {
	got, _ := says(t, `
import { VStack, Text, Path, Script } from "scripting"
import * as everything from "scripting"
import { half } from "./lib/half"
class C { #n = 20; static async *count(c: C) { for (let i = 0; i < 2; i++) yield c.#n } }
const view = () => <VStack spacing={1}><Text>hi</Text><></></VStack>
`+execute(`
	let sum = half(4)
	for await (const n of C.count(new C())) sum += n
	let used = "fine"; try { new (Path as any)() } catch (e: any) { used = e.name }
	return {success: true, message: [sum, 2 ** 3, (null as any)?.x ?? "none", typeof VStack, typeof view().props, everything.Script === Script, used].join()}`), "lib/half.ts", "export const half = (n: number) => n / 2")
	if got != "true 42,8,none,undefined,object,true,TypeError" {
		t.Error(got)
	}
}

// TestAT84_Refused: what lies outside of the project, and top-level await, keep it
// from loading, with line and column (AT-82 to AT-84, AT-86, AT-88).
func TestAT84_Refused(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		`import x from "lodash"; x()`:                               `1:15: "lodash" is not a file of this project`,
		"\n\nimport x from \"node:fs\"; x()":                        `3:15: "node:fs"`,
		`import x from "https://example.com/x.js"; x()`:             `"https://example.com/x.js" is not a file`,
		`import x from "/etc/passwd"; x()`:                          `"/etc/passwd" is not a file`,
		`const x = await Promise.resolve(1)`:                        `1:11: Top-level await`,
		`import x from "./none"; x()`:                               `Could not resolve "./none"`,
		"const a = 1\nconst b = ;":                                  `assistant_tool.tsx:2:11`,
		`export const x = "` + strings.Repeat("x", MaxBundle) + `"`: "at most 4194304",
		`const x: number = "types are not checked"; AssistantTool.registerExecuteTool(async () => ({success: true, message: String(x)}))`: "",
		`throw {toString() { throw 1 }}`:               "its top level threw: the tool threw something that cannot be shown",
		`throw {toString() { while (true) {} }}`:       "its top level threw: the tool threw something that cannot be shown",
		`const f = (): any => f() + 1; f()`:            "its top level threw: Error: the tool called itself too deeply.",
		`fetch("http://127.0.0.1:1/").catch(() => {})`: "registerExecuteTool must be called",
	} {
		_, err := Load(projectDir(t, false, source))
		switch {
		case want == "" && err != nil:
			t.Errorf("%.60s: %v", source, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%.60s: error %.300v, want %q in it", source, err, want)
		case want != "" && !errors.Is(err, ErrSource) && !errors.Is(err, ErrRegistration):
			t.Errorf("%.60s: %v is none of the sentinels", source, err)
		}
	}
}

// TestAT84_NothingOutside: neither a source map, nor a link in the place of the script or
// of its manifest, makes the host read what lies elsewhere (AT-84).
func TestAT84_NothingOutside(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret.ts")
	if err := os.WriteFile(secret, []byte("secret words here"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := projectDir(t, false, execute(`return {success: true, message: "x"}`)+"\n//# sourceMappingURL="+secret+"\n/*@ sourceMappingURL=../../etc/hostname */")
	if _, err := Load(dir); err != nil {
		t.Errorf("a source map: %v", err)
	}
	for _, name := range []string{"assistant_tool.tsx", ManifestFile} {
		dir := projectDir(t, false, execute(`return {success: true, message: "x"}`))
		path := filepath.Join(dir, name)
		if err := errors.Join(os.Remove(path), os.Symlink(secret, path)); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(dir); err == nil || strings.Contains(err.Error(), "secret words") || !strings.Contains(err.Error(), "outside of the project") {
			t.Errorf("%s is a link: %v", name, err)
		}
	}
}

// TestAT84_Deep refuses what would overflow the stack of who compiles it.
func TestAT84_Deep(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"arrays": "const a=" + strings.Repeat("[", 900000), "parentheses": strings.Repeat("(", 900000), "not": "const a=" + strings.Repeat("!", 900000) + "1",
		"arrows": "const f=" + strings.Repeat("a=>", 900000) + "1", "ifs": strings.Repeat("if(0)", 800000) + ";", "spaced": "const a=" + strings.Repeat("! ", 900000) + "1",
	} {
		if _, err := Load(projectDir(t, false, text)); !errors.Is(err, ErrSource) || !strings.Contains(err.Error(), "deep at line 1") {
			t.Errorf("%s: %v", name, err)
		}
	}
	fine := "const a = " + strings.Repeat("[", 400) + strings.Repeat("]", 400) + "\n" + strings.Repeat("// ------ ((( \n", 200) + execute(`return {success: true, message: String(a.length)}`)
	if _, err := Load(projectDir(t, false, fine)); err != nil {
		t.Error(err)
	}
}

// TestAT85_FreshMachine gives each call a machine of its own: nothing that one call
// does to its world is there in the next (AT-85, AT-80).
func TestAT85_FreshMachine(t *testing.T) {
	t.Parallel()
	tool := project(t, false, `let calls = 0
AssistantTool.registerExecuteTool<any>(async () => {
	calls++
	const seen = [calls, (globalThis as any).mark, ({} as any).tainted].join()
	;(globalThis as any).mark = "left"; (Object.prototype as any).tainted = "left"
	return {success: true, message: seen}
})`)
	for range 3 {
		if e := run(t, tool, "{}", Options{}); text(e.Result) != "1,," {
			t.Errorf("%+v", e)
		}
	}
}

// TestAT86_TopLevelEnds refuses a top level that loops when its time is over (AT-86).
func TestAT86_TopLevelEnds(t *testing.T) {
	if testing.Short() {
		t.Skip("takes the five seconds that a top level has")
	}
	t.Parallel()
	if _, err := Load(projectDir(t, false, `for (;;) { try { for (;;) {} } finally { continue } }`)); !errors.Is(err, ErrRegistration) || !strings.Contains(err.Error(), "more than 5s") {
		t.Errorf("error %v", err)
	}
}

// more adds a file to the project in a folder.
func more(t *testing.T, dir, name, content string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o600)); err != nil {
		t.Fatal(err)
	}
}
