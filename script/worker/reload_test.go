package worker_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay/internal/calm"
	"github.com/belayhq/belay/script"
	"github.com/belayhq/belay/script/worker"
)

// write makes a project, or changes it.
func write(t *testing.T, dir, id, description, body string) {
	t.Helper()
	dir = filepath.Join(dir, id)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		script.ManifestFile:  fmt.Sprintf(`{"id":%q,"displayName":"A tool","description":%q,"parameters":[]}`, id, description),
		"assistant_tool.tsx": "AssistantTool.registerExecuteTool<any>(async () => {\n" + body + "\n})",
	} { // as editors do it: a new file that takes the place of the old one
		if err := os.WriteFile(filepath.Join(dir, "new~"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "new~"), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}

func collection(dir string) *script.Collection {
	return script.OpenCollection(script.CollectionOptions{Dirs: []string{dir}})
}

// TestAT86_ReloadInWorker: a changed tool is called as it is now, the client is told of
// another list, and a call that runs keeps its program.
func TestAT86_ReloadInWorker(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "talk", "Talks.", `
		AssistantTool.report("now")
		while (!globalThis.gone) await new Promise(r => setTimeout(r, 5)).then(() => { if (AssistantTool.isCancelled) globalThis.gone = true })
		return {success: true, message: "old"}`)
	c := open(t, worker.Options{Collection: collection(dir)})
	c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	c.expect(`"id":1`, `"name":"talk"`, `"description":"Talks."`)
	c.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"talk","arguments":{},"_meta":{"progressToken":1,"io.github.belayhq/stop-ack":{"token":"first"}}}}`)
	c.expect(`notifications/progress`, `now`)

	write(t, dir, "talk", "Talks better.", `return {success: true, message: "new"}`)
	c.expect(`notifications/tools/list_changed`) // nobody has asked
	c.send(`{"jsonrpc":"2.0","id":3,"method":"tools/list"}`)
	c.expect(`"id":3`, `Talks better.`)
	c.send(`{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"talk","arguments":{}}}`)
	c.expect(`"id":4`, `"text":"new"`)

	write(t, dir, "more", "Is new.", `return {success: true, message: "more"}`)
	c.expect(`notifications/tools/list_changed`)
	c.send(`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"more","arguments":{}}}`)
	c.expect(`"id":5`, `"text":"more"`)
	if err := os.RemoveAll(filepath.Join(dir, "more")); err != nil {
		t.Fatal(err)
	}
	c.expect(`notifications/tools/list_changed`)
	c.send(`{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"more","arguments":{}}}`)
	c.expect(`"id":6`, `unknown tool`)

	c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)
	c.expect(`notifications/stop-ack`, `"token":"first"`, `"ended":"returned"`) // the old program, to its own end
}

// TestAT86_CalledAtOnce: a call that comes right behind a change meets the new
// program, also in a worker that nobody has asked for the list.
func TestAT86_CalledAtOnce(t *testing.T) {
	dir := t.TempDir()
	c := open(t, worker.Options{Collection: collection(dir)}) // without a single tool
	for i := range 5 {
		write(t, dir, "talk", "Talks.", fmt.Sprintf(`return {success: true, message: "word %d"}`, i))
		c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"talk","arguments":{}}}`, i+1))
		c.expect(fmt.Sprintf(`"id":%d`, i+1), fmt.Sprintf("word %d", i))
	}
}

// TestAT86_Mistake: what cannot be loaded is not listed; what could be before goes on.
func TestAT86_Mistake(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "good", "Is good.", `return {success: true, message: "good"}`)
	write(t, dir, "bad", "Is bad.", `let let = 1`)
	c := open(t, worker.Options{Collection: collection(dir)})
	c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"bad","arguments":{}}}`)
	c.expect(`"id":1`, `unknown tool`)
	c.send(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
	if list := c.expect(`"id":2`, `"good"`); strings.Contains(list, `"bad"`) {
		t.Error(list)
	}
	write(t, dir, "good", "Is good.", `let let = 1`)
	write(t, dir, "bad", "Is good, too.", `return {success: true, message: "mended"}`)
	c.expect(`notifications/tools/list_changed`)
	c.send(`{"jsonrpc":"2.0","id":3,"method":"tools/list"}`)
	c.expect(`"id":3`, `"good"`, `"Is good, too."`)
	c.send(`{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"good","arguments":{}}}`)
	c.expect(`"id":4`, `"text":"good"`)
	c.send(`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"bad","arguments":{}}}`)
	c.expect(`"id":5`, `"text":"mended"`)
}

// TestAT86_SameList: a program that changes and its manifest that does not is no news
// for the client.
func TestAT86_SameList(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "talk", "Talks.", `return {success: true, message: "one"}`)
	c := open(t, worker.Options{Collection: collection(dir)})
	c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	c.expect(`"id":1`)
	write(t, dir, "talk", "Talks.", `return {success: true, message: "two"}`)
	c.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"talk","arguments":{}}}`)
	c.expect(`"id":2`, `"text":"two"`)
	write(t, dir, "tell", "Tells.", `return {success: true, message: "three"}`)
	if first := c.expect(`"method"`); !strings.Contains(first, "list_changed") {
		t.Error(first)
	}
	c.send(`{"jsonrpc":"2.0","id":3,"method":"tools/list"}`)
	c.expect(`"id":3`, `"tell"`)
}

// TestAT86_LoopHoldsUpNobody: a project whose top level never ends delays neither the
// calls of another nor the list for long; it leaves the list when it is refused.
func TestAT86_LoopHoldsUpNobody(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "good", "Is good.", `return {success: true, message: "good"}`)
	write(t, dir, "bad", "Is bad.", `return {success: true, message: "never"}`)
	loop := []byte("while (true) {}\nAssistantTool.registerExecuteTool(async () => ({success: true, message: ''}))")
	if err := os.WriteFile(filepath.Join(dir, "bad", "assistant_tool.tsx"), loop, 0o600); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Hour) // what was written just now is read twice
	for _, name := range []string{"assistant_tool.tsx", script.ManifestFile} {
		if err := os.Chtimes(filepath.Join(dir, "bad", name), old, old); err != nil {
			t.Fatal(err)
		}
	}
	c := open(t, worker.Options{Collection: collection(dir)})
	watch := calm.Start(t)
	began := time.Now()
	c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"good","arguments":{}}}`)
	c.expect(`"id":1`, `"text":"good"`)
	c.send(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
	c.expect(`"id":2`, `"good"`)
	watch.Within(t, time.Since(began), script.TopLevelLimit, "a call and a list beside a loop")
	for id := 3; ; id++ { // until it is refused
		c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/list"}`, id))
		if list := c.expect(fmt.Sprintf(`"id":%d,`, id), `"good"`); !strings.Contains(list, `"bad"`) {
			return
		}
	}
}
