package serve

import (
	"io"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"
)

// TestCrowd: one address takes half of the places, all together take all, and
// who leaves makes room.
func TestCrowd(t *testing.T) {
	t.Parallel()
	c := &crowd{most: 4, of: map[netip.Addr]int{}}
	a, b, none := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"), netip.Addr{}
	for i, tt := range []struct {
		from netip.Addr
		room bool
	}{{a, true}, {a, true}, {a, false}, {b, true}, {b, false}} {
		if got := c.enter(tt.from); got != tt.room {
			t.Errorf("%d, %s: %v", i, tt.from, got)
		}
	}
	c.leave(a) // the one that was refused
	c.leave(b)
	if !c.enter(none) {
		t.Error("no room for this user")
	}
	for _, from := range []netip.Addr{a, a, b, none} {
		c.leave(from)
	}
	if c.all != 0 || len(c.of) != 0 {
		t.Errorf("not empty: %+v", c.of)
	}
}

// TestCrowdOfConnections: connections over the bound are closed, one that is open
// is served, and closing some lets others in.
func TestCrowdOfConnections(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	c := &crowd{most: 8, of: map[netip.Addr]int{}}
	at := r.serves(ListenOptions{Address: "127.0.0.1:0"}, func(web *http.Server) { web.ConnState = c.state })
	open := make([]net.Conn, 8)
	closed := 0
	for i := range open {
		conn, err := net.Dial("tcp", at.String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		open[i] = conn
		_ = conn.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
		if n, err := conn.Read(make([]byte, 1)); n == 0 && err != nil {
			if e, ok := err.(net.Error); !ok || !e.Timeout() {
				closed++
			}
		}
	}
	if closed != 4 {
		t.Errorf("%d of 8 were closed, want 4", closed)
	}
	ask := func(conn net.Conn) string {
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		_, _ = io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: "+at.String()+"\r\nConnection: close\r\n\r\n")
		text, _ := io.ReadAll(conn)
		return string(text[:min(len(text), 12)])
	}
	if got := ask(open[0]); got != "HTTP/1.1 200" {
		t.Errorf("one that is open: %q", got)
	}
	deadline := time.Now().Add(10 * time.Second)
	for {
		conn, err := net.Dial("tcp", at.String())
		if err != nil {
			t.Fatal(err)
		}
		got := ask(conn)
		_ = conn.Close()
		if got == "HTTP/1.1 200" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("no room was made: %q", got)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
