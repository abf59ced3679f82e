package local

import (
	"bufio"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"
)

// accepted is the server's view of a connection that open makes.
func accepted(t *testing.T, network, address string, open func(to string)) net.Conn {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	open(l.Addr().String())
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func endsOf(t *testing.T, c net.Conn) Ends {
	t.Helper()
	peer, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	own, err := netip.ParseAddrPort(c.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	return Ends{Peer: peer, Local: own}
}

// TestHoldersOf names the process at the other end of a connection over
// loopback, and nobody once it has gone.
func TestHoldersOf(t *testing.T) {
	for _, at := range []struct{ network, address string }{{"tcp4", "127.0.0.1:0"}, {"tcp6", "[::1]:0"}} {
		t.Run(at.network, func(t *testing.T) {
			var cmd *exec.Cmd
			c := accepted(t, at.network, at.address, func(to string) {
				host, port, _ := net.SplitHostPort(to)
				// A shell that keeps a connection open until its input ends.
				cmd = exec.Command("bash", "-c", `exec 3<>"/dev/tcp/$0/$1"; echo ready; read -r _`, host, port)
				in, err := cmd.StdinPipe()
				if err != nil {
					t.Fatal(err)
				}
				out, err := cmd.StdoutPipe()
				if err != nil {
					t.Fatal(err)
				}
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { in.Close(); cmd.Wait() })
				if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
					t.Fatal(err)
				}
			})
			h := HoldersOf(endsOf(t, c))
			if !h.Known || h.UID != os.Getuid() || !slices.Contains(h.Pids, cmd.Process.Pid) {
				t.Fatalf("holders %+v, want pid %d", h, cmd.Process.Pid)
			}
			cmd.Process.Kill()
			cmd.Process.Wait()
			deadline := time.Now().Add(5 * time.Second)
			for len(HoldersOf(endsOf(t, c)).Pids) > 0 {
				if time.Now().After(deadline) {
					t.Fatalf("a dead process still holds the connection: %+v", HoldersOf(endsOf(t, c)))
				}
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
}

// TestHoldersOfElsewhere knows nothing of connections from other machines, and
// of what is none.
func TestHoldersOfElsewhere(t *testing.T) {
	own := netip.MustParseAddrPort("127.0.0.1:1")
	for _, peer := range []string{"192.0.2.7:4711", "127.0.0.1:2"} {
		if h := HoldersOf(Ends{Peer: netip.MustParseAddrPort(peer), Local: own}); h.Known || h.Pids != nil {
			t.Errorf("%s: %+v", peer, h)
		}
	}
}

// TestHoldersShareReadings: many who ask at once are answered by few looks, each
// of which began after its asker came.
func TestHoldersShareReadings(t *testing.T) {
	c := accepted(t, "tcp4", "127.0.0.1:0", func(to string) {
		host, port, _ := net.SplitHostPort(to)
		cmd := exec.CommandContext(t.Context(), "bash", "-c", `exec 3<>"/dev/tcp/$0/$1"; exec sleep 60`, host, port)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	})
	ends := endsOf(t, c)
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			if h := HoldersOf(ends); !h.Known || len(h.Pids) != 1 {
				t.Errorf("%+v", h)
			}
		})
	}
	wg.Wait()
}
