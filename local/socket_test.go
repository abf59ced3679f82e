package local

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/calm"
)

// deadPid is the pid of a process that has ended.
func deadPid(t *testing.T) int {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	must(t, cmd.Run())
	return cmd.Process.Pid
}

// leftover makes a socket at which nobody listens any more.
func leftover(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	must(t, err)
	l.SetUnlinkOnClose(false)
	must(t, l.Close())
}

// listener is a socket of somebody who is no Belay; talk serves a connection.
func listener(t *testing.T, path string, talk func(net.Conn)) {
	t.Helper()
	l, err := net.Listen("unix", path)
	must(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			talk(c)
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
}

// Stale sockets go away in silence; a living process's is left alone even if
// it refuses for a moment; our own pid's leftover does not keep us from
// listening.
func TestStaleSockets(t *testing.T) {
	dir := privateDir(t)
	dead := filepath.Join(dir, fmt.Sprintf("%d.sock", deadPid(t)))
	own := filepath.Join(dir, fmt.Sprintf("%d.sock", os.Getpid()))
	reused := filepath.Join(dir, fmt.Sprintf("%d-1.sock", os.Getpid()))
	leftover(t, dead)
	leftover(t, own)
	leftover(t, reused)
	long := time.Now().Add(-240 * time.Hour) // made by an earlier process of the same pid
	must(t, os.Chtimes(reused, long, long))
	s, tree := serve(t, Options{Dir: dir})
	if s.Path() != own {
		t.Errorf("listens at %s, want %s", s.Path(), own)
	}
	startRun(tree, "x", belay.RunID{}, "")
	list, err := NewMesh(MeshOptions{Dirs: []string{dir}}).List(t.Context(), belay.Filter{})
	if err != nil || len(list) != 1 {
		t.Errorf("List = %v, %v", list, err)
	}
	for _, path := range []string{dead, reused} {
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there (%v)", path, err)
		}
	}
	young := filepath.Join(dir, fmt.Sprintf("%d.sock", os.Getppid()))
	leftover(t, young)
	_, err = NewMesh(MeshOptions{Dirs: []string{dir}}).List(t.Context(), belay.Filter{})
	if _, statErr := os.Lstat(young); statErr != nil || !errors.Is(err, belay.ErrUnreachable) {
		t.Errorf("a living process's socket: %v, %v; want it kept and told", statErr, err)
	}
}

// A second server of one process finds a name of its own.
func TestTwoServers(t *testing.T) {
	dir := privateDir(t)
	a, _ := serve(t, Options{Dir: dir})
	b, _ := serve(t, Options{Dir: dir})
	if a.Path() == b.Path() {
		t.Errorf("both at %s", a.Path())
	}
}

// Foreign sockets: one error each, bounded in time; everything else goes on
// (the "Bad input").
func TestForeignSockets(t *testing.T) {
	dir := privateDir(t)
	_, tree := serve(t, Options{Dir: dir})
	startRun(tree, "fine", belay.RunID{}, "")
	stop := make(chan struct{})
	at := func(name string) string { return filepath.Join(dir, name) }
	listener(t, at("1001.sock"), func(c net.Conn) { fmt.Fprintln(c, "220 mail.example ready") })
	listener(t, at("1002.sock"), func(c net.Conn) { <-stop })
	listener(t, at("1003.sock"), func(c net.Conn) { fmt.Fprint(c, strings.Repeat("x", 5<<20)) })
	listener(t, at("1004.sock"), func(c net.Conn) { fmt.Fprintln(c, `{"belay":99,"pid":7,"version":"v99"}`) })
	listener(t, at("1005.sock"), func(c net.Conn) {
		fmt.Fprintln(c, `{"belay":1,"pid":8}`)
		_, _ = bufio.NewReader(c).ReadString('\n')
		fmt.Fprintln(c, "rubbish")
	})
	listener(t, at("1006.sock"), func(c net.Conn) {})
	must(t, os.WriteFile(at("1007.sock"), nil, 0o600), os.WriteFile(at("README"), nil, 0o600))
	want := map[string]string{
		"1001": "no Belay process", "1002": "does not answer", "1003": "no Belay process", "1004": "version 99",
		"1005": "cannot be understood", "1006": "went away", "1007": "not a socket",
	}
	if os.Getuid() == 0 {
		leftover(t, at("1008.sock"))
		must(t, os.Chown(at("1008.sock"), 12345, 12345))
		want["1008"] = "uid 12345"
	}
	m := NewMesh(MeshOptions{Dirs: []string{dir}, Timeout: 700 * time.Millisecond})
	w, start := calm.Start(t), time.Now()
	list, err := m.List(t.Context(), belay.Filter{})
	w.Within(t, time.Since(start), 3*time.Second, "the list")
	close(stop)
	if len(list) != 1 {
		t.Errorf("List = %v, want the one run", list)
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != len(want) {
		t.Errorf("%d lines, want %d:\n%v", len(lines), len(want), err)
	}
	for name, text := range want {
		found := 0
		for _, l := range lines {
			if strings.Contains(l, text) && (strings.Contains(l, name) || strings.Contains(l, "process 7") || strings.Contains(l, "process 8")) {
				found++
			}
		}
		if found == 0 {
			t.Errorf("no line about %s with %q in:\n%v", name, text, err)
		}
	}
	results, err := m.Cancel(t.Context(), belay.CancelRequest{Cancellation: belay.Cancellation{Cause: belay.CauseUser}, Wait: -1})
	if len(results) != 1 || !results[0].Receipt.OK() {
		t.Errorf("Cancel = %+v, %v", results, err)
	}
}
