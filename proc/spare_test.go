//go:build linux

package proc

import (
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

var browserRule = SpareRule{Comm: "chrom*", NotArgs: []string{"--headless", "--remote-debugging", "--type="}, Why: "a browser window of the user"}

// kills are the operations after which a spared process must be alive.
var kills = []struct {
	name string
	run  func(*Tree) (Report, error)
}{
	{"kill", func(t *Tree) (Report, error) { return t.Kill(context.Background(), Selection{}) }},
	{"close", func(t *Tree) (Report, error) { return t.Close(context.Background()) }},
}

// eachKill runs a test for both ways to end a tree, with a cgroup and without.
func eachKill(t *testing.T, test func(t *testing.T, mode CgroupMode, kill func(*Tree) (Report, error))) {
	for _, k := range kills {
		for _, m := range modes {
			t.Run(k.name+"/"+m.name, func(t *testing.T) { test(t, m.mode, k.run) })
		}
	}
}

// reason returns why a pid was spared by a report.
func reason(list []Process, pid int) string {
	for _, p := range list {
		if p.PID == pid {
			return p.Spare
		}
	}
	return ""
}

// endSpared kills what a test has had spared, and waits until the guardian
// that stayed as its parent has ended.
func endSpared(t *testing.T, tree *Tree, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	tree.Close(context.Background())
	waitClosed(t, tree.empty, 20*time.Second, "the guardian's end")
	for _, pid := range pids {
		if exists(pid) {
			t.Errorf("pid %d is left as a zombie", pid)
		}
	}
	if dir := tree.Cgroup(); dir != "" {
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("cgroup %s is left", dir)
		}
	}
}

// DESIGN 11.7: a tmux server that a tool started lives on, with what runs in it.
func TestSpareTmux(t *testing.T) {
	eachKill(t, func(t *testing.T, mode CgroupMode, kill func(*Tree) (Report, error)) {
		d := newDir(t)
		c := startCommander(t, Config{Cgroup: mode, Spare: []SpareRule{{Comm: "tmux: server", Why: "tmux"}}})
		socket := filepath.Join(d, "s")
		c.do("env -u TMUX tmux -S " + socket + ` -f /dev/null new-session -d "exec sleep 1000"; echo ok`)
		out, err := exec.Command("tmux", "-S", socket, "display", "-p", "#{pid} #{pane_pid}").Output()
		if err != nil {
			t.Fatal(err)
		}
		f := strings.Fields(string(out))
		server, _ := strconv.Atoi(f[0])
		pane, _ := strconv.Atoi(f[1])
		eventually(t, 20*time.Second, "pane runs sleep", func() bool { p, _ := readProc(pane); return p.Comm == "sleep" })
		victim := c.spawn("setsid sleep 1000")

		would, spared := c.Plan(Selection{})
		if reason(spared, server) != "tmux" || reason(spared, pane) != "tmux" || len(would) != 2 {
			t.Errorf("plan: would %v, spared %v", would, spared)
		}
		r, err := kill(c.Tree)
		if err != nil || !r.Gone {
			t.Fatalf("%+v, %v", r, err)
		}
		if !living(server) || !living(pane) {
			t.Error("tmux was harmed")
		}
		if living(victim) || living(c.PID()) {
			t.Error("something else was spared")
		}
		if reason(r.Spared, server) != "tmux" || reason(r.Spared, pane) != "tmux" {
			t.Errorf("spared %v", r.Spared)
		}
		if err := exec.Command("tmux", "-S", socket, "kill-server").Run(); err != nil {
			t.Errorf("tmux does not answer any more: %v", err)
		}
		eventually(t, 20*time.Second, "tmux ended", func() bool { return !living(server) && !living(pane) })
		endSpared(t, c.Tree)
	})
}

// DESIGN 11.7: a browser opened for the user is spared, one driven by the tool
// is not.
func TestSpareBrowser(t *testing.T) {
	eachKill(t, func(t *testing.T, mode CgroupMode, kill func(*Tree) (Report, error)) {
		d := newDir(t)
		browser := filepath.Join(d, "chromium")
		copyFile(t, "/bin/sh", browser)
		c := startCommander(t, Config{Cgroup: mode, Spare: []SpareRule{browserRule}})
		loop := " -c 'while :; do sleep 0.05; done' "
		window := c.spawn("setsid " + browser + loop + "window")
		driven := c.spawn(browser + loop + "--headless")
		helper := c.spawn(browser + loop + "--type=renderer")
		for _, pid := range []int{window, driven, helper} {
			eventually(t, 20*time.Second, "chromium runs", func() bool { p, _ := readProc(pid); return p.Comm == "chromium" })
		}
		r, err := kill(c.Tree)
		if err != nil || !r.Gone {
			t.Fatalf("%+v, %v", r, err)
		}
		if !living(window) || reason(r.Spared, window) != browserRule.Why {
			t.Errorf("the window was not spared: %v", r.Spared)
		}
		if living(driven) || living(helper) {
			t.Error("the driven browser was spared")
		}
		endSpared(t, c.Tree, window)
	})
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	src, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	// Written by another process: a descriptor open for writing, inherited by
	// a fork elsewhere in this test binary, would make it "text file busy".
	cmd := exec.Command("sh", "-c", `cat > "$0" && chmod +x "$0"`, to)
	cmd.Stdin = src
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
}

// A rule that matches the leader is out of force: who runs a browser as the
// tool wants it stopped with its helpers.
func TestRuleForLeaderIsOff(t *testing.T) {
	d := newDir(t)
	browser := filepath.Join(d, "chromium")
	copyFile(t, "/bin/sh", browser)
	tree := startTree(t, Config{Path: browser, Args: []string{"-c", `"$0" -c 'while :; do sleep 0.05; done' & echo x; wait`, browser}, Spare: []SpareRule{browserRule}})
	io.ReadFull(tree.Stdout(), make([]byte, 1))
	r, err := tree.Kill(context.Background(), Selection{})
	if err != nil || !r.Gone || len(r.Spared) > 0 {
		t.Errorf("%+v, %v", r, err)
	}
	mustBeDead(t, d)
}

// DESIGN 11.7: a daemon that was moved to another systemd scope is spared,
// with its children, by the guardian alone as well.
func TestSpareOtherScope(t *testing.T) {
	needCgroup(t)
	eachKill(t, func(t *testing.T, mode CgroupMode, kill func(*Tree) (Report, error)) {
		d := newDir(t)
		c := startCommander(t, Config{Cgroup: mode})
		daemon := c.spawn(`setsid sh "` + d + `/work" "` + d + `"`)
		victim := c.spawn("setsid sleep 1000")
		scope := makeScope(t)
		moveTo(t, scope, daemon)
		r, err := kill(c.Tree)
		if err != nil || !r.Gone {
			t.Fatalf("%+v, %v", r, err)
		}
		if why := reason(r.Spared, daemon); !strings.HasPrefix(why, WhyScope) || !strings.Contains(why, filepath.Base(scope)) {
			t.Errorf("spared because %q: %v", why, r.Spared)
		}
		if living(victim) {
			t.Error("the victim lives")
		}
		grows(t, d)
		endSpared(t, c.Tree, daemon)
		eventually(t, 20*time.Second, "scope empty", func() bool { return syscall.Rmdir(scope) == nil })
	})
}

// makeScope makes a cgroup that looks like a systemd scope.
func makeScope(t *testing.T) string {
	t.Helper()
	scope := filepath.Join(cgroupHome(), "proctest-"+strconv.FormatInt(time.Now().UnixNano(), 36)+".scope")
	if err := os.Mkdir(scope, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Rmdir(scope) })
	return scope
}

func moveTo(t *testing.T, dir string, pid int) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
		t.Fatal(err)
	}
}

// grows fails unless the witness in d still writes.
func grows(t *testing.T, d string) {
	t.Helper()
	before := size(filepath.Join(d, "grow"))
	eventually(t, 20*time.Second, "the spared witness writes", func() bool { return size(filepath.Join(d, "grow")) > before })
}

// The guardian of a killed Belay respects the spare rules, too.
func TestOwnerKilledSpares(t *testing.T) {
	needCgroup(t)
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			d := newDir(t)
			o := startOwner(t, "setsid", d, m.mode)
			scope := makeScope(t)
			var daemon int
			for _, pid := range pidsOf(d) {
				if p, _ := readProc(pid); p.SID == pid {
					daemon = pid
				}
			}
			moveTo(t, scope, daemon)
			watch := startWatch(t)
			o.cmd.Process.Kill()
			o.cmd.Wait()
			eventually(t, 20*time.Second, "guardian ended", func() bool { return !living(o.guardian) })
			watch.within(t, time.Second, "guardian ended")
			for _, pid := range pidsOf(d) {
				if living(pid) != (pid == daemon) {
					t.Errorf("pid %d living %v, the daemon is %d", pid, living(pid), daemon)
				}
			}
			grows(t, d)
			syscall.Kill(daemon, syscall.SIGKILL)
			syscall.Wait4(daemon, nil, 0, nil) // it has become a child of this subreaper
			eventually(t, 20*time.Second, "scope empty", func() bool { return syscall.Rmdir(scope) == nil })
		})
	}
}

// DESIGN 11.1, 11.7: what an earlier call left (a dev server) is not harmed
// when this call's server is stopped, and its own later children neither.
func TestSpareEarlierCalls(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			d := newDir(t)
			c := startCommander(t, Config{Cgroup: m.mode})
			helper := c.spawn("sleep 1000") // the server's own, before any call
			tick20()
			from := Now()
			tick20()
			dev := c.spawn(`setsid sh "` + d + `/work" "` + d + `"`)
			waitPids(t, d, 1)
			tick20()
			until := Now()
			tick20()
			mine := c.spawn("setsid sleep 1000")
			r, err := c.Kill(context.Background(), Selection{SpareFrom: from, SpareUntil: until})
			if err != nil || !r.Gone {
				t.Fatalf("%+v, %v", r, err)
			}
			for pid, want := range map[int]bool{c.PID(): false, helper: false, mine: false, dev: true} {
				if living(pid) != want {
					t.Errorf("pid %d living %v", pid, !want)
				}
			}
			if why := reason(r.Spared, dev); why != WhyEarlier {
				t.Errorf("spared because %q", why)
			}
			grows(t, d)
			// It still belongs to the tree: a full stop takes it.
			if r, err := c.Kill(context.Background(), Selection{}); err != nil || !r.Gone || len(r.Spared) > 0 {
				t.Errorf("%+v, %v", r, err)
			}
			mustBeDead(t, d)
			waitClosed(t, c.Gone(), 20*time.Second, "Gone")
		})
	}
}

// tick20 lets two units of process birth pass.
func tick20() { time.Sleep(20 * time.Millisecond) }

// DESIGN 11.1: the children of one call are killed, the server goes on.
func TestOnlyChildrenOfACall(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			d := newDir(t)
			c := startCommander(t, Config{Cgroup: m.mode})
			helper := c.spawn("sleep 1000")
			tick20()
			since := Now()
			child := c.spawn(`sh "` + d + `/work" "` + d + `"`)
			escaped := c.spawn(`setsid sh "` + d + `/work" "` + d + `"`)
			waitPids(t, d, 2)
			sel := Selection{OnlySince: since}
			would, _ := c.Plan(sel)
			if len(would) < 2 || reasonless(would, c.PID()) || reasonless(would, helper) {
				t.Errorf("plan %v", would)
			}
			r, err := c.Kill(context.Background(), sel)
			if err != nil || !r.Gone {
				t.Fatalf("%+v, %v", r, err)
			}
			for pid, want := range map[int]bool{c.PID(): true, helper: true, child: false, escaped: false} {
				if living(pid) != want {
					t.Errorf("pid %d living %v", pid, !want)
				}
			}
			mustBeDead(t, d)
			if c.do("echo still here") != "still here" {
				t.Error("the server does not answer")
			}
			if r, err := c.Terminate(context.Background(), sel, time.Second); err != nil || !r.Gone || len(r.Signalled) > 0 {
				t.Errorf("nothing is left of the call: %+v, %v", r, err)
			}
		})
	}
}

func reasonless(list []Process, pid int) bool {
	for _, p := range list {
		if p.PID == pid {
			return true
		}
	}
	return false
}

// A spared process is not even stopped for a moment by the sweep, and 50 kills
// of one call's children beside it do it no harm.
func TestCollateral(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			d := newDir(t)
			c := startCommander(t, Config{Cgroup: m.mode})
			dev := c.spawn(`setsid sh "` + d + `/work" "` + d + `"`)
			for range 50 {
				tick20()
				since := Now()
				victim := c.spawn("setsid sleep 1000")
				r, err := c.Kill(context.Background(), Selection{OnlySince: since, SpareFrom: c.StartTime(), SpareUntil: since})
				if err != nil || !r.Gone || living(victim) {
					t.Fatalf("%+v, %v", r, err)
				}
				if !living(dev) || !living(c.PID()) {
					t.Fatal("an innocent process died")
				}
			}
			grows(t, d)
		})
	}
}

// DESIGN 11.4: a connection to a container daemon is seen, so that nobody
// takes the death of the client for the end of the work.
func TestHeldDaemon(t *testing.T) {
	d := newDir(t)
	path := filepath.Join(d, "docker.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := startTree(t, Config{Path: "python3", Args: []string{
		"-c",
		"import socket,sys,time; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); print(flush=True); time.sleep(1000)", path,
	}})
	io.ReadFull(c.Stdout(), make([]byte, 1))
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if held := c.HeldDaemon(); len(held) != 1 || held[0] != path {
		t.Errorf("held %q", held)
	}
	if conns := c.RemoteConns(); len(conns) != 0 {
		t.Errorf("remote %q", conns)
	}
	none := startTree(t, Config{Path: "sleep", Args: []string{"1000"}})
	if held := none.HeldDaemon(); len(held) != 0 {
		t.Errorf("a tool without a connection holds %q", held)
	}
}

// Connections that leave the machine are listed for the receipt.
func TestRemoteConns(t *testing.T) {
	addr := ownAddress(t)
	l, err := net.Listen("tcp", net.JoinHostPort(addr, "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	host, port, _ := net.SplitHostPort(l.Addr().String())
	c := startTree(t, Config{Path: "python3", Args: []string{
		"-c",
		"import socket,sys,time; s=socket.create_connection((sys.argv[1], int(sys.argv[2]))); print(flush=True); time.sleep(1000)", host, port,
	}})
	io.ReadFull(c.Stdout(), make([]byte, 1))
	conns := c.RemoteConns()
	if net.ParseIP(host).IsLoopback() {
		if len(conns) != 0 {
			t.Errorf("loopback is no remote end: %q", conns)
		}
		return
	}
	if len(conns) != 1 || conns[0] != l.Addr().String() {
		t.Errorf("conns %q, want %q", conns, l.Addr())
	}
}

// ownAddress returns an address of this machine, preferably not loopback.
func ownAddress(t *testing.T) string {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && !n.IP.IsLoopback() {
			return n.IP.String()
		}
	}
	return "127.0.0.1"
}
