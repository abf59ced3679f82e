//go:build linux

package proc

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A pid that was used again is never signalled: start times must agree.
func TestPidReuseIsNotHit(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	p, ok := readProc(cmd.Process.Pid)
	if !ok {
		t.Fatal("not in the table")
	}
	earlier := ID{p.PID, p.Start - bornUnit}
	if err := signalID(earlier, unix.SIGKILL); err != unix.ESRCH {
		t.Errorf("signal to an earlier user of the pid: %v", err)
	}
	if alive(earlier) || !alive(p.ID()) || !living(p.PID) {
		t.Error("the wrong one was taken for alive or hit")
	}
	if err := signalID(p.ID(), unix.SIGKILL); err != nil {
		t.Error(err)
	}
	cmd.Wait()
	if err := signalID(p.ID(), unix.SIGKILL); err != unix.ESRCH {
		t.Errorf("signal to a dead one: %v", err)
	}
}

func TestParseStat(t *testing.T) {
	tail := " S 7 8 9 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 5 0 12345 100 200"
	for _, comm := range []string{"sh", "tmux: server", "a) S 1 (b", "", "((("} {
		p, ok := parseStat([]byte("42 (" + comm + ")" + tail))
		if !ok || p.PID != 42 || p.Comm != comm || p.State != "S" || p.PPID != 7 || p.PGID != 8 || p.SID != 9 ||
			p.CPU != 300*time.Millisecond || p.childCPU != 700*time.Millisecond || p.threads != 5 || p.Start != 12345*bornUnit {
			t.Errorf("%q: %+v, %v", comm, p, ok)
		}
	}
	for _, bad := range []string{"", "42", "42 (sh", "42 (sh) S 1", "x (sh)" + tail, "(sh)" + tail} {
		if p, ok := parseStat([]byte(bad)); ok {
			t.Errorf("%q became %+v", bad, p)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("42 (a) S 1 (b) S 7 8 9 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 5 0 12345 100 200"))
	f.Add([]byte(")("))
	f.Fuzz(func(t *testing.T, b []byte) { parseStat(b) })
}

// A zombie is dead, but a first thread that ended before the others is not.
func TestZombieWithThreadsLives(t *testing.T) {
	for state, want := range map[string][2]bool{"Z": {false, true}, "X": {false, false}, "S": {true, true}, "T": {true, true}} {
		for i, threads := range []int{1, 2} {
			if got := (Process{State: state, threads: threads}).live(); got != want[i] {
				t.Errorf("%s with %d threads: live %v", state, threads, got)
			}
		}
	}
}

func TestSpareRuleMatches(t *testing.T) {
	r := SpareRule{Comm: "chrom*", Args: []string{"--profile"}, NotArgs: []string{"--headless"}}
	for _, c := range []struct {
		comm, line string
		want       bool
	}{
		{"chromium", "chromium --profile x", true},
		{"chromium", "chromium", false},
		{"chromium", "chromium --profile x --headless=new", false},
		{"firefox", "firefox --profile x", false},
	} {
		if got := r.matches(c.comm, func() string { return c.line }); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
	for _, r := range []SpareRule{{}, {Comm: "[", Why: "bad pattern"}, {Args: []string{""}}} {
		if r.matches("sh", func() string { return "sh" }) {
			t.Errorf("%+v matches", r)
		}
	}
	b, err := json.Marshal(SpareRule{Comm: "tmux: server"})
	if err != nil || string(b) != `{"comm":"tmux: server"}` {
		t.Errorf("as data: %s, %v", b, err)
	}
}

// spared is a reason's way through a tree: to descendants and to the session,
// never to the leader or to others.
func TestSpareSpreads(t *testing.T) {
	mk := func(pid, ppid, sid int) Process { return Process{PID: pid, PPID: ppid, SID: sid, State: "S"} }
	members := []Process{mk(9, 5, 5), mk(2, 1, 1), mk(3, 2, 1), mk(5, 3, 5), mk(6, 2, 5), mk(7, 6, 7), mk(8, 2, 1)}
	leader := ID{PID: 2}
	means, spared := split(newView(members), members, leader, Selection{SpareFrom: 0, SpareUntil: 0})
	if len(spared) != 0 || len(means) != len(members) {
		t.Fatalf("%v %v", means, spared)
	}
	spareAll(newView(members), members, leader, func(p *Process) string {
		if p.PID == 5 || p.PID == 2 {
			return "why"
		}
		return ""
	})
	for _, p := range members {
		want := p.PID == 5 || p.PID == 9 || p.PID == 6 || p.PID == 7
		if (p.Spare != "") != want {
			t.Errorf("pid %d spared %q", p.PID, p.Spare)
		}
	}
}

func TestSelectionUnits(t *testing.T) {
	u := bornUnit
	s := Selection{SpareFrom: 10*u + 5, SpareUntil: 20*u + 5}
	for born, want := range map[Stamp]bool{9 * u: false, 10 * u: true, 19 * u: true, 20 * u: false} {
		if s.spares(born) != want {
			t.Errorf("born %d spared %v", born/u, !want)
		}
	}
	o := Selection{OnlySince: 10*u + 9}
	if !o.means(10*u, false) || o.means(9*u, false) || o.means(11*u, true) {
		t.Error("OnlySince")
	}
}

func TestCgroupMount(t *testing.T) {
	for line, want := range map[string]string{
		`41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw`:  "/ /sys/fs/cgroup/unified",
		`41 31 0:38 /a\040b /mnt/c\134d rw shared:1 master:2 - cgroup2 none rw`: `/a b /mnt/c\d`,
		`32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu`:    "",
		``: "", `- cgroup2`: "",
	} {
		root, point, ok := cgroupMount(line)
		if ok != (want != "") || ok && root+" "+point != want {
			t.Errorf("%q: %q %q %v", line, root, point, ok)
		}
	}
}

// A cgroup that a dead Belay has left is removed, one in use is not.
func TestRemoveAbandoned(t *testing.T) {
	needCgroup(t)
	home := cgroupHome()
	dead := filepath.Join(home, cgroupPrefix+"1999999-77-1")
	deadFull := filepath.Join(home, cgroupPrefix+"1999999-78-1")
	foreign := filepath.Join(home, cgroupPrefix+"notours")
	for _, d := range []string{dead, filepath.Join(dead, "sub"), deadFull, foreign} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
		defer syscall.Rmdir(d)
	}
	sleep := exec.Command("sleep", "1000")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	moveTo(t, deadFull, sleep.Process.Pid)
	own, err := newCgroup()
	if err != nil {
		t.Fatal(err)
	}
	defer own.remove()
	removeAbandoned(home)
	for path, want := range map[string]bool{dead: false, deadFull: true, foreign: true, own.dir: true} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s there: %v", path, err == nil)
		}
	}
	if !living(sleep.Process.Pid) {
		t.Error("a process died of the cleaning")
	}
	sleep.Process.Kill()
	sleep.Wait()
}

func TestEstablishedIn(t *testing.T) {
	table := `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:0016 0100007F:D431 01 00000000:00000000 00:00000000 00000000     0        0 11 1
   1: 0500000A:9C40 08080808:01BB 01 00000000:00000000 00:00000000 00000000     0        0 12 1
   2: 0500000A:9C41 08080808:01BB 06 00000000:00000000 00:00000000 00000000     0        0 12 1
   3: 0500000A:9C42 08080404:01BB 01 00000000:00000000 00:00000000 00000000     0        0 99 1
   4: 000080FE000000000000000001000000:9C42 B80D0120000000000000000001000000:01BB 01 0:0 0:0 0 0 0 13 1
   5: short
`
	got := strings.Join(establishedIn(table, map[uint64]bool{11: true, 12: true, 13: true}), " ")
	if got != "8.8.8.8:443 [2001:db8::1]:443" {
		t.Errorf("got %s", got)
	}
	if _, ok := parseEndpoint("nonsense"); ok {
		t.Error("nonsense is an endpoint")
	}
}

func TestAppendOnceIsBounded(t *testing.T) {
	var list []Process
	for i := range 3 * reportMax {
		list = appendOnce(list, Process{PID: i/2 + 1})
	}
	if len(list) != reportMax || list[1].PID != 2 {
		t.Errorf("%d entries", len(list))
	}
}
