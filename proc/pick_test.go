//go:build linux

package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// beatScript starts three witnesses: one plain, one in a session of its own, one
// that is to be left alone. Each writes its pid and then grows a file.
const beatScript = `
beat='echo $$ > "$1.pid"; while :; do echo x >> "$1"; sleep 0.02; done'
sh -c "$beat" beat "$1/plain" &
setsid sh -c "$beat" beat "$1/setsid" &
sh -c "$beat" beat "$1/kept" &
wait
`

// beats starts the three and returns their pids by name.
func beats(t *testing.T, mode CgroupMode) (tree *Tree, pids map[string]int, dir string) {
	t.Helper()
	dir = t.TempDir()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	tree, err = Start(t.Context(), Config{
		Path: "sh", Args: []string{"-c", beatScript, "sh", dir},
		Stdin: null, Stdout: null, Stderr: os.Stderr, Cgroup: mode,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = tree.Close(context.Background()) })
	pids = map[string]int{}
	for end := time.Now().Add(10 * time.Second); len(pids) < 3 && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		for _, name := range []string{"plain", "setsid", "kept"} {
			b, err := os.ReadFile(filepath.Join(dir, name+".pid"))
			var pid int
			if _, scanErr := fmt.Sscan(string(b), &pid); err == nil && scanErr == nil {
				pids[name] = pid
			}
		}
	}
	if len(pids) != 3 {
		t.Fatalf("only %v beat", pids)
	}
	return tree, pids, dir
}

// under picks the processes with these pids and all that is below them.
func under(pids ...int) func([]Process) map[ID]bool {
	return func(live []Process) map[ID]bool {
		v := newView(live)
		below := v.below(pids...)
		picked := map[ID]bool{}
		for _, p := range live {
			if below[p.PID] || slices.Contains(pids, p.PID) {
				picked[p.ID()] = true
			}
		}
		return picked
	}
}

// DESIGN 11, 7: a selection by picked processes ends these, with what they start
// meanwhile, and nobody else; the leader is never picked.
func TestPickEndsThePickedAlone(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			if m.mode == CgroupAuto {
				needCgroup(t)
			}
			tree, pids, dir := beats(t, m.mode)
			sel := Selection{Pick: func(live []Process) map[ID]bool {
				picked := under(pids["plain"], pids["setsid"])(live)
				picked[tree.leader] = true
				return picked
			}}
			would, spared := tree.Plan(sel)
			if len(would) < 2 || len(spared) != 0 {
				t.Fatalf("plan: %v, spared %v", would, spared)
			}
			for _, p := range would {
				if p.PID == tree.PID() || p.PID == pids["kept"] {
					t.Errorf("plan names %v", p)
				}
			}
			r, err := tree.Kill(t.Context(), Selection{Pick: under(pids["plain"], pids["setsid"])})
			if err != nil || !r.Gone {
				t.Fatalf("kill: %+v, %v", r, err)
			}
			if exists(pids["plain"]) && alivePid(pids["plain"]) || exists(pids["setsid"]) && alivePid(pids["setsid"]) {
				t.Error("a picked process is alive")
			}
			before, _ := os.Stat(filepath.Join(dir, "kept"))
			for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
				if after, _ := os.Stat(filepath.Join(dir, "kept")); after.Size() > before.Size() {
					break
				}
				if time.Now().After(end) {
					t.Fatal("who was not picked beats no more")
				}
			}
			select {
			case <-tree.Done():
				t.Error("the leader has ended")
			default:
			}
		})
	}
}

func alivePid(pid int) bool {
	p, ok := readProc(pid)
	return ok && p.live()
}

// Terminate by picked processes: SIGTERM for these alone, and a spared one that
// is picked is named and left.
func TestPickTerminates(t *testing.T) {
	tree, pids, _ := beats(t, CgroupOff)
	r, err := tree.Terminate(t.Context(), Selection{Pick: under(pids["setsid"])}, 0)
	if err != nil || !r.Gone || len(r.Signalled) == 0 {
		t.Fatalf("terminate: %+v, %v", r, err)
	}
	if !alivePid(pids["plain"]) || !alivePid(pids["kept"]) {
		t.Error("somebody else was hit")
	}
	if r, err := tree.Kill(t.Context(), Selection{Pick: func([]Process) map[ID]bool { return nil }}); err != nil || !r.Gone || len(r.Killed) != 0 {
		t.Errorf("nobody picked: %+v, %v", r, err)
	}
}

// Await sees exactly one process die, whoever its parent is.
func TestAwaitSeesADeath(t *testing.T) {
	tree, pids, _ := beats(t, CgroupOff)
	var id ID
	list, err := tree.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list {
		if p.PID == pids["setsid"] {
			id = p.ID()
		}
	}
	reason := errors.New("enough")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, reason)
	defer cancel()
	if err := Await(ctx, id); !errors.Is(err, reason) {
		t.Fatalf("a living process: %v, want %v", err, reason)
	}
	dead := make(chan error, 1)
	go func() { dead <- Await(t.Context(), id) }()
	if _, err := tree.Kill(t.Context(), Selection{Pick: under(id.PID)}); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-dead:
		if err != nil || alive(id) {
			t.Errorf("await: %v, alive %v", err, alive(id))
		}
	case <-time.After(5 * time.Second):
		t.Fatal("the death was not seen")
	}
	if err := Await(t.Context(), ID{id.PID, id.Born + 1}); err != nil {
		t.Errorf("one that never was: %v", err)
	}
}

func TestProgramNamesFileAndArguments(t *testing.T) {
	exe, argv := Program(os.Getpid())
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if exe != self || len(argv) == 0 || argv[0] != os.Args[0] {
		t.Errorf("program %q %q, want %q %q", exe, argv, self, os.Args)
	}
	if exe, argv := Program(1 << 30); exe != "" || argv != nil {
		t.Errorf("nobody: %q %q", exe, argv)
	}
	tree, pids, dir := beats(t, CgroupOff)
	if exe, argv := Program(pids["plain"]); exe == "" || strings.Join(argv[len(argv)-1:], "") != dir+"/plain" {
		t.Errorf("program %q %q of %v", exe, argv, tree.PID())
	}
}
