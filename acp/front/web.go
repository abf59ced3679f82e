package front

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/belayhq/belay"
	"github.com/belayhq/belay/internal/config"
	"github.com/belayhq/belay/mcp/httpserver"
	"github.com/belayhq/belay/serve"
)

// labelServer is the label of the runs of servers that are reached by HTTP, by
// which [Front.Calls] knows them: the name of the entry.
const labelServer = "mcp_server"

var (
	errNoSocket = errors.New("no local socket")
	errNoListen = errors.New("no loopback listener")
)

// open gives a server a path of the session, and returns its URL.
func (f *Front) open(ctx context.Context, run *belay.Run, e *entry) (string, error) {
	base, err := f.listener(ctx)
	if err != nil {
		f.o.Log.Warn("MCP servers that are reached by HTTP cannot be put behind Belay", "error", err)
		return "", errNoListen
	}
	if path := f.known(run, e); path != "" { // session/load of a session that lives
		return base + path + e.below(), nil
	}
	name := cmp.Or(e.name, "server")
	d := serve.Definition{Server: config.New(name, f.o.Policy)}
	d.URL, d.Headers = e.address, e.header
	d.Labels = map[string]string{labelServer: cutLabel(name)}
	if e.kind == sse {
		d.Transport = config.Some("sse")
	}
	path := strings.ToLower(rand.Text()) // 130 bits
	lone, err := serve.NewLone(serve.Options{
		Tree: f.o.Tree, Parent: run.ID(), Owner: f.o.Owner, Log: f.o.Log, Facts: f.o.Facts,
		Placer: spot{f, run.ID(), e.name},
	}, d, "/"+path)
	if err != nil {
		return "", err
	}
	if err := f.add(run, &site{path: path, name: name, of: *e, lone: lone}); err != nil {
		_ = lone.Close(ctx, belay.Cancellation{Cause: belay.CauseShutdown})
		return "", err
	}
	return base + path + e.below(), nil
}

// below is what an agent asks for below the path: that of the one stream.
func (e *entry) below() string {
	if e.kind == sse {
		return "/sse"
	}
	return ""
}

// known is the path that an entry of the session has already; "": none.
func (f *Front) known(run *belay.Run, e *entry) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.sessions[run.ID()]
	if s == nil {
		return ""
	}
	for _, site := range s.sites {
		if site.of.kind == e.kind && site.of.name == e.name && site.of.address == e.address && maps.Equal(site.of.header, e.header) {
			return site.path
		}
	}
	return ""
}

// cutLabel is a name as a label takes it.
func cutLabel(name string) string {
	if len(name) > maxName {
		name = strings.ToValidUTF8(name[:maxName], "")
	}
	return cmp.Or(belay.CleanReason(name), "server")
}

func (f *Front) add(run *belay.Run, s *site) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	of, err := f.sessionLocked(run)
	if err != nil {
		return err
	}
	if len(of.sites) >= maxSites {
		return fmt.Errorf("%w: the session has %d servers that are reached by HTTP", belay.ErrTooMany, maxSites)
	}
	of.sites = append(of.sites, s)
	f.sites[s.path] = s
	return nil
}

// listener is the URL of this process's listener, with a slash; it is made when
// it is first needed.
func (f *Front) listener(ctx context.Context) (string, error) {
	f.listen.Lock()
	defer f.listen.Unlock()
	f.mu.Lock()
	base, closed := f.base, f.closed
	f.mu.Unlock()
	if base != "" || closed {
		return base, nil // whoever is closed adds nothing
	}
	l, err := serve.Listen(ctx, serve.ListenOptions{Address: "127.0.0.1:0"})
	if err != nil {
		return "", err
	}
	base = "http://" + l.Addr().String() + "/"
	server, served := serve.NewServer(http.HandlerFunc(f.serveHTTP), f.o.Log), make(chan struct{})
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		_ = l.Close()
		return base, nil
	}
	f.base, f.http, f.served = base, server, served
	go func() { // End waits for it
		defer close(served)
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			f.o.Log.Error("the listener of MCP servers has ended", "error", err)
		}
	}()
	return base, nil
}

// unreadWait is how long a body may take that nobody wants.
const unreadWait = 5 * time.Second

// serveHTTP leads to the server of a path. Nobody learns which paths there are.
func (f *Front) serveHTTP(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 { // who reads the body sets a limit of its own
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(unreadWait))
	}
	var guard httpserver.Guard // loopback names alone
	if err := guard.Check(r); err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	path, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	f.mu.Lock()
	s := f.sites[path]
	f.mu.Unlock()
	if s == nil {
		http.Error(w, "nothing is served at this path; the session may have ended", http.StatusNotFound)
		return
	}
	s.lone.ServeHTTP(w, r)
}
