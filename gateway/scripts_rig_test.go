package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/belayhq/belay/internal/faketool"
	"github.com/belayhq/belay/internal/memcap"
	"github.com/belayhq/belay/script"
	serving "github.com/belayhq/belay/script/worker"
)

const scriptMarker = "gateway-test-scripts"

// scriptWorker makes the test binary a worker of scripts, as the command of Belay
// does: witness, grace, memory in MiB, and the projects. What a script writes to its
// console, "key event", becomes a line of the witness: its own evidence, which needs
// no loop of events.
func scriptWorker(args []string) {
	witness, err := os.OpenFile(args[0], os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		os.Exit(1)
	}
	log := console{witness}
	log.write("server start")
	grace, _ := time.ParseDuration(args[1])
	if mib, _ := strconv.ParseInt(args[2], 10, 64); mib > 0 {
		memcap.Cap(mib<<20, nil)
	}
	o := serving.Options{Grace: grace, KillAfter: grace + time.Minute, Log: slog.New(log)}
	for _, dir := range args[3:] {
		tool, err := script.Load(dir)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		o.Tools = append(o.Tools, tool)
	}
	w := serving.New(o)
	term := make(chan os.Signal, 4)
	signal.Notify(term, syscall.SIGTERM)
	go func() {
		for range term {
			log.write("server sigterm")
			w.Interrupt()
		}
	}()
	_ = w.Serve(context.Background(), os.Stdin, os.Stdout)
	log.write("server end")
	os.Exit(0)
}

// console writes each message as an event of the witness.
type console struct{ to *os.File }

func (c console) write(event string) {
	_, _ = fmt.Fprintf(c.to, "%d %d %s\n", time.Now().UnixNano(), os.Getpid(), strings.ReplaceAll(event, "\n", " "))
}

func (c console) Enabled(context.Context, slog.Level) bool { return true }
func (c console) WithAttrs([]slog.Attr) slog.Handler       { return c }
func (c console) WithGroup(string) slog.Handler            { return c }

func (c console) Handle(_ context.Context, r slog.Record) error {
	c.write(r.Message)
	return nil
}

// scripts are the projects of these tests, by their ids. Each takes a key, under
// which it writes its evidence.
var scripts = map[string]string{
	"quick": `return {success: true, message: "quick " + p.key}`,

	"pid": `console.log(p.key + " here"); return {success: true, message: "done"}`,

	// Works in steps, awaiting, and hands back what it has.
	"steps": `let n = 0
		AssistantTool.onCancel = () => "steps so far: " + (n > 0)
		while (!AssistantTool.isCancelled) {
			console.log(p.key + " tick " + ++n)
			await new Promise(r => setTimeout(r, 5))
		}`,

	// Never listens, never yields, catches what can be caught.
	"busy": `AssistantTool.onCancel = () => "what the loop had"
		for (let n = 0; ; ) {
			try { for (;;) { if (++n % 50000 == 0) console.log(p.key + " tick " + n) } } catch (e) {} finally { n++ }
		}`,

	// A builtin between two instructions: no interrupt reaches it.
	"regex": `AssistantTool.onCancel = () => "never"
		console.log(p.key + " tick 1");
		/^(?=(a+)+$)(a+)+$/.test("a".repeat(60) + "b")
		console.log(p.key + " through")`,

	// Ends when it is told to, by its own time.
	"calm": `for (let n = 0; n < p.n; n++) {
			console.log(p.key + " tick " + n)
			await new Promise(r => setTimeout(r, 10))
		}
		console.log(p.key + " done")
		return {success: true, message: "calm to the end"}`,

	"hoard": `console.log(p.key + " tick 0")
		const all: any[] = []
		for (let n = 0; ; n++) all.push(new Array(100000).fill(n))`,

	"giant": `console.log(p.key + " tick 0")
		const s = "x".repeat(1 << 29)
		return {success: true, message: "" + (s + s).length}`,

	// Much memory, which is given back.
	"fat": `const all: any[] = []
		for (let n = 0; n < 60; n++) all.push(new Array(100000).fill(n))
		console.log(p.key + " tick " + all.length)
		return {success: true, message: "fat"}`,
}

// project writes one of scripts as a project and returns its folder.
func project(t *testing.T, under, id string) string {
	t.Helper()
	body, ok := scripts[id]
	if !ok {
		t.Fatalf("there is no script %q", id)
	}
	dir := filepath.Join(under, id)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		script.ManifestFile: fmt.Sprintf(`{"id":%q,"displayName":"A tool","description":"Does it.","parameters":[
			{"name":"key","type":"string","required":true},{"name":"n","type":"integer"}]}`, id),
		"assistant_tool.ts": "AssistantTool.registerExecuteTool<any>(async (p: any) => {\n" + body + "\n})",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// scriptRig is a rig in front of workers of Belay's own kind, with some of scripts
// and the settings that scripts have.
func scriptRig(t *testing.T, memory int, change func(*Config), ids ...string) *rig {
	t.Helper()
	r := closedRig(t, memory, change, ids...)
	if _, err := r.Initialize("2025-06-18"); err != nil {
		t.Fatalf("initialize: %v\n%s", err, r.logs)
	}
	return r
}

// closedRig is scriptRig without the handshake.
func closedRig(t *testing.T, memory int, change func(*Config), ids ...string) *rig {
	t.Helper()
	under := t.TempDir()
	witness := filepath.Join(under, "w")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var dirs []string
	for _, id := range ids {
		dirs = append(dirs, project(t, under, id))
	}
	ladder := shortLadder
	ladder.ConfirmAfter = time.Minute // on a machine that others use, too
	cfg := Config{Policy: Policy{Ladder: ladder}}
	if change != nil {
		change(&cfg)
	}
	argv := append([]string{self, scriptMarker, witness, cfg.Ladder.WithDefaults().Grace.String(), strconv.Itoa(memory)}, dirs...)
	return rawRig(t, argv, witness, func(c *Config) {
		c.Name, c.Isolation, c.RestartSafe, c.Ladder = "scripts", IsolationCall, true, ladder
		c.Epitaph = func(d Death) string {
			if d.OutOfMemory || memcap.Died(d.Exit.Code, d.Stderr) {
				return "Error: the tool ran out of memory."
			}
			return ""
		}
		c.Stderr = devNull(t)
		if change != nil {
			change(c)
		}
	})
}

func key(k string) string { return fmt.Sprintf(`{"key":%q}`, k) }

// spares waits until so many workers are idle and none is coming.
func (r *rig) spares(want int) {
	r.t.Helper()
	r.until(fmt.Sprintf("%d spares", want), 30*time.Second, func() bool {
		r.s.mu.Lock()
		defer r.s.mu.Unlock()
		return len(r.s.idle) == want && r.s.coming == 0
	})
}

// live are the workers' processes that are alive, the primary one included.
func (r *rig) live() (n int) {
	for _, pid := range r.w.Pids("server") {
		if faketool.Alive(pid) {
			n++
		}
	}
	return n
}
