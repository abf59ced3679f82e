package node

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/belayhq/belay/auth"
	"github.com/belayhq/belay/local"
	"github.com/belayhq/belay/proc"
)

// sender is a process that sends one request with a token and waits for the
// answer; as may change it before it starts.
func sender(t *testing.T, url, method, path, token, body string, as func(*exec.Cmd)) string {
	t.Helper()
	host, port, _ := strings.Cut(strings.TrimPrefix(url, "http://"), ":")
	request := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s:%s\r\nConnection: close\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		method, path, host, port, token, len(body), body)
	cmd := exec.CommandContext(t.Context(), "bash", "-c", `exec 3<>"/dev/tcp/$0/$1"; printf '%s' "$2" >&3; exec cat <&3`, host, port, request)
	cmd.Dir = "/"
	if as != nil {
		as(cmd)
	}
	out, _ := cmd.CombinedOutput() // it may have been killed
	return string(out)
}

// TestAgentThatDoesNotStay: whoever sends an order and is gone before it can be
// seen where it stood is not taken for its user (DESIGN 11, 10).
func TestAgentThatDoesNotStay(t *testing.T) {
	var asked atomic.Int32
	r := start(t, t.TempDir(), func(o *Options) {
		o.InTree = func(pid int) []string {
			asked.Add(1)
			// It was found holding the connection, and dies now.
			_ = syscall.Kill(pid, syscall.SIGKILL)
			for proc.InTree(pid) == nil {
			}
			return proc.InTree(pid)
		}
	})
	sender(t, r.url, http.MethodPost, "/v1/latch", r.token(), `{"keep":true}`, nil)
	if asked.Load() == 0 {
		t.Error("nobody has looked who asks")
	}
	if err := r.node.latch.Refuses(); err != nil {
		t.Errorf("it has turned the latch: %v", err)
	}
}

// TestTokenOfAnotherUser: this user's own token in the hands of a process of
// another user, such as one of its subordinate ones in a container, is no proof
// of its user. Reading stays.
func TestTokenOfAnotherUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can start processes of another user")
	}
	r := start(t, t.TempDir(), func(o *Options) { o.InTree = proc.InTree })
	nobody := func(c *exec.Cmd) {
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	if got := sender(t, r.url, http.MethodPost, "/v1/latch", r.token(), `{"keep":true}`, nobody); !strings.HasPrefix(got, "HTTP/1.1 403") {
		t.Errorf("the latch: %s", got)
	}
	if got := sender(t, r.url, http.MethodGet, "/v1/runs", r.token(), "", nobody); !strings.HasPrefix(got, "HTTP/1.1 200") {
		t.Errorf("reading: %s", got)
	}
	if got := sender(t, r.url, http.MethodPost, "/v1/latch", r.token(), `{"keep":true}`, nil); !strings.HasPrefix(got, "HTTP/1.1 200") {
		t.Errorf("this user: %s", got)
	}
}

// TestOverAnOwnAddress: a connection from this machine to one of its other
// addresses is looked at like one over loopback.
func TestOverAnOwnAddress(t *testing.T) {
	addrs, err := net.InterfaceAddrs()
	if err != nil || len(addrs) == 0 {
		t.Fatal(addrs, err)
	}
	at := netip.MustParseAddrPort
	elsewhere := at("198.51.100.1:7474")
	for _, a := range addrs {
		ip, _ := netip.AddrFromSlice(a.(*net.IPNet).IP)
		if !onThisMachine(local.Ends{Peer: netip.AddrPortFrom(ip, 4711), Local: elsewhere}) {
			t.Errorf("%s is this machine's", ip)
		}
	}
	for peer, own := range map[string]bool{"127.0.0.2:1": true, "[::1]:1": true, "[::ffff:127.0.0.1]:1": true, "198.51.100.1:2": true, "198.51.100.2:2": false} {
		if got := onThisMachine(local.Ends{Peer: at(peer), Local: elsewhere}); got != own {
			t.Errorf("%s: %v", peer, got)
		}
	}
	r := start(t, t.TempDir(), func(o *Options) { o.InTree = func(int) []string { return []string{"run_x"} } })
	for _, a := range addrs {
		ip := a.(*net.IPNet).IP
		l, err := net.Listen("tcp", net.JoinHostPort(ip.String(), "0"))
		if err != nil {
			continue // a link-local address wants its interface's name
		}
		cmd := exec.CommandContext(t.Context(), "bash", "-c", `exec 3<>"/dev/tcp/$0/$1"; exec sleep 60`, ip.String(), fmt.Sprint(l.Addr().(*net.TCPAddr).Port))
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		here := link{ends: local.Ends{Peer: at(c.RemoteAddr().String()), Local: at(c.LocalAddr().String())}}
		if r.node.look(&here); len(here.inside) != 1 || here.inside[0] != "run_x" {
			t.Errorf("over %s: %+v", ip, here.inside)
		}
		_, _, _, _ = c.Close(), l.Close(), cmd.Process.Kill(), cmd.Wait()
	}
}

// TestLatchFileOfAnother: a file that somebody else could have written, or that is
// none, keeps the server from starting, and does not hang it.
func TestLatchFileOfAnother(t *testing.T) {
	for name, prepare := range map[string]func(string) error{
		"pipe": func(f string) error { return syscall.Mkfifo(f, 0o600) },
		"zero": func(f string) error { return os.Symlink("/dev/zero", f) },
		"writable": func(f string) error {
			return errors.Join(os.WriteFile(f, []byte(`{"engaged":false}`), 0o600), os.Chmod(f, 0o666))
		},
		"long": func(f string) error { return os.WriteFile(f, make([]byte, maxLatchFile+1), 0o600) },
	} {
		file := filepath.Join(t.TempDir(), "latch.json")
		if err := prepare(file); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(Options{LatchFile: file}); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestWhoIsLookedAt: everybody who could have runs or turn anything is; the JSON-RPC
// doors let anybody stop their own runs.
func TestWhoIsLookedAt(t *testing.T) {
	for _, may := range auth.Permissions() {
		p, err := auth.NewPrincipal("p", auth.ByToken, may)
		if err != nil {
			t.Fatal(err)
		}
		if want := may != auth.RunsRead && may != auth.RunsReadOwn; personal(p) != want {
			t.Errorf("%s: %v", may, !want)
		}
	}
}
