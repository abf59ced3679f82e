package script

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// desktop is a folder for an editor.
func desktop(t *testing.T, write bool, files map[string]string) (*Editor, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "notes")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	e, err := OpenEditor(dir, write)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e, dir
}

// editorTool is a project for the editor only.
func editorTool(t *testing.T, approval bool, source string) *Tool {
	t.Helper()
	dir := projectDir(t, approval, source)
	manifest := filepath.Join(dir, ManifestFile)
	text, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	text = []byte(strings.Replace(string(text), "{", `{"scriptEditorOnly":true,`, 1))
	if err := os.WriteFile(manifest, text, 0o600); err != nil {
		t.Fatal(err)
	}
	tool, err := LoadFor(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	return tool
}

// edited runs a body that has an editor and returns the text it came to, and the log.
func edited(t *testing.T, e *Editor, body string) (got, logs string) {
	t.Helper()
	tool := editorTool(t, false, "AssistantTool.registerExecuteTool<any>(async (params: any, editor: any) => {\nconst show = async () => {"+
		body+"}\nreturn {success: true, message: String(await show())}\n})")
	w := &watch{}
	call, err := tool.Call([]byte(`{}`), Options{Editor: e, Hooks: w.hooks()})
	if err != nil {
		t.Fatal(err)
	}
	ended := call.Run(context.Background())
	logs, _ = w.said()
	return text(ended.Result), logs
}

func fileText(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestAT44_EditorOnly loads such tools only where there is an editor, and gives no
// other tool one.
func TestAT44_EditorOnly(t *testing.T) {
	e, _ := desktop(t, true, nil)
	const source = `AssistantTool.registerExecuteTool<any>(async (...args: any[]) => ({success: true, message: String(args.length)}))`
	tool := editorTool(t, false, source)
	if _, err := Load(tool.Dir); !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "editor_root") {
		t.Errorf("loaded without an editor: %v", err)
	}
	for name, test := range map[string]struct {
		tool   *Tool
		editor *Editor
		want   string
	}{
		"editor only":            {tool, e, "2"},
		"editor only, none here": {tool, nil, "1"},
		"another tool":           {project(t, false, source), e, "1"},
	} {
		call, err := test.tool.Call([]byte(`{}`), Options{Editor: test.editor})
		if err != nil {
			t.Fatal(err)
		}
		if ended := call.Run(context.Background()); text(ended.Result) != test.want {
			t.Errorf("%s: %s arguments, want %s", name, text(ended.Result), test.want)
		}
	}
}

// TestAT81_Provider is every member of the provider on a folder that may be written.
func TestAT81_Provider(t *testing.T) {
	files := map[string]string{
		"a.ts": "one\ntwo\nthree\n", "docs/b.md": "# B\n", "docs/deep/c.txt": "c", "bad.tsx": "const ä = <b/>\nconst ö = ;\n",
		"node_modules/x/i.js": "x", ".git/config": "[core]", "image.bin": "\x00\xff", "data.json": "{\"a\":}",
	}
	for name, test := range map[string]struct{ body, want, file, content string }{
		"name":      {`return editor.scriptName`, "notes", "", ""},
		"keys":      {`return Object.keys(editor).join() + Object.isFrozen(editor)`, "scriptName,canWrite,exists,getAllFolders,getAllFiles,getFileContent,updateFileContent,writeToFile,insertContent,replaceInFile,openDiffEditor,getLintErrorstrue", "", ""},
		"exists":    {`return ["a.ts", "./docs", "docs/../a.ts", "nope", "../notes/a.ts", "/etc", ".git/config", ".GIT", "", "docs\\b.md"].map(p => editor.exists(p)).join()`, "true,true,true,false,false,false,false,false,false,false", "", ""},
		"folders":   {`return editor.getAllFolders().join()`, "docs,docs/deep", "", ""},
		"files":     {`return editor.getAllFiles().join()`, "a.ts,bad.tsx,data.json,docs/b.md,docs/deep/c.txt,image.bin", "", ""},
		"read":      {`return (await editor.getFileContent("docs/b.md")) + (await editor.getFileContent("none")) + (await editor.getFileContent("image.bin")) + (await editor.getFileContent("docs")) + (await editor.getFileContent(".git/config")) + (await editor.getFileContent("node_modules/x/i.js"))`, "# B\nnullnullnullnullx", "", ""},
		"update":    {`return [await editor.updateFileContent("a.ts", "new"), await editor.updateFileContent("none", "new"), editor.exists("none")].join()`, "true,false,false", "a.ts", "new"},
		"write":     {`return [await editor.writeToFile("x/y/z.txt", "Z"), await editor.writeToFile("a.ts", "A")].join() + editor.getAllFiles().join()`, "true,truea.ts,bad.tsx,data.json,docs/b.md,docs/deep/c.txt,image.bin,x/y/z.txt", "x/y/z.txt", "Z"},
		"insert":    {`return await editor.insertContent("a.ts", [{startLine: 1, content: "zero"}, {startLine: 3, content: "2.5\n"}, {startLine: 4, content: "four"}])`, "true", "a.ts", "zero\none\ntwo\n2.5\nthree\nfour\n"},
		"lines":     {`return await editor.replaceInFile("a.ts", [{startLine: 2, content: "TWO\nTHREE"}])`, "true", "a.ts", "one\nTWO\nTHREE\n"},
		"blocks":    {`return await editor.replaceInFile("a.ts", [{existingBlock: "two\nthree", newBlock: "2"}, {existingBlock: "one", newBlock: "1", contextAfter: "2"}])`, "true", "a.ts", "1\n2\n"},
		"no block":  {`return await editor.replaceInFile("a.ts", [{existingBlock: "one", newBlock: "1"}, {existingBlock: "nine", newBlock: "9"}])`, "false", "a.ts", "one\ntwo\nthree\n"},
		"too far":   {`return await editor.insertContent("a.ts", [{startLine: 9, content: "x"}])`, "false", "a.ts", "one\ntwo\nthree\n"},
		"in order":  {`editor.writeToFile("a.ts", "1"); editor.writeToFile("a.ts", "2"); return await editor.getFileContent("a.ts")`, "2", "a.ts", "2"},
		"unawaited": {`editor.writeToFile("a.ts", "late"); return "at once"`, "at once", "a.ts", "late"},
		"lint":      {`const e = editor.getLintErrors(); return Object.keys(e).join() + " " + e["bad.tsx"][0].line + ":" + e["bad.tsx"][0].column + " " + e["data.json"][0].from + "-" + e["data.json"][0].to`, "bad.tsx,data.json 2:10 5-6", "", ""},
		"out":       {`try { await editor.getFileContent("../x") } catch (e) { return e.name + ": " + e.message }`, `Error: "../x": ` + errEditorPath.Error(), "", ""},
		"out write": {`try { await editor.writeToFile("/tmp/x", "") } catch (e) { return e.message }`, `"/tmp/x": ` + errEditorPath.Error(), "", ""},
		"hook":      {`try { await editor.writeToFile("docs/../.git/hooks/pre-commit", "rm") } catch (e) { return e.message }`, `.git/hooks/pre-commit: ` + errEditorKind.Error(), "", ""},
		"folder":    {`try { await editor.writeToFile("docs", "x") } catch (e) { return e.message }`, `docs: ` + errEditorKind.Error(), "", ""},
		"type":      {`try { await editor.writeToFile("a.ts", 7) } catch (e) { return e.name + ": " + e.message }`, "TypeError: the content must be a string", "", ""},
		"type path": {`try { editor.exists(7) } catch (e) { return e.name }`, "TypeError", "", ""},
		"forms":     {`try { await editor.replaceInFile("a.ts", [{startLine: 1, content: "x"}, {existingBlock: "a", newBlock: "b"}]) } catch (e) { return e.message }`, "operation 2: each is {startLine, content}, or each is {existingBlock, newBlock}", "", ""},
		"no array":  {`try { await editor.insertContent("a.ts", {startLine: 1}) } catch (e) { return e.message }`, "operations are an array of {startLine, content} or of {existingBlock, newBlock}", "", ""},
		"large":     {`try { await editor.writeToFile("a.ts", "x".repeat(5 << 20)) } catch (e) { return e.message }`, "a.ts: " + errEditorLarge.Error(), "a.ts", "one\ntwo\nthree\n"},
		"no object": {`return [editor.constructor, Object.getPrototypeOf(editor), typeof editor.name].join()`, ",,undefined", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, dir := desktop(t, true, files)
			got, logs := edited(t, e, test.body)
			if got != test.want {
				t.Errorf("got %q, want %q (log %q)", got, test.want, logs)
			}
			if test.file != "" && fileText(t, filepath.Join(dir, test.file)) != test.content {
				t.Errorf("%s is %q, want %q", test.file, fileText(t, filepath.Join(dir, test.file)), test.content)
			}
			left, err := filepath.Glob(filepath.Join(dir, temporary+"*"))
			if err != nil || len(left) > 0 {
				t.Errorf("left over: %q, %v", left, err)
			}
		})
	}
}

// TestAT81_ReadOnly refuses every way to write without the grant, aloud, and the
// folder is as it was.
func TestAT81_ReadOnly(t *testing.T) {
	e, dir := desktop(t, false, map[string]string{"a.ts": "one\n"})
	got, _ := edited(t, e, `const said = []
		for (const f of [() => editor.writeToFile("b", "x"), () => editor.updateFileContent("a.ts", "x"), () => editor.insertContent("a.ts", [{startLine: 1, content: "x"}]),
			() => editor.replaceInFile("a.ts", [{startLine: 1, content: "x"}])]) try { await f(); said.push("done") } catch (e) { said.push(e.message) }
		return said.join("|") + (await editor.getFileContent("a.ts")) + editor.getAllFiles().join() + editor.canWrite`)
	if want := strings.Repeat(errEditorRead.Error()+"|", 3) + errEditorRead.Error() + "one\na.tsfalse"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("the folder has %v, %v", entries, err)
	}
}

// TestAT81_Links follows no link out of the folder, and writes through none.
func TestAT81_Links(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Log("links need a privilege here; os.Root is tested by its own authors")
		return
	}
	e, dir := desktop(t, true, map[string]string{"in/a.ts": "inside"})
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("outside"), 0o600); err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{"out": secret, "up": filepath.Dir(secret), "near": "in/a.ts", "far": "../" + filepath.Base(filepath.Dir(secret)), "dir": "in"} {
		if err := os.Symlink(to, filepath.Join(dir, from)); err != nil {
			t.Fatal(err)
		}
	}
	got, _ := edited(t, e, `const said = []
		for (const p of ["out", "up/secret", "near", "far/secret", "dir/a.ts"]) said.push(await editor.getFileContent(p).catch(() => "refused"))
		for (const p of ["out", "up/secret", "near", "far/new", "dir/b.ts"]) said.push(await editor.writeToFile(p, "changed").catch(() => "refused"))
		return said.join() + " " + editor.getAllFiles().join() + " " + editor.getAllFolders().join()`)
	if want := ",,inside,,inside,refused,refused,refused,refused,true in/a.ts,in/b.ts,near in"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if fileText(t, secret) != "outside" || fileText(t, filepath.Join(dir, "in/a.ts")) != "inside" {
		t.Error("something was written through a link")
	}
}

// TestAT81_Whole keeps a file's mode and its other name: it is replaced, not written
// over.
func TestAT81_Whole(t *testing.T) {
	e, dir := desktop(t, true, map[string]string{"run.js": "old"})
	name, other := filepath.Join(dir, "run.js"), filepath.Join(dir, "other.js")
	if err := os.Chmod(name, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(name, other); err != nil {
		t.Fatal(err)
	}
	if got, _ := edited(t, e, `return editor.updateFileContent("run.js", "new")`); got != "true" {
		t.Fatalf("got %q", got)
	}
	info, err := os.Stat(name)
	if err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o755 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if fileText(t, name) != "new" || fileText(t, other) != "old" {
		t.Errorf("the file is %q, its other name %q", fileText(t, name), fileText(t, other))
	}
}

// TestAT81_Killed kills a process while it writes: the file is one of its whole texts,
// and what it left beside it is not seen by scripts.
func TestAT81_Killed(t *testing.T) {
	if dir := os.Getenv("BELAY_TEST_EDITOR"); dir != "" {
		writeForEver(dir)
	}
	e, dir := desktop(t, true, map[string]string{"big": ""})
	most := 0
	for round := range 8 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestAT81_Killed$")
		cmd.Env = append(os.Environ(), "BELAY_TEST_EDITOR="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			t.Fatalf("the writer said %q: %v", line, err)
		}
		time.Sleep(time.Duration(round) * 3 * time.Millisecond) // it writes all the time: any moment is in the middle of something
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		text, err := e.read("big")
		if err != nil || len(text) != 1<<20 || strings.Count(text, text[:1]) != len(text) {
			t.Errorf("round %d: %d bytes, %v", round, len(text), err)
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, len(entries)-1)
	}
	if names, err := e.list(false, func() error { return nil }); err != nil || len(names) != 1 {
		t.Errorf("scripts see %q, %v", names, err)
	}
	if most == 0 {
		t.Log("no writer was killed in the middle of a file")
	}
	old := time.Now().Add(-2 * leftAfter)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range entries {
		if err := os.Chtimes(filepath.Join(dir, d.Name()), old, old); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, temporary+"young"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := e.put("big", "whole", false); err != nil {
		t.Fatal(err)
	}
	if entries, err = os.ReadDir(dir); err != nil || len(entries) != 2 { // the file, and the young piece
		t.Errorf("the folder has %v, %v", entries, err)
	}
}

// TestAT81_Together loses no edit of two workers that edit one file: each has an
// Editor of its own, as two processes have.
func TestAT81_Together(t *testing.T) {
	one, dir := desktop(t, true, map[string]string{"log": ""})
	two, err := OpenEditor(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = two.Close() }()
	var all sync.WaitGroup
	var done atomic.Int64
	for i, e := range []*Editor{one, one, two, two} {
		all.Go(func() {
			for n := range 25 {
				err := e.edit("log", func(old string) (string, error) {
					return insertLines(old, []edit{{StartLine: new(1), Content: new(fmt.Sprint(i, n))}})
				})
				switch {
				case err == nil:
					done.Add(1)
				case !errors.Is(err, errEditorMoved):
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	lines := int64(strings.Count(fileText(t, filepath.Join(dir, "log")), "\n"))
	if done.Load() != 100 || lines != 100 && runtime.GOOS != "windows" { // where there is no lock, only a last look
		t.Errorf("%d lines after %d edits", lines, done.Load())
	}
}

// writeForEver replaces a file again and again, each time as a whole.
func writeForEver(dir string) {
	texts := []string{strings.Repeat("a", 1<<20), strings.Repeat("b", 1<<20)}
	e, err := OpenEditor(dir, true)
	for i := 0; err == nil; i++ {
		text := texts[i%2]
		err = e.put("big", text, false)
		if i == 0 {
			fmt.Println("begun")
		}
	}
	fmt.Println(err)
	os.Exit(1)
}

// TestAT81_Diff is a report, in the approval phase too, and changes nothing.
func TestAT81_Diff(t *testing.T) {
	e, dir := desktop(t, true, map[string]string{"a.ts": "one\ntwo\n"})
	w := &watch{}
	tool := editorTool(t, true, `
		AssistantTool.registerApprovalRequest<any>(async (p: any, editor: any) => ({message: "Sure?", primaryButtonLabel: "Yes",
			previewButton: {label: "Show", action: () => editor.openDiffEditor("a.ts", "one\n2\n")}}))
		AssistantTool.registerExecuteToolWithApproval<any>(async (p: any, u: any, editor: any) => {
			editor.openDiffEditor("a.ts", "one\ntwo\n"); editor.openDiffEditor("new", "x\n"); await editor.getFileContent("a.ts")
			return {success: true, message: String(u.primaryConfirmed)} })`)
	hooks := w.hooks()
	hooks.Ask = func(ctx context.Context, d Dialog) (Answer, error) {
		if shown := d.OnPreview(ctx); !strings.Contains(shown, "-two") {
			t.Errorf("the preview shows %q", shown)
		}
		return Primary, nil
	}
	call, err := tool.Call([]byte(`{}`), Options{Editor: e, Hooks: hooks})
	if err != nil {
		t.Fatal(err)
	}
	ended := call.Run(context.Background())
	want := []string{
		"diff:a.ts=diff a.ts a.ts\n--- a.ts\n+++ a.ts\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n",
		"diff:a.ts=a.ts: no changes",
		"diff:new=diff new new\n--- new\n+++ new\n@@ -0,0 +1,1 @@\n+x\n",
	}
	if text(ended.Result) != "true" || cmp.Diff(want, w.reports) != "" {
		t.Errorf("ended %+v\n%s", ended, cmp.Diff(want, w.reports))
	}
	if fileText(t, filepath.Join(dir, "a.ts")) != "one\ntwo\n" {
		t.Error("the file was changed")
	}
}

// TestAT58_NoWriteUnapproved writes neither for the approval request nor for its
// preview, nor when nobody agreed (AT-62).
func TestAT58_NoWriteUnapproved(t *testing.T) {
	for name, test := range map[string]struct {
		answer Answer
		want   string
	}{
		"primary":   {Primary, "asked: " + errDeskAsking.Error() + " run: true"},
		"secondary": {Secondary, "asked: " + errDeskAsking.Error() + " run: " + errDeskDeclined.Error()},
		"dismissed": {Dismissed, "asked: " + errDeskAsking.Error() + " run: " + errDeskDeclined.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, dir := desktop(t, true, map[string]string{"a": "old"})
			tool := editorTool(t, true, `let asked = ""
				const write = (editor: any, p: string) => editor.writeToFile(p, "new").catch((e: Error) => e.message)
				AssistantTool.registerApprovalRequest<any>(async (p: any, editor: any) => { asked = await write(editor, "b"); return {message: "Sure?", primaryButtonLabel: "Yes", secondaryButtonLabel: "No"} })
				AssistantTool.registerExecuteToolWithApproval<any>(async (p: any, u: any, editor: any) => ({success: true, message: "asked: " + asked + " run: " + await write(editor, "a")}))`)
			call, err := tool.Call([]byte(`{}`), Options{Editor: e, Hooks: Hooks{Ask: func(context.Context, Dialog) (Answer, error) { return test.answer, nil }}})
			if err != nil {
				t.Fatal(err)
			}
			if ended := call.Run(context.Background()); text(ended.Result) != test.want {
				t.Errorf("got %q, want %q", text(ended.Result), test.want)
			}
			if _, err := os.Stat(filepath.Join(dir, "b")); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the approval request wrote: %v", err)
			}
			if got := fileText(t, filepath.Join(dir, "a")); (got == "new") != (test.answer == Primary) {
				t.Errorf("the file is %q", got)
			}
		})
	}
}

// TestAT33_NoWriteAfterGrace writes nothing more once the grace after a Stop is over,
// and nothing in onCancel (AT-22). The folder is the witness.
func TestAT33_NoWriteAfterGrace(t *testing.T) {
	e, dir := desktop(t, true, nil)
	tool := editorTool(t, false, `AssistantTool.registerExecuteTool<any>(async (p: any, editor: any) => {
		AssistantTool.onCancel = () => { editor.writeToFile("cancel", "x").catch((e: Error) => console.log("onCancel: " + e.message)); return "partial" }
		await editor.writeToFile("begun", "x")
		AssistantTool.report("now")
		for (let i = 0; ; i++) try { await editor.writeToFile("f" + i % 10, String(i)) } catch (e) { console.log(e.name + ": " + e.message); break }
	})`)
	ended, w := stopAt(t, tool, Options{Editor: e, Grace: 100 * time.Millisecond, KillAfter: 30 * time.Second}, nil)
	logs, messages := w.said()
	if !ended.Cancelled || messages != "true partial" || ended.Ending != Returned {
		t.Errorf("ended %+v with %q", ended, messages)
	}
	if want := "info: onCancel: " + errDeskCancel.Error() + "\ninfo: AbortError: " + errDeskStopped.Error(); logs != want {
		t.Errorf("log %q, want %q", logs, want)
	}
	if _, err := os.Stat(filepath.Join(dir, "cancel")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("onCancel wrote a file")
	}
	if fileText(t, filepath.Join(dir, "begun")) != "x" {
		t.Error("the file of before the Stop is gone")
	}
}

// TestAT15_ScanYields lets onCancel have its turn in a script that waits for nothing
// but the editor (AT-15): what it waits for is not the same job.
func TestAT15_ScanYields(t *testing.T) {
	files := map[string]string{}
	for i := range 50 {
		files[fmt.Sprintf("d/f%02d.txt", i)] = strings.Repeat("text\n", 100)
	}
	e, _ := desktop(t, false, files)
	tool := editorTool(t, false, `AssistantTool.registerExecuteTool<any>(async (p: any, editor: any) => {
		let read = 0
		AssistantTool.onCancel = () => "read some: " + (read > 0)
		for (;;) for (const f of editor.getAllFiles()) {
			if (AssistantTool.onCancel === null) return
			await editor.getFileContent(f)
			if (++read === 60) AssistantTool.report("now")
		}
	})`)
	ended, w := stopAt(t, tool, Options{Editor: e, Grace: time.Minute, KillAfter: time.Minute}, nil)
	if _, messages := w.said(); messages != "true read some: true" || ended.Ending != Returned {
		t.Errorf("ended %+v with %q", ended, messages)
	}
}

// TestAT81_Bounds refuses what is too much, and ends a long list with the Stop.
func TestAT81_Bounds(t *testing.T) {
	e, dir := desktop(t, true, nil)
	for i := range 30 {
		sub := filepath.Join(dir, fmt.Sprint(i))
		if err := os.Mkdir(sub, 0o755); err != nil {
			t.Fatal(err)
		}
		for j := range 10 {
			if err := os.WriteFile(filepath.Join(sub, fmt.Sprint(j)), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	late := errors.New("too late")
	if _, err := e.list(false, func() error { return late }); !errors.Is(err, late) {
		t.Errorf("listed: %v", err)
	}
	got, _ := edited(t, e, `const big = "x".repeat(4 << 20); let n = 0
		try { for (;; n++) await editor.writeToFile("big", big) } catch (e) { return n + " " + e.message }`)
	if want := "16 " + errDeskWritten.Error(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	deep := strings.Repeat("a/", 40) + "b"
	if got, _ := edited(t, e, `try { await editor.writeToFile("`+deep+`", "") } catch (e) { return e.name }`); got != "Error" {
		t.Errorf("a deep path: %q", got)
	}
}

// TestEdits are the edits by lines and by blocks, where they are not simple (AT-81).
func TestEdits(t *testing.T) {
	for name, test := range map[string]struct{ op, text, edits, want string }{
		"insert empty file":   {"insert", "", `[{"startLine":1,"content":"a"}]`, "a\n"},
		"insert no end":       {"insert", "a", `[{"startLine":2,"content":"b"}]`, "a\nb\n"},
		"insert same line":    {"insert", "a\n", `[{"startLine":1,"content":"1"},{"startLine":1,"content":"2"}]`, "1\n2\na\n"},
		"insert crlf":         {"insert", "a\r\nb\r\n", `[{"startLine":2,"content":"x\ny"}]`, "a\r\nx\r\ny\r\nb\r\n"},
		"insert line 0":       {"insert", "a\n", `[{"startLine":0,"content":"x"}]`, "! line 0"},
		"lines last":          {"replace", "a\nb", `[{"startLine":2,"content":"x\ny\nz"}]`, "a\nx\ny\nz"},
		"lines any order":     {"replace", "1\n2\n3\n4\n", `[{"startLine":4,"content":"d"},{"startLine":1,"content":"a\nb\n"}]`, "a\nb\n3\nd\n"},
		"lines meet":          {"replace", "1\n2\n3\n", `[{"startLine":1,"content":"a\nb"},{"startLine":2,"content":"x"}]`, "! two operations replace line 2"},
		"lines delete":        {"replace", "1\n2\n3\n", `[{"startLine":2,"content":""}]`, "1\n3\n"},
		"lines too far":       {"replace", "1\n", `[{"startLine":2,"content":"x"}]`, "! it has 1 lines"},
		"block crlf":          {"replace", "a\r\nb\r\n", `[{"existingBlock":"a\nb","newBlock":"x\ny\nz"}]`, "x\r\ny\r\nz\r\n"},
		"block mixed ends":    {"replace", "a\r\nb\n", `[{"existingBlock":"b","newBlock":"c"}]`, "a\r\nc\n"},
		"block twice":         {"replace", "x\ny\nx\n", `[{"existingBlock":"x","newBlock":"z"}]`, "! 2 times"},
		"block before":        {"replace", "x\ny\nx\n", `[{"existingBlock":"x","newBlock":"z","contextBefore":"y"}]`, "x\ny\nz\n"},
		"block after":         {"replace", "x\ny\nx\n", `[{"existingBlock":"x","newBlock":"z","contextAfter":"y\n"}]`, "z\ny\nx\n"},
		"block wrong context": {"replace", "x\ny\n", `[{"existingBlock":"x","newBlock":"z","contextBefore":"y"}]`, "! does not have"},
		"block hint":          {"replace", "x\n\n\nx\n\n", `[{"existingBlock":"x","newBlock":"z","startLineHint":5}]`, "x\n\n\nz\n\n"},
		"block tie":           {"replace", "x\n\nx\n", `[{"existingBlock":"x","newBlock":"z","startLineHint":2}]`, "! equally near"},
		"block empty":         {"replace", "x\n", `[{"existingBlock":"","newBlock":"z"}]`, "! is empty"},
		"block often":         {"replace", strings.Repeat("x", 20_000), `[{"existingBlock":"x","newBlock":"z"}]`, "! more than 10000 times"},
		"block in turn":       {"replace", "a", `[{"existingBlock":"a","newBlock":"b"},{"existingBlock":"b","newBlock":"c"}]`, "c"},
		"block and insert":    {"insert", "a", `[{"existingBlock":"a","newBlock":"b"}]`, "! insertContent takes"},
		"none":                {"replace", "a", `[]`, "! there are no operations"},
		"line is no number":   {"replace", "a", `[{"startLine":"1","content":""}]`, "! operations are an array"},
		"many":                {"replace", "a", "[" + strings.Repeat(`{"startLine":1,"content":""},`, 1000) + `{"startLine":1,"content":""}]`, "! at most 1000"},
		"half":                {"replace", "a", `[{"startLine":1}]`, "! operation 1"},
		"null":                {"replace", "a", `null`, "! operations are an array"},
	} {
		change, err := changeOf(test.op, test.edits)
		got := ""
		if err == nil {
			got, err = change(test.text)
		}
		want, fails := strings.CutPrefix(test.want, "! ")
		if fails && (err == nil || !strings.Contains(err.Error(), want)) || !fails && (err != nil || got != want) {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, test.want)
		}
	}
}

func FuzzEdits(f *testing.F) {
	f.Add("a\r\nb\r\n", `[{"startLine":2,"content":"x"}]`, true)
	f.Add("x\ny\nx", `[{"existingBlock":"x","newBlock":"z","contextBefore":"y","startLineHint":3}]`, false)
	f.Fuzz(func(t *testing.T, text, edits string, insert bool) {
		op := map[bool]string{true: "insert", false: "replace"}[insert]
		change, err := changeOf(op, edits)
		if err != nil {
			return
		}
		if got, err := change(text); err != nil && got != "" {
			t.Errorf("made %q with error %v", got, err)
		}
	})
}

func FuzzEditorPath(f *testing.F) {
	for _, s := range []string{"a/b", "../x", "/etc", "a/../../b", ".git/x", "./.GIT", "a\x00b", ".g\u200cit/x", "c:x", "NUL"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		clean, seen, err := pathIn(name)
		if err != nil {
			return
		}
		if !filepath.IsLocal(filepath.FromSlash(clean)) || !fs.ValidPath(clean) || strings.Contains(clean, "..") && strings.HasPrefix(clean, "../") {
			t.Errorf("%q leads to %q", name, clean)
		}
		if seen && strings.Contains("/"+strings.ToLower(clean)+"/", "/.git/") {
			t.Errorf("%q is seen as %q", name, clean)
		}
	})
}
