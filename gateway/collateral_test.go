//go:build unix

package gateway

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/faketool"
	"github.com/belayhq/belay/internal/need"
	"github.com/belayhq/belay/proc"
)

// decoys are innocent processes beside the work that is stopped. Each was
// started by the tool itself, so each is a descendant of it.
type decoys struct {
	r    *rig
	dir  string
	name map[int]string // what a pid is
	rule []int          // those that outlive even the session: spared by rule
	tmux string         // the socket of the tmux server
}

// newDecoys has the rig's tool start a tmux server, a browser window, and a
// daemon that is moved to another scope.
func newDecoys(r *rig) *decoys {
	r.t.Helper()
	need.Commands(r.t, "tmux")
	dir, err := os.MkdirTemp("", "belay") // short, for the socket
	r.ok(err)
	d := &decoys{r: r, dir: dir, name: map[int]string{}, tmux: filepath.Join(dir, "tmux")}
	scope := newScope(r.t)
	r.t.Cleanup(d.end) // before that of the scope
	r.ok(copyProgram("/bin/sh", filepath.Join(dir, "chromium")))
	loop := `while :; do echo . >>"$0"; sleep 0.5; done` // each sleep is a process
	d.shell("env -u TMUX tmux -S " + d.tmux + " -f /dev/null new-session -d 'exec sleep 600'")
	d.shell("setsid " + dir + "/chromium -c '" + loop + "' " + dir + "/window </dev/null >/dev/null 2>&1 & echo $! >" + dir + "/window.pid")
	d.shell("setsid sh -c '" + loop + "' " + dir + "/daemon </dev/null >/dev/null 2>&1 & echo $! >" + dir + "/daemon.pid")

	out, err := exec.Command("tmux", "-S", d.tmux, "display", "-p", "#{pid} #{pane_pid}").Output()
	r.ok(err)
	for i, text := range strings.Fields(string(out)) {
		d.add(text, []string{"tmux server", "tmux pane"}[i], true)
	}
	d.add(d.read("window.pid"), "browser window", true)
	daemon := d.add(d.read("daemon.pid"), "daemon in another scope", true)
	r.ok(os.WriteFile(filepath.Join(scope, "cgroup.procs"), []byte(strconv.Itoa(daemon)), 0))
	return d
}

// newScope makes a cgroup that looks like a scope of systemd.
func newScope(t *testing.T) string {
	t.Helper()
	mount := ""
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(info)) {
		if f := strings.Fields(line); strings.Contains(line, " - cgroup2 ") && len(f) > 4 {
			mount = f[4]
		}
	}
	if mount == "" || os.Geteuid() != 0 {
		need.Missing(t, "no cgroup v2 hierarchy that this user may write to")
	}
	scope, err := os.MkdirTemp(mount, "belay-test-*.scope") // a killed test may have left one of our pid
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for end := time.Now().Add(5 * time.Second); syscall.Rmdir(scope) != nil && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		}
	})
	return scope
}

func (d *decoys) shell(command string) {
	d.r.t.Helper()
	args, err := json.Marshal(map[string]string{"key": "shell", "text": command})
	d.r.ok(err)
	if m := d.r.ask("shell", string(args)); m.Result == nil {
		d.r.t.Fatalf("%s: %s", command, m.Raw)
	}
}

func (d *decoys) read(name string) string {
	b, err := os.ReadFile(filepath.Join(d.dir, name))
	d.r.ok(err)
	return strings.TrimSpace(string(b))
}

func (d *decoys) add(pid, name string, byRule bool) int {
	n, err := strconv.Atoi(pid)
	d.r.ok(err)
	if !faketool.Alive(n) {
		d.r.t.Fatalf("the %s does not run", name)
	}
	d.name[n] = name
	if byRule {
		d.rule = append(d.rule, n)
	}
	return n
}

// devserver has the tool start a process that belongs to the user, and lets
// two units of process birth pass before the next call.
func (d *decoys) devserver() {
	d.r.t.Helper()
	key := fmt.Sprintf("dev%d", len(d.name))
	d.r.ask("devserver", `{"key":"`+key+`","ms":100}`)
	d.r.seen(key+"/setsid", "start")
	d.add(strconv.Itoa(d.r.w.Pids(key + "/setsid")[0]), "dev server "+key, false)
	time.Sleep(2 * time.Duration(bornUnit))
}

// unharmed fails if a decoy is dead or does not work any more.
func (d *decoys) unharmed() {
	d.r.t.Helper()
	for pid, name := range d.name {
		if !faketool.Alive(pid) {
			d.r.t.Errorf("the %s (pid %d) was killed", name, pid)
		}
	}
	if err := exec.Command("tmux", "-S", d.tmux, "display", "-p", "#{pid}").Run(); err != nil {
		d.r.t.Errorf("tmux does not answer: %v", err)
	}
	for _, name := range []string{"window", "daemon"} {
		before, _ := os.Stat(filepath.Join(d.dir, name))
		d.r.until("the "+name+" works", 10*time.Second, func() bool {
			now, err := os.Stat(filepath.Join(d.dir, name))
			return err == nil && now.Size() > before.Size()
		})
	}
	for pid, name := range d.name {
		if key, ok := strings.CutPrefix(name, "dev server "); ok && !d.r.works(key+"/setsid", 5*time.Second) {
			d.r.t.Errorf("the %s (pid %d) does not work any more", name, pid)
		}
	}
}

// end ends the session, which must not harm what is spared by rule, and then
// the decoys.
func (d *decoys) end() {
	d.r.close()
	for _, pid := range d.rule {
		if !faketool.Alive(pid) {
			d.r.t.Errorf("the %s (pid %d) was killed by the end of the session", d.name[pid], pid)
		}
	}
	for _, pid := range d.rule {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	if left := faketool.WaitDead(d.rule, 5*time.Second); len(left) > 0 {
		d.r.t.Errorf("decoys are left: %v", left)
	}
	_ = os.RemoveAll(d.dir)
}

// collateralStops counts the stops of TestCollateral.
var collateralStops atomic.Int64

// Issue, DESIGN 11 (collateral rate): with a tmux server, a browser, dev
// servers of earlier calls, a daemon in another scope, other calls and other
// sessions beside it, no innocent process dies in 500 stops; after a stop
// without force the server process is the same, after one with force the next
// call answers as before. It runs before what is parallel, since it takes all
// processors by itself.
func TestCollateral(t *testing.T) {
	other := newRig(t, nil) // another session, which nobody stops
	other.start("1", "tick", `{"key":"bystander","n":1000000,"ms":100}`)
	bystander := other.state()

	quick := belay.Ladder{Grace: 20 * time.Millisecond, KillAfter: 200 * time.Millisecond}
	forced := func(rounds, each int, change func(*Config), flags []string, how string) func(*testing.T) {
		return func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(c *Config) { c.Ladder = quick; change(c) }, append(flags, "-no-subscribe")...)
			d := newDecoys(r)
			for range rounds {
				d.devserver()
				for range each {
					forceOne(r, how)
				}
			}
			d.unharmed()
		}
	}
	safe := func(c *Config) { c.RestartSafe = true }
	call := func(c *Config) { c.Isolation = IsolationCall }
	t.Run("stops", func(t *testing.T) {
		for i := range 2 {
			n := strconv.Itoa(i)
			t.Run("restart-safe "+n, forced(4, 4, safe, nil, "cancel"))
			t.Run("isolation call "+n, forced(4, 4, call, nil, "cancel"))
		}
		t.Run("now", forced(3, 6, safe, []string{"-deaf-term", "-stay"}, "now"))
		t.Run("no cgroup", forced(3, 6, func(c *Config) { c.RestartSafe, c.Cgroup = true, proc.CgroupOff }, nil, "cancel"))
		t.Run("answered", collateralAnswered)
		t.Run("silent", collateralSilent)
	})
	if n := collateralStops.Load(); n < 500 {
		t.Errorf("%d stops were made, 500 are wanted", n)
	} else {
		t.Logf("%d stops", n)
	}
	if after := other.state(); after.Pid != bystander.Pid || !other.works("bystander", 5*time.Second) {
		t.Error("another session was harmed")
	}
}

// forceOne has a deaf tool stopped by force, beside a call that nobody stops.
func forceOne(r *rig, how string) {
	r.t.Helper()
	n := collateralStops.Add(1)
	id, beside := fmt.Sprintf(`"s%d"`, n), fmt.Sprintf(`"b%d"`, n)
	key, other := fmt.Sprintf("s%d", n), fmt.Sprintf("b%d", n)
	r.start(id, "tick", tickForever(key, `"deaf":true`))
	r.ok(r.Call(beside, "tick", brief(other, 5), ""))
	if how == "now" {
		r.stop(id, true)
	} else {
		r.ok(r.Cancel(id, "enough"))
	}
	if m, err := r.Expect(beside); err != nil || m.Result == nil || r.w.Count(other, "done") != 1 {
		r.t.Errorf("the call beside it was harmed: %v %s", err, m.Raw)
	}
	r.wantVerdict(r.receipt(id), belay.Confirmed, belay.ScopeLocalTree)
	r.dead(key)
	r.echo()
}

// collateralAnswered stops calls of a tool that obeys and says so.
func collateralAnswered(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.Ladder = belay.Ladder{} }, "-reply=result")
	d := newDecoys(r)
	d.devserver()
	before := r.state()
	for range 250 {
		n := collateralStops.Add(1)
		id, key := strconv.FormatInt(n, 10), fmt.Sprintf("a%d", n)
		r.start(id, "tick", tickForever(key))
		r.ok(r.Cancel(id, "enough"))
		r.wantVerdict(r.receipt(id), belay.Acknowledged, "")
	}
	r.echo()
	if after := r.state(); after.Pid != before.Pid {
		t.Errorf("the process is another after stops without force: %+v", after)
	}
	d.unharmed()
}

// collateralSilent stops calls of a tool that obeys in silence, as the
// protocol says, under the default auto.
func collateralSilent(t *testing.T) {
	t.Parallel()
	r := newRig(t, inMode(EnforceAuto, func(c *Config) { c.Ladder.Grace = 1500 * time.Millisecond }))
	d := newDecoys(r)
	d.devserver()
	before := r.state()
	var ids []string
	for range 150 {
		n := collateralStops.Add(1)
		id, key := strconv.FormatInt(n, 10), fmt.Sprintf("q%d", n)
		ids = append(ids, id)
		r.start(id, "tick", fmt.Sprintf(`{"key":%q,"n":1000,"ms":100}`, key))
		r.ok(r.Cancel(id, "enough"))
	}
	for _, id := range ids {
		r.wantVerdict(r.receipt(id), belay.Signalled, "")
	}
	r.echo()
	if after := r.state(); after.Pid != before.Pid {
		t.Errorf("the process is another after stops without force: %+v", after)
	}
	d.unharmed()
	// What was kept does not reach back: a later deaf call is forced, and what
	// was started after the silent ones lives on.
	d.devserver()
	forceOne(r, "cancel")
	d.unharmed()
}

// DESIGN 11.4: a relay whose local process is killed is never confirmed: at
// most signalled, with the text that says why.
func TestCollateralRelay(t *testing.T) {
	t.Parallel()
	commands := map[string][]string{
		"docker": {"docker", "run", "-i", "--rm", "image", "server"},
		"ssh":    {"ssh", "host.example", "server"},
	}
	for name, argv := range commands {
		for _, isolation := range []Isolation{IsolationShared, IsolationCall} {
			t.Run(name+"/"+string(isolation), func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				witness := filepath.Join(dir, "w")
				fake := strings.Join(faketool.Command("server", "-witness="+witness, "-no-subscribe"), " ")
				if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\nexec "+fake+"\n"), 0o755); err != nil {
					t.Fatal(err)
				}
				r := rawRig(t, argv, witness, func(c *Config) {
					c.Isolation = isolation
					c.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
				})
				_, err := r.Initialize("2025-06-18")
				r.ok(err)
				r.start("1", "tick", tickForever("k", `"deaf":true`))
				r.ok(r.Cancel("1", "enough"))
				relayed(r, r.receipt("1"))
				r.dead("k")
				r.echo()
			})
		}
	}
	t.Run("inside the tool", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, nil)
		ssh := filepath.Join(t.TempDir(), "ssh")
		r.ok(copyProgram("/bin/sleep", ssh))
		r.start("1", "shell", `{"key":"k","text":"exec `+ssh+` 100"}`)
		r.until("ssh runs", 10*time.Second, func() bool {
			return exec.Command("pgrep", "-f", ssh).Run() == nil
		})
		r.ok(r.Cancel("1", "enough"))
		relayed(r, r.receipt("1"))
		r.echo()
	})
}

func relayed(r *rig, receipt *belay.Receipt) {
	r.t.Helper()
	r.wantVerdict(receipt, belay.Signalled, belay.ScopeRemote)
	if text := timeline(receipt); !strings.Contains(text, "local process dead, remote effect unknown") || receipt.OK() {
		r.t.Errorf("the receipt does not say why:\n%s", text)
	}
}
