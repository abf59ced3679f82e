package script

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// run runs a tool to its end, unstopped unless it takes too long.
func run(t *testing.T, tool *Tool, params string, o Options) Ended {
	t.Helper()
	call, err := tool.Call([]byte(params), o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), 30*time.Second, theStop)
	defer cancel()
	return call.Run(ctx)
}

// TestHostile gives each of these a defined outcome, after which the process goes on
// as before (AT-69, AT-70, AT-87). What kills a process is for the worker's owner:
// see the acceptance tests.
func TestHostile(t *testing.T) {
	fine := ` return {success: true, message: "fine"}`
	caught := func(code string) string {
		return `try { ` + code + ` } catch (e: any) { return {success: true, message: e.name} }` + fine
	}
	for name, test := range map[string]struct{ body, want string }{
		"recursion":                  {`const f = (): any => f() + 1; return f()`, "false " + TextDeep},
		"async recursion":            {`const f = async (): Promise<any> => await f(); return f()`, "false " + TextDeep},
		"getter recursion":           {`const o = {get a(): any { return this.a }}; return o.a`, "false " + TextDeep},
		"toJSON recursion":           {`const o: any = {toJSON() { return JSON.stringify(o) }}; return o`, "false " + TextDeep},
		"recursion, caught":          {`const f = (): any => f() + 1; try { f() } catch (e) {}` + fine, "false " + TextDeep},
		"throws what throws":         {`throw {toString() { throw 1 }}`, "false Error: the tool threw something that cannot be shown"},
		"throws a proxy":             {`throw new Proxy({}, {get() { throw 1 }})`, "false Error: the tool threw something that cannot be shown"},
		"throws a symbol":            {`throw Symbol("x")`, "false Error: Symbol(x)"},
		"throws undefined":           {`throw undefined`, "false Error: undefined"},
		"throws at":                  {`throw new Error("look at this")`, "false Error: look at this"},
		"a timer throws odd":         {`setTimeout(() => { throw {toString() { throw 1 }} }); await new Promise(r => setTimeout(r, 20));` + fine, "true fine"},
		"a timer throws for ever":    {`setTimeout(() => { throw {toString() { while (true) {} }} }); await new Promise(r => setTimeout(r, 20));` + fine, "true fine"},
		"unhandled rejection":        {`Promise.reject(new Error("nobody")); await null;` + fine, "true fine"},
		"thenable result":            {`return {then(a: any) { a({success: true, message: "first"}); a({success: false, message: "second"}); throw 1 }} as any`, "true first"},
		"symbol message":             {`return {success: true, message: Symbol("x") as any}`, "false " + TextInvalid},
		"proxy result":               {`return new Proxy({}, {get: (_, k) => k === "success", ownKeys: () => ["success"], getOwnPropertyDescriptor: () => ({enumerable: true, configurable: true})}) as any`, "false " + TextInvalid},
		"parts, too many":            {`return {success: true, output: {assistantParts: Array(257).fill("x")}}`, "false " + TextInvalid},
		"output an array":            {`return {success: true, output: []}`, "false " + TextInvalid},
		"message and null":           {`return {success: true, message: "m", output: null}`, "true m"},
		"bigint in the result":       {`return {success: true, message: "x", extra: 1n} as any`, "false " + TextInvalid},
		"no prototype left":          {`Object.setPrototypeOf(globalThis, null); Object.prototype.toString = () => { throw 1 };` + fine, "true fine"},
		"no iteration left":          {`(Array.prototype as any)[Symbol.iterator] = null; (Function.prototype as any).call = null;` + fine, "true fine"},
		"Object.prototype setter":    {`Object.defineProperty(Object.prototype, "success", {get() { throw 1 }, set() { throw 1 }});` + fine, "true fine"},
		"Object.prototype.toJSON":    {`(Object.prototype as any).toJSON = () => { throw 1 };` + fine, "false " + TextInvalid},
		"Promise replaced":           {`globalThis.Promise = class { constructor() { throw 1 } } as any;` + fine, "true fine"},
		"the host is not in reach":   {`return {success: true, message: [typeof (globalThis as any).require, typeof (globalThis as any).process, typeof (globalThis as any).module, typeof new Function("return typeof host")()].join()}`, "true undefined,undefined,undefined,string"},
		"an interpreter's mistake":   {`return {success: true, message: "x".repeat(2 ** 53)}`, "false Error: the interpreter failed"},
		"a negative buffer":          {caught(`new ArrayBuffer(-1)`), "true RangeError"},
		"deep brackets, parsed":      {`JSON.parse("[".repeat(20000) + "]".repeat(20000));` + fine, "true fine"},
		"deep brackets, run":         {`eval("(".repeat(5000) + "1" + ")".repeat(5000));` + fine, "true fine"},
		"deep proxies":               {`let p: any = {}; for (let i = 0; i < 5000; i++) p = new Proxy(p, {}); p.x;` + fine, "true fine"},
		"timers, too many":           {caught(`for (;;) setTimeout(() => {}, 1e9)`), "true RangeError"},
		"signals, too many":          {caught(`for (;;) AbortSignal.timeout(1e9)`), "true RangeError"},
		"state, too many keys":       {caught(`for (let i = 0; ; i++) AssistantTool.setState("k" + i, i)`), "true RangeError"},
		"state, too large":           {caught(`AssistantTool.setState("k", "x".repeat(256 << 10))`), "true RangeError"},
		"state, a cycle":             {caught(`const a: any = {}; a.a = a; AssistantTool.setState("k", a)`), "true TypeError"},
		"state, a function":          {caught(`AssistantTool.setState("k", () => 1)`), "true TypeError"},
		"report throws":              {`AssistantTool.report({toString() { throw new Error("evil") }} as any)`, "false Error: evil"},
		"forever microtasks, CPU":    {`const f = (): any => Promise.resolve().then(f); return f()`, "false " + TextCPU},
		"forever loop, CPU":          {`for (;;) { try { for (;;) {} } catch (e) {} finally { for (;;) {} } }`, "false " + TextCPU},
		"forever timers, CPU":        {`await new Promise(() => setInterval(() => { for (let i = 0; i < 1e4; i++); }, 1))`, "false " + TextCPU},
		"waiting costs nothing, CPU": {`await new Promise(r => setTimeout(r, 400));` + fine, "true fine"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, o := &watch{}, Options{}
			if strings.HasSuffix(name, "CPU") {
				o.CPU = 300 * time.Millisecond
			}
			o.Hooks = w.hooks()
			e := run(t, project(t, false, execute(test.body)), "{}", o)
			logs, _ := w.said()
			if got := fmt.Sprintf("%t %s", e.Result.Success, text(e.Result)); e.Cancelled || got != test.want {
				t.Errorf("got %q (%+v), want %q; log %.500q", got, e, test.want, logs)
			}
		})
	}
}

// TestReportsBounded passes thousands of reports on as 256 different ones, none of
// them longer than its bound, and of a flood the newest (AT-54, AT-88).
func TestReportsBounded(t *testing.T) {
	w := &watch{}
	e := run(t, project(t, false, execute(`
		for (let i = 0; i < 900; i++) AssistantTool.report("r" + i, "id" + i)
		AssistantTool.report("x".repeat(100000), "id0")
		for (let i = 0; i < 20000; i++) AssistantTool.report("flood " + i, "id1")
		await new Promise(r => setTimeout(r, 200))
		for (let i = 0; i < 20000; i++) AssistantTool.report("more " + i, "id1")
		return {success: true, message: "done"}`)), "{}", Options{Hooks: w.hooks()})
	last, longest := map[string]string{}, 0
	for _, r := range w.reports {
		id, message, _ := strings.Cut(r, "=")
		last[id], longest = message, max(longest, len(message))
	}
	if !e.Result.Success || len(last) != MaxReports || longest > MaxMessage || last["id255"] != "r899" || last["id1"] != "more 19999" || !strings.HasPrefix(last["id0"], "xxx") {
		t.Errorf("ended %+v, %d reports by %d ids, the longest %d bytes, %q, %q", e, len(w.reports), len(last), longest, last["id255"], last["id1"])
	}
	if len(w.reports) > 2000 {
		t.Errorf("%d reports", len(w.reports))
	}
}

// TestMessageCut bounds what onCancel hands back, and says so (AT-88).
func TestMessageCut(t *testing.T) {
	e, _ := stopAt(t, project(t, false, execute(`AssistantTool.onCancel = () => "ä".repeat(100000); AssistantTool.report("now"); await new Promise(r => setTimeout(r, 30))`)), Options{}, nil)
	if !e.Partial || len(e.Message) > MaxMessage || !strings.HasSuffix(e.Message, "ä\n[cut: the message was longer]") {
		t.Errorf("a message of %d bytes that ends %q", len(e.Message), e.Message[max(0, len(e.Message)-40):])
	}
}

// TestConsoleCut bounds each line of a script's console, and all of them (AT-73).
func TestConsoleCut(t *testing.T) {
	w := &watch{}
	run(t, project(t, false, execute(`console.log("x".repeat(1 << 20)); for (let i = 0; i < 30000; i++) console.log("y".repeat(i % 2000)); return {success: true, message: ""}`)), "{}", Options{Hooks: w.hooks()})
	logs, _ := w.said()
	first, _, _ := strings.Cut(logs, "\n")
	if len(first) > MaxMessage+len("info: ") || len(logs) > MaxConsole+20*MaxConsoleLines || !strings.HasSuffix(logs, "the rest is left out") {
		t.Errorf("a line of %d bytes, %d bytes in all, at the end %q", len(first), len(logs), logs[len(logs)-100:])
	}
}

// FuzzScript loads and runs any text as a script: it is refused or ends, once, within
// its bounds. Run with a GOMEMLIMIT when it runs for long: a script may want more
// memory than there is, which only the end of the process answers (AT-89).
func FuzzScript(f *testing.F) {
	f.Add(`return {success: true, message: "x"}`)
	f.Add(`AssistantTool.onCancel = () => "half"; await new Promise(() => setInterval(() => {}, 1))`)
	f.Add(`for (;;) { try { throw 1 } catch { continue } }`)
	f.Add("}) ; AssistantTool.registerExecuteTool(async () => { while (!AssistantTool.isCancelled) {}")
	f.Add(`import x from "./x"`)
	f.Add("`${`${\x00")
	f.Add(`Script.exit(new Proxy({}, {get() { throw Script }}))`)
	f.Fuzz(func(t *testing.T, body string) {
		tool, err := Load(projectDir(t, false, execute(body)))
		if err != nil {
			return
		}
		told := 0
		call, err := tool.Call([]byte(`{"n":1}`), Options{
			Grace: 20 * time.Millisecond, KillAfter: 60 * time.Millisecond, CPU: time.Second,
			Hooks: Hooks{Cancelled: func(string, bool) { told++ }},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeoutCause(context.Background(), 20*time.Millisecond, theStop)
		defer cancel()
		e := call.Run(ctx)
		switch {
		case e.Cancelled && told != 1, !e.Cancelled && told > 1:
			t.Errorf("told %d times: %+v", told, e)
		case !e.Cancelled && len(e.Result.Assistant)+len(e.Result.User) > MaxParts:
			t.Errorf("%d parts", len(e.Result.Assistant)+len(e.Result.User))
		case e.Ending == "":
			t.Errorf("no ending: %+v", e)
		}
	})
}
