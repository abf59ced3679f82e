package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// group is one comparison.
type group struct {
	name     string
	revision string // the suite's frozen set of requirements
	side     side
	peer     peer
	known    figures
}

// peer is who is on the other side of Belay.
type peer int

const (
	goStateful  peer = iota // everything-server with sessions
	goStateless             // everything-server as 2026-07-28 has it
	reference               // the reference server, on the TypeScript SDK
	goClient
)

// side says where Belay and the peer are.
type side int

const (
	serverHTTP  side = iota // the suite calls Belay, which calls the server over HTTP
	serverStdio             // the suite calls Belay, which starts the server
	clientHTTP              // the client calls Belay, which calls the suite over HTTP
)

// figures are what a run of the suite comes to.
type figures struct{ scenarios, passed, failed, exit int }

func (f figures) String() string {
	return fmt.Sprintf("%d scenarios, %d passed, %d failed, exit %d", f.scenarios, f.passed, f.failed, f.exit)
}

// groups are all comparisons, with what the pinned versions give directly.
var groups = []group{
	{"Go server over HTTP, 2025-11-25", "2025-11-25", serverHTTP, goStateful, figures{33, 82, 0, 0}},
	{"Go server over HTTP, 2026-07-28", "2026-07-28", serverHTTP, goStateless, figures{50, 165, 30, 0}},
	{"Go server over stdio, 2025-11-25", "2025-11-25", serverStdio, goStateful, figures{33, 82, 0, 0}},
	{"Go server over stdio, 2026-07-28", "2026-07-28", serverStdio, goStateless, figures{50, 165, 30, 0}},
	{"reference server over HTTP, 2025-11-25", "2025-11-25", serverHTTP, reference, figures{33, 47, 22, 1}},
	{"reference server over stdio, 2025-11-25", "2025-11-25", serverStdio, reference, figures{33, 47, 22, 1}},
	{"Go client over HTTP, 2025-11-25", "2025-11-25", clientHTTP, goClient, figures{5, 20, 0, 0}},
	{"Go client over HTTP, 2026-07-28", "2026-07-28", clientHTTP, goClient, figures{8, 62, 0, 0}},
}

// pastBelay names the scenarios that cannot run through anything: their tokens
// are bound to the address of the suite's server.
func pastBelay(scenario string) bool { return strings.HasPrefix(scenario, "auth/") }

// result is one group, run.
type result struct {
	*group
	direct, via outcome
	differences []difference
	better      []*improvement
	problem     string // why nothing could be compared, or what the direct side is not
	took        time.Duration
}

func (r *result) ok() bool { return r.problem == "" && len(r.differences) == 0 }

// group runs the suite twice.
func (h *harness) group(g *group) *result {
	r, began := &result{group: g}, time.Now()
	defer func() { r.took = time.Since(began) }()
	dir := filepath.Join(h.dir, strings.NewReplacer(" ", "-", ",", "").Replace(g.name))
	direct, via := filepath.Join(dir, "direct"), filepath.Join(dir, "belay")
	var err, viaErr error
	if g.side == clientHTTP {
		r.direct, err = h.client(g, direct, "")
		r.via, viaErr = h.client(g, via, h.belay)
	} else {
		r.direct, r.via, err = h.server(g, direct, via)
	}
	if err = errors.Join(err, viaErr); err != nil {
		r.problem = err.Error()
		return r
	}
	if got := r.direct.figures(); got != g.known {
		r.problem = fmt.Sprintf("the direct side is not what it was: %v; known: %v", got, g.known)
	}
	r.differences, r.better = compare(r.direct, r.via)
	return r
}

// server runs the suite against a server and against Belay in front of it.
func (h *harness) server(g *group, direct, via string) (d, v outcome, err error) {
	peer, err := h.startServer(g.peer, direct)
	if err != nil {
		return d, v, err
	}
	defer peer.end()
	upstream := map[string]any{"url": peer.url}
	if g.side == serverStdio {
		upstream = h.kit.stdioServer(g.peer)
	}
	belay, err := startBelay(h.belay, upstream, via)
	if err != nil {
		return d, v, err
	}
	defer belay.end()
	if d, err = h.suite(direct, "server", "--url", peer.url, "--requirements", g.revision); err != nil {
		return d, v, err
	}
	v, err = h.suite(via, "server", "--url", belay.url, "--requirements", g.revision)
	return d, v, err
}

// client lets the suite test everything-client, with Belay behind it if there
// is one.
func (h *harness) client(g *group, dir, belay string) (outcome, error) {
	command := h.kit.client
	if belay != "" {
		var err error
		if command, err = betweenCommand(belay, h.kit.client, dir); err != nil {
			return outcome{}, err
		}
	}
	o, err := h.suite(dir, "client", "--command", command, "--requirements", g.revision)
	o.drop(pastBelay)
	return o, err
}
