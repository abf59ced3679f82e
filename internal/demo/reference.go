package demo

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/belayhq/belay/internal/faketool"
)

// reference is the official reference server, pinned as in interop.
const reference = "@modelcontextprotocol/server-everything@2026.8.31"

// referenceCommand starts the reference server from npm's cache or an
// installation: --offline fetches nothing.
func referenceCommand() []string {
	if path, err := exec.LookPath("mcp-server-everything"); err == nil {
		return []string{path, "stdio"}
	}
	return []string{"npx", "--offline", "--yes", reference, "stdio"}
}

// missingReference says why the scene with the reference server is not played.
func missingReference() string {
	if _, err := exec.LookPath("npx"); err != nil {
		return "npx is not installed"
	}
	if _, err := exec.LookPath("mcp-server-everything"); err == nil {
		return ""
	}
	ctx, end := context.WithTimeoutCause(context.Background(), patience, errNoReceipt)
	defer end()
	cmd := exec.CommandContext(ctx, "npx", "--offline", "--yes", "-p", reference, "-c", "command -v mcp-server-everything")
	cmd.Env = append(os.Environ(), "npm_config_update_notifier=false")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "mcp-server-everything") {
		return reference + " is neither installed nor in npm's cache"
	}
	return ""
}

// playReference stops the reference server's long operation, which never stops
// by itself. Its witness is its progress and its process.
func playReference(l *lab) (side Side, err error) {
	if err = l.connect(referenceCommand()); err != nil {
		return side, err
	}
	call := `{"duration":20,"steps":200}`
	if err = l.client.Call("1", "trigger-long-running-operation", call, `"t"`); err != nil {
		return side, err
	}
	if _, err = l.client.Notification("notifications/progress"); err != nil {
		return side, err
	}
	pids := nodesBelow(l.client.Pid())
	pressed := time.Now()
	if err = l.client.Cancel("1", "the person pressed Stop"); err != nil {
		return side, err
	}
	if l.under {
		receipts, err := l.receipts(isCall)
		side.WentOn = time.Since(pressed)
		for _, pid := range pids {
			if faketool.Alive(pid) {
				side.Left++
			}
		}
		side.Still = side.Left > 0
		side.Told = l.answer("1")
		side.judge(receipts, err, false)
		l.nextReference(&side)
		return side, nil
	}
	time.Sleep(watchFor)
	for _, m := range l.client.Messages() {
		if m.Method == "notifications/progress" && m.Time.After(pressed) {
			side.WentOn = m.Time.Sub(pressed)
		}
	}
	side.Still = side.WentOn > watchFor-stillness
	side.Told = l.answer("1")
	return side, nil
}

func (l *lab) nextReference(side *Side) {
	l.client.Call(`"next"`, "echo", `{"message":"hello"}`, "")
	if answer, err := l.client.Expect(`"next"`); err != nil || answer.Error != nil {
		side.Others, side.Harmed, side.OK = "the next call failed", true, false
		return
	}
	side.Others = "the next call works"
}

// nodesBelow lists the processes of the server itself below a process: those
// that run node.
func nodesBelow(root int) (pids []int) {
	below := map[int]bool{root: true}
	parents := map[int]int{}
	entries, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range entries {
		pid, ppid, _ := readStat(path)
		parents[pid] = ppid
	}
	for changed := true; changed; {
		changed = false
		for pid, ppid := range parents {
			if below[ppid] && !below[pid] {
				below[pid], changed = true, true
			}
		}
	}
	for pid := range below {
		if comm, err := os.ReadFile(filepath.Join("/proc", itoa(pid), "comm")); err == nil && strings.HasPrefix(string(comm), "node") {
			pids = append(pids, pid)
		}
	}
	return pids
}
