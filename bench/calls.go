package main

import (
	"fmt"
	"slices"
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
		r, err := latencyOf(b, ps, "stdio", size)
		if err != nil {
			return err
		}
		if size.over[0] > 0 {
			r.bar = "<= 60 over direct or <= 40 over the relay"
			r.judge(r.value("belay")-r.value("direct") <= 60 || r.value("belay")-r.value("relay") <= 40)
		}
		if r.has("belay") {
			r.say("%+.0f over direct, %+.0f over the relay", r.value("belay")-r.value("direct"), r.value("belay")-r.value("relay"))
		}
	}
	return nil
}

// latencyOf adds the row of one call at a time, and that of its processor time.
func latencyOf[C client](b *bench, ps *peers[C], what string, size payload) (*row, error) {
	if b.quick {
		size.calls /= 5
	}
	used := map[string]time.Duration{}
	values, err := ps.each(b.rounds, func(name string, p C) (float64, error) {
		calls := fewer(name, size.calls)
		for range calls/10 + 1 { // warm up
			if _, err := p.call(size.tool, size.args); err != nil {
				return 0, err
			}
		}
		pids, _ := middle(p.root())
		before := processorTime(pids)
		var times []float64
		for range calls {
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
		return nil, err
	}
	r := b.report.compare(what+" latency, "+size.name+" result", "us", values)
	r.note = strings.Join(ps.said, "; ")
	b.processor(what+", one at a time, "+size.name, used, values, size.calls)
	return r, nil
}

// fewer is how many calls a way makes where Belay makes so many: other people's
// gateways would take minutes.
func fewer(name string, calls int) int {
	if slices.Contains(gatewayNames, name) {
		return max(calls/10, 1)
	}
	return calls
}

// processor adds the row of processor time for each call in the middle, for the
// ways that were measured, with so many calls in each round.
func (b *bench) processor(what string, used map[string]time.Duration, measured map[string][]float64, calls int) {
	values := map[string][]float64{}
	for name, rounds := range measured {
		if name != "direct" { // nothing is in the middle there
			values[name] = []float64{micro(used[name]) / float64(len(rounds)*fewer(name, calls))}
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
	r, err := throughputOf(b, ps, "stdio", 20000)
	if err != nil {
		return err
	}
	r.bar = ">= 0.75 of direct"
	r.judge(r.value("belay") >= 0.75*r.value("direct"))
	if r.has("belay") {
		r.say("%.2f of direct, %.2f of the relay", r.value("belay")/r.value("direct"), r.value("belay")/r.value("relay"))
	}
	return nil
}

// throughputOf adds the row of 64 calls in flight, and that of its processor
// time.
func throughputOf[C client](b *bench, ps *peers[C], what string, calls int) (*row, error) {
	if b.quick {
		calls /= 5
	}
	used := map[string]time.Duration{}
	values, err := ps.each(b.rounds, func(name string, p C) (float64, error) {
		calls := fewer(name, calls)
		if _, err := p.pump(calls / 10); err != nil {
			return 0, err
		}
		pids, _ := middle(p.root())
		before := processorTime(pids)
		took, err := p.pump(calls)
		used[name] += processorTime(pids) - before
		return float64(calls) / took.Seconds(), err
	})
	if err != nil {
		return nil, err
	}
	r := b.report.compare(what+" throughput, 64 in flight, 100 B", "calls/s", values)
	r.note = strings.Join(ps.said, "; ")
	b.processor(what+", 64 in flight", used, values, calls)
	return r, nil
}

// pump makes so many calls with 64 in flight and returns how long it took.
func (p *peer) pump(calls int) (time.Duration, error) {
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
