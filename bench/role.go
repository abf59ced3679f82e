package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/belayhq/belay/internal/sdkfake"
)

// roleMarker is the first argument that makes this binary one of the peers of
// the HTTP figures: roleStdio and roleHTTP are the same server of the official
// Go SDK, roleProxy is the bare relay of HTTP, roleFlood a client that sends bad
// cancels, roleAgent an ACP agent, and roleRAP many tool servers of RAP.
const (
	roleMarker = "bench-peer"
	roleStdio  = "stdio"
	roleHTTP   = "http"
	roleProxy  = "proxy"
	roleFlood  = "flood"
	roleAgent  = "agent"
	roleRAP    = "rap"
	// roleRAPTool is one tool server, made of package rap.
	roleRAPTool = "rap-tool"
)

// role is a command line: a role of this binary with its two arguments.
func role(name, one, two string) []string {
	self, err := os.Executable()
	if err != nil {
		panic(err) // no system that has /proc
	}
	return []string{self, roleMarker, name, one, two}
}

// maybeRole becomes the peer that the command line asks for, and does not return
// then. Servers over HTTP print their address first and end with their stdin.
func maybeRole() {
	const words = 5
	if len(os.Args) != words || os.Args[1] != roleMarker {
		return
	}
	if err := play(os.Args[2], os.Args[3], os.Args[4]); err != nil {
		fmt.Fprintln(os.Stderr, "bench peer:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func play(name, one, two string) error {
	switch name {
	case roleStdio: // the witness file
		return sdkfake.Server(sdkfake.Options{Witness: one}).Run(context.Background(), &mcp.StdioTransport{})
	case roleHTTP: // the witness file, the era
		modern := two == eraModern
		return listen(sdkfake.Handler(sdkfake.Options{Witness: one, Stateless: modern, Propagate: modern}), "/mcp")
	case roleProxy: // the server's URL
		return proxy(one)
	case roleFlood: // the server's URL, a token
		return sendFlood(one, two)
	case roleRAP: // how many servers
		return playRAPServers(one)
	case roleRAPTool:
		return playRAPTool()
	case roleAgent:
		return playAgent(os.Stdin, os.Stdout)
	default:
		return fmt.Errorf("there is no role %q", name)
	}
}

// proxy is what net/http has for this: every byte passed on, as it comes. The
// defaults of its transport keep two idle connections per host only, which would
// measure how fast connections are made.
func proxy(target string) error {
	to, err := url.Parse(target)
	if err != nil {
		return err
	}
	out := &http.Transport{DisableCompression: true, MaxIdleConns: 4096, MaxIdleConnsPerHost: 4096}
	relay := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = to.Scheme, to.Host, to.Host
		},
		Transport:     out,
		FlushInterval: -1,
	}
	return listen(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Else an answer that comes before the transport has seen the end of the
		// request's body closes that body, and with it breaks off the exchange.
		_ = http.NewResponseController(w).EnableFullDuplex()
		relay.ServeHTTP(w, r)
	}), "/mcp")
}

// listen serves until stdin ends, and prints first where.
func listen(handler http.Handler, path string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }() // ends with the process
	fmt.Printf("http://%s%s\n", l.Addr(), path)
	ended := make(chan struct{})
	go func() { // ends with the process
		defer close(ended)
		_, _ = os.Stdin.Read(make([]byte, 1))
	}()
	select {
	case err := <-failed:
		return err
	case <-ended:
		return nil
	}
}
