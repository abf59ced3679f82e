package script

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAT83_Module is what `import … from "scripting"` finds: the host object, and
// undefined for what nobody knows (AT-83, acceptance 14).
func TestAT83_Module(t *testing.T) {
	tool := projectWith(t, `import { VStack, Text, Path, Script, CancelToken, fetch as get, createContext, nobodyKnowsThis } from "scripting"
import * as all from "scripting"
import host from "scripting"
import { label, Row } from "./parts/row"
const Theme = createContext<any>()
const logs = Path.join(Script.directory, "logs", "../log.txt")
const view = () => <VStack spacing={4}><Row name="a" /><>{label}<Text>b</Text></><Theme.Provider value={1}>c</Theme.Provider></VStack>
AssistantTool.registerExecuteTool<any>(async () => ({success: true, message: [
	logs, typeof CancelToken, get === globalThis.fetch, typeof VStack, typeof nobodyKnowsThis, all.Script === Script, (host as any).Path === Path,
	JSON.stringify(view()), createElement("x", null).type, typeof Fragment].join("\n")}))`, map[string]string{"parts/row.tsx": `import { HStack, Text } from "scripting"
export const label = "in common"
export const Row = ({ name }: { name: string }) => <HStack><Text>{name}</Text></HStack>`})
	want := strings.Join([]string{
		"/scripts/probe/log.txt", "function", "true", "undefined", "undefined", "true", "true",
		`{"props":{"spacing":4},"children":[{"props":{"name":"a"},"children":[]},{"type":{"fragment":true},"props":{},"children":["in common",{"props":{},"children":["b"]}]},{"props":{"value":1},"children":["c"]}]}`,
		"x", "object",
	}, "\n")
	if got := message(t, tool); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestAT83_Globals exports every global of the sheet by the module too.
func TestAT83_Globals(t *testing.T) {
	tool := project(t, false, `import * as module from "scripting"
const names = ["Script", "CancelToken", "console", "setTimeout", "clearTimeout", "setInterval", "clearInterval", "queueMicrotask", "fetch", "Request", "Response",
	"Headers", "FormData", "Blob", "File", "ReadableStream", "AbortController", "AbortSignal", "DOMException", "URL", "URLSearchParams", "TextEncoder", "TextDecoder",
	"Data", "Path", "AssistantTool", "createElement", "Fragment", "Location", "Health", "Photos", "FileManager"]
AssistantTool.registerExecuteTool<any>(async () => ({success: true, message:
	names.filter(n => (module as any)[n] === undefined || (module as any)[n] !== (globalThis as any)[n]).join()}))`)
	if got := message(t, tool); got != "" {
		t.Errorf("not the same as the globals: %s", got)
	}
}

// TestAT82_MissingUse fails only where something missing is used (acceptance 14).
func TestAT82_MissingUse(t *testing.T) {
	for name, test := range map[string]struct{ body, want string }{
		"unknown":    {`const { presentSheet } = require_ as any; presentSheet()`, "Error: "},
		"namespace":  {`await FileManager.readAsString("x")`, "Error: FileManager.readAsString is not available in Belay"},
		"caught":     {`try { await FileManager.exists("x") } catch (e) { return {success: true, message: e.name} }`, "NotAvailableError"},
		"available":  {`return {success: true, message: String(Photos.isAvailable)}`, "false"},
		"from there": {`return {success: true, message: String(Location === (globalThis as any).Location)}`, "true"},
	} {
		tool := project(t, false, `import * as require_ from "scripting"
import { FileManager, Photos, Location } from "scripting"
AssistantTool.registerExecuteTool<any>(async () => {`+test.body+`})`)
		if got := message(t, tool); !strings.HasPrefix(got, test.want) {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

// TestPath is the names of files as texts.
func TestPath(t *testing.T) {
	tool := project(t, false, execute(`return {success: true, message: [
		Path.join("a", "", "b/", "../c"), Path.join("/a", "/b"), Path.join(), Path.normalize("/../a//b/./"), Path.normalize("../../x/.."),
		Path.dirname("/a/b/"), Path.dirname("/a"), Path.dirname("a"), Path.dirname("/"), Path.basename("/a/b.txt/"), Path.basename("b.txt", ".txt"),
		Path.extname("a/b.tar.gz"), Path.extname(".rc") + "-", Path.isAbsolute("/x"), JSON.stringify(Path.parse("/a/b.c"))].join(" ")}`))
	want := `a/c /a/b . /a/b/ ../.. /a / . / b.txt b .gz - true {"root":"/","dir":"/a","base":"b.c","ext":".c","name":"b"}`
	if got := message(t, tool); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// projectWith is a project of several files.
func projectWith(t *testing.T, source string, files map[string]string) *Tool {
	t.Helper()
	dir := projectDir(t, false, source)
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tool, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return tool
}

// message is what a call without parameters says.
func message(t *testing.T, tool *Tool) string {
	t.Helper()
	call, err := tool.Call([]byte(`{}`), Options{})
	if err != nil {
		t.Fatal(err)
	}
	return text(call.Run(t.Context()).Result)
}
