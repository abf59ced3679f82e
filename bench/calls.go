package main

import (
	"fmt"
	"strings"
	"time"
)

// payload is one size of result in the latency table.
type payload struct {
	name       string
	tool, args string
	calls      int // in each round
	over       [2]float64
}

// latency measures one call after the other.
func (b *bench) latency() error {
	text := strings.Repeat("x", 70) // with its frame about 100 B
	sizes := []payload{
		{"100 B", "echo", `{"text":"` + text + `"}`, 2000, [2]float64{60, 40}},
		{"20 KB", "bigresult", `{"bytes":20000}`, 1000, [2]float64{}},
		{"2 MB", "bigresult", `{"bytes":2000000}`, 40, [2]float64{}},
	}
	ps, err := b.connect(b.ways("--enforce", "never"), "")
	if err != nil {
		return err
	}
	defer ps.close()
	for _, size := range sizes {
		if b.quick {
			size.calls /= 5
		}
		if err := b.latencyOf(ps, size); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) latencyOf(ps *peers, size payload) error {
	used := map[string]time.Duration{}
	values, err := ps.each(b.rounds, func(name string, p *peer) (float64, error) {
		for range size.calls/10 + 1 { // warm up
			if _, err := p.call(size.tool, size.args); err != nil {
				return 0, err
			}
		}
		pids, _ := middle(p.cmd.Process.Pid)
		before := processorTime(pids)
		var times []float64
		for range size.calls {
			took, err := p.call(size.tool, size.args)
			if err != nil {
				return 0, err
			}
			times = append(times, micro(took))
		}
		used[name] += processorTime(pids) - before
		return median(times), nil
	})
	if err != nil {
		return err
	}
	r := b.report.compare("stdio latency, "+size.name+" result", "us", values)
	if size.over[0] > 0 {
		r.bar = "<= 60 over direct or <= 40 over the relay"
		r.judge(r.has("belay") && (r.value("belay")-r.value("direct") <= 60 || r.value("belay")-r.value("relay") <= 40))
	}
	if r.has("belay") {
		r.note = fmt.Sprintf("%+.0f over direct, %+.0f over the relay", r.value("belay")-r.value("direct"), r.value("belay")-r.value("relay"))
	}
	b.processor("one at a time, "+size.name, used, b.rounds*size.calls)
	return nil
}

// processor adds the row of processor time for each call in the middle.
func (b *bench) processor(what string, used map[string]time.Duration, calls int) {
	values := map[string][]float64{}
	for name, d := range used {
		if name != "direct" { // nothing is in the middle there
			values[name] = []float64{micro(d) / float64(calls)}
		}
	}
	b.report.compare("processor time per proxied call, "+what, "us", values).note = "user + system of everything between client and server"
}

const inFlight = 64

// throughput keeps 64 calls in flight.
func (b *bench) throughput() error {
	ps, err := b.connect(b.ways("--enforce", "never"), "")
	if err != nil {
		return err
	}
	defer ps.close()
	calls := 20000
	if b.quick {
		calls = 4000
	}
	used := map[string]time.Duration{}
	values, err := ps.each(b.rounds, func(name string, p *peer) (float64, error) {
		if _, err := pump(p, calls/10); err != nil {
			return 0, err
		}
		pids, _ := middle(p.cmd.Process.Pid)
		before := processorTime(pids)
		took, err := pump(p, calls)
		used[name] += processorTime(pids) - before
		return float64(calls) / took.Seconds(), err
	})
	if err != nil {
		return err
	}
	r := b.report.compare("stdio throughput, 64 in flight, 100 B", "calls/s", values)
	r.bar = ">= 0.75 of direct"
	r.judge(r.has("belay") && r.value("belay") >= 0.75*r.value("direct"))
	if r.has("belay") {
		r.note = fmt.Sprintf("%.2f of direct, %.2f of the relay", r.value("belay")/r.value("direct"), r.value("belay")/r.value("relay"))
	}
	b.processor("64 in flight", used, b.rounds*calls)
	return nil
}

// pump makes so many calls with 64 in flight and returns how long it took.
func pump(p *peer, calls int) (time.Duration, error) {
	args := `{"text":"` + strings.Repeat("x", 70) + `"}`
	start := time.Now()
	sent, back := 0, 0
	for ; sent < min(inFlight, calls); sent++ {
		if _, err := p.post("echo", args); err != nil {
			return 0, err
		}
	}
	for back < calls {
		id, failed, err := p.next()
		if err != nil {
			return 0, err
		}
		if failed != "" {
			return 0, fmt.Errorf("a call failed: %s", failed)
		}
		if id == 0 {
			continue
		}
		back++
		if sent < calls {
			sent++
			if _, err := p.post("echo", args); err != nil {
				return 0, err
			}
		}
	}
	return time.Since(start), nil
}
