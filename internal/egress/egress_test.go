package egress

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"
)

// The table of addresses: what the zero policy allows, and what a private one.
func TestAllows(t *testing.T) {
	for _, tt := range []struct {
		ip            string
		zero, private bool
	}{
		{"93.184.216.34", true, true},
		{"2606:4700::1111", true, true},
		{"127.0.0.1", true, true},
		{"::1", true, true},
		{"::ffff:127.0.0.1", true, true},
		{"10.1.2.3", false, true},
		{"192.168.0.1", false, true},
		{"fd00::1", false, true},
		{"100.64.1.1", false, true},
		{"169.254.169.254", false, false},
		{"::ffff:169.254.169.254", false, false},
		{"fe80::1%eth0", false, false},
		{"100.100.100.200", false, false},
		{"168.63.129.16", false, false},
		{"fd00:ec2::254", false, false},
		{"0.0.0.0", false, false},
		{"224.0.0.1", false, false},
		{"255.255.255.255", false, false},
		{"192.0.2.1", false, false},
		{"64:ff9b::a9fe:a9fe", false, false},
		{"2002:a9fe:a9fe::", false, false},
	} {
		ip := netip.MustParseAddr(tt.ip)
		if got := (Policy{}).Allows(ip); got != tt.zero {
			t.Errorf("%s with the zero policy: %v", ip, got)
		}
		if got := (Policy{Private: true, Plain: true}).Allows(ip); got != tt.private {
			t.Errorf("%s with a private policy: %v", ip, got)
		}
		if (Policy{Off: true, Private: true}).Allows(ip) {
			t.Errorf("%s where nothing is allowed", ip)
		}
	}
	if (Policy{NoLoopback: true}).Allows(netip.MustParseAddr("127.0.0.1")) {
		t.Error("this machine where it is not allowed")
	}
}

// What is said of a URL before anybody connects.
func TestCheck(t *testing.T) {
	for _, tt := range []struct {
		url  string
		p    Policy
		want error
	}{
		{"https://rt.acme.test/cb/1", Policy{}, nil},
		{"http://127.0.0.1:8080/cb", Policy{}, nil},
		{"http://localhost/cb", Policy{}, nil},
		{"http://rt.acme.test/cb", Policy{}, ErrPlain},
		{"http://rt.acme.test/cb", Policy{Plain: true}, nil},
		{"https://10.0.0.1/cb", Policy{}, ErrAddress},
		{"https://10.0.0.1/cb", Policy{Private: true}, nil},
		{"https://[fe80::1]/cb", Policy{Private: true}, ErrAddress},
		{"http://127.0.0.1/cb", Policy{NoLoopback: true}, ErrAddress},
		{"https://rt.acme.test/cb", Policy{Off: true}, ErrOff},
		{"file:///etc/passwd", Policy{Plain: true}, ErrURL},
		{"https://user@rt.acme.test/", Policy{}, ErrURL},
		{"rt.acme.test/cb", Policy{}, ErrURL},
	} {
		if err := tt.p.Check(tt.url); !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) {
			t.Errorf("%s with %+v: %v, want %v", tt.url, tt.p, err, tt.want)
		}
	}
}

// What is said when a connection is made.
func TestCheckDial(t *testing.T) {
	for address, ok := range map[string]bool{
		"127.0.0.1:80": true, "10.1.2.3:443": false, "169.254.169.254:80": false, "[::1]:80": true, "93.184.215.14:443": true,
		"[fd00::1]:443": false, "nonsense": false,
	} {
		if err := (Policy{}).checkDial(address, false); (err == nil) != ok {
			t.Errorf("%s: %v", address, err)
		}
	}
	if err := (Policy{}).checkDial("93.184.215.14:80", true); !errors.Is(err, ErrPlain) {
		t.Errorf("http to another machine: %v", err)
	}
}

// A name is judged by the address that it has when a connection is made, and
// nothing follows a redirect.
func TestClientLooksWhenItConnects(t *testing.T) {
	inner := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a redirect was followed") }))
	defer inner.Close()
	outer := httptest.NewServer(http.RedirectHandler(inner.URL, http.StatusTemporaryRedirect))
	defer outer.Close()
	c := Policy{}.Client(ClientOptions{Timeout: 5 * time.Second})
	resp, err := c.Post(outer.URL, "text/plain", nil)
	if err != nil || resp.StatusCode != http.StatusTemporaryRedirect {
		t.Fatalf("%v, %v", resp, err)
	}
	resp.Body.Close()
	shut := Policy{NoLoopback: true}.Client(ClientOptions{Timeout: 5 * time.Second})
	if resp, err := shut.Get(outer.URL); !errors.Is(err, ErrAddress) {
		if err == nil {
			resp.Body.Close()
		}
		t.Errorf("a forbidden address was connected to: %v", err)
	}
	named := "http://localhost:" + portOf(outer.URL)
	if resp, err := shut.Get(named); !errors.Is(err, ErrAddress) {
		if err == nil {
			resp.Body.Close()
		}
		t.Errorf("a name of a forbidden address was connected to: %v", err)
	}
}

func portOf(url string) string {
	for i := len(url) - 1; i >= 0; i-- {
		if url[i] == ':' {
			return url[i+1:]
		}
	}
	return ""
}
