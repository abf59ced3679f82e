package main

import (
	"errors"
	"fmt"
	"strings"
)

// webWay is one way from an HTTP caller to a server: how the middle is started,
// nil for none, and the server's own address, "" when the middle starts it.
type webWay struct {
	name  string
	start func() (*service, error)
	url   string
	token string // the caller's; empty: it says nothing of itself
}

// webScene is a group of rows: a kind of server and an era.
type webScene struct {
	name  string
	era   string
	stdio bool // the server is a command
	fake  bool // that is the lean one of faketool, and not that of the SDK
	ways  func(s *webScene, url string, ps *peers[*web]) []webWay
	all   []*service
}

// http measures HTTP callers before both kinds of servers, in both eras.
func (b *bench) http() error {
	if b.belay == "" {
		return errors.New("needs the belay binary")
	}
	for _, s := range []webScene{
		{name: "HTTP -> stdio", stdio: true},
		{name: "HTTP -> lean stdio", stdio: true, fake: true},
		{name: "HTTP -> HTTP"},
	} {
		for _, era := range []string{eraLegacy, eraModern} {
			one := s
			one.name, one.era, one.ways = s.name+" "+era, era, b.webWays
			if err := b.scene(&one); err != nil {
				b.report.failed(one.name, err)
			}
			if s.fake {
				continue
			}
			if err := b.webMemory(&one); err != nil {
				b.report.failed(one.name+" memory", err)
			}
		}
	}
	return nil
}

// scene measures one group of rows.
func (b *bench) scene(s *webScene) error {
	return b.webCalls(s,
		func(r *row) { s.judge(r, -1, 1.1, 1.15) },
		func(r *row) { s.judge(r, 1, 1.2, 0.85) },
		func(ps *peers[*web]) error {
			if s.fake {
				return nil
			}
			return b.webCancels(s, ps)
		})
}

// webCalls measures calls of a scene, one at a time and 64 at once, has both rows
// judged, and goes on with what more there is to measure on the same connections.
func (b *bench) webCalls(s *webScene, latency, throughput func(*row), more func(*peers[*web]) error) error {
	defer s.stop()
	ps, err := b.connectWeb(s)
	if err != nil {
		return err
	}
	defer ps.close()
	r, err := latencyOf(b, ps, s.name, payload{name: "100 B", tool: "echo", args: `{"text":"` + strings.Repeat("x", 70) + `"}`, calls: 1000})
	if err != nil {
		return err
	}
	latency(r)
	if r, err = throughputOf(b, ps, s.name, 5000); err != nil {
		return err
	}
	throughput(r)
	return more(ps)
}

// stop ends everything that was started for the rows.
func (s *webScene) stop() {
	for _, one := range s.all {
		one.stop()
	}
	s.all = nil
}

// judge compares with the direct server, for servers on stdio, or with the plain
// proxy, and with the other gateways; sign is 1 where more is better.
func (s *webScene) judge(r *row, sign, stdio, remote float64) {
	beside, factor := "relay", remote
	if s.stdio {
		beside, factor = "direct", stdio
	}
	r.bar = fmt.Sprintf("<= %g x the %s", factor, beside)
	if sign > 0 {
		r.bar = fmt.Sprintf(">= %g x the %s", factor, beside)
	}
	if s.stdio {
		r.bar += "; no gateway ahead"
	}
	ratio := r.value("belay") / r.value(beside)
	r.say("%.2f of %s", ratio, beside)
	behind := r.ahead(sign)
	r.judge(!behind && sign*ratio >= sign*factor)
}

// witnessOf is the witness file of the server behind one way.
func (b *bench) witnessOf(s *webScene, way string) string {
	if way == "direct" || !s.stdio {
		way = "http" // one server behind all ways
	}
	return b.witness(fmt.Sprintf("web-%v-%s-%s", s.stdio, s.era, way)).Path
}

// connectWeb starts the servers and what stands before them, and opens each way.
func (b *bench) connectWeb(s *webScene) (*peers[*web], error) {
	server, err := b.serve(role(roleHTTP, b.witnessOf(s, "direct"), s.era), printed)
	if err != nil {
		return nil, err
	}
	s.all = append(s.all, server)
	ps := &peers[*web]{open: map[string]*web{}}
	for _, w := range s.ways(s, server.url, ps) {
		mid, address := (*service)(nil), w.url
		if w.start != nil {
			if mid, err = w.start(); err == nil {
				s.all = append(s.all, mid)
				address = mid.url
			}
		}
		var c *web
		if err == nil {
			c, err = openWeb(w.name, address, s.era, w.token, mid)
		}
		switch {
		case err == nil:
			ps.add(w.name, c)
		case w.name == supergateway || w.name == mcpProxy:
			ps.drop(w.name, err)
			err = nil
		default:
			return nil, errors.Join(fmt.Errorf("connect %s: %w", w.name, err), ps.close())
		}
	}
	return ps, nil
}

// command is the server on stdio behind one way.
func (b *bench) command(s *webScene, way string) []string {
	if s.fake {
		return b.server("")
	}
	return role(roleStdio, b.witnessOf(s, way), "x")
}

func (b *bench) webWays(s *webScene, url string, ps *peers[*web]) []webWay {
	ways := []webWay{{name: "direct", url: url}}
	if !s.stdio {
		return append(ways,
			webWay{name: "relay", start: func() (*service, error) { return b.serve(role(roleProxy, url, "x"), printed) }},
			webWay{name: "belay", start: func() (*service, error) { return b.belayServe(nil, url, nil) }})
	}
	command := func(way string) []string { return b.command(s, way) }
	ways = append(ways, webWay{name: "belay", start: func() (*service, error) { return b.belayServe(command("belay"), "", nil) }})
	if b.installGateways() == "" {
		ps.said = append(ps.said, "other gateways: npm is not reachable")
		return ways
	}
	for _, name := range []string{supergateway, mcpProxy} {
		ways = append(ways, webWay{name: name, start: func() (*service, error) { return b.gateway(name, command(name)) }})
	}
	return ways
}
