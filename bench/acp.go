package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// acp measures `belay acp` between an editor and its agent.
func (b *bench) acp() error {
	for _, one := range []struct {
		name string
		run  func() error
	}{
		{"acp session/update", b.acpUpdates},
		{"acp throughput", b.acpThroughput},
		{"acp stop", b.acpStops},
		{"acp start-up", func() error {
			return b.startupOf("acp start-up: exec -> initialize answered", b.acpWays(), role(roleAgent, "x", "x"), func(argv []string) (closer, error) { return openACP(argv, b.env()) })
		}},
		{"acp idle", b.acpIdle},
	} {
		if err := one.run(); err != nil {
			b.report.failed(one.name, err)
		}
	}
	return nil
}

// acpWays are direct, relay and, if there is a binary, belay acp with these flags.
func (b *bench) acpWays(flags ...string) []way {
	list := b.ways()[:2]
	if b.belay != "" {
		command := slices.Concat([]string{b.belay, "acp"}, flags, []string{"--"})
		list = append(list, way{"belay", func(agent []string) []string { return slices.Concat(command, agent) }})
	}
	return list
}

// connectACP opens each way to its own agent.
func (b *bench) connectACP(ways []way) (*peers[*acpPeer], error) {
	ps := &peers[*acpPeer]{open: map[string]*acpPeer{}}
	for _, w := range ways {
		p, err := openACP(w.wrap(role(roleAgent, "x", "x")), b.env())
		if err == nil {
			err = p.session()
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("connect %s: %w", w.name, err), ps.close())
		}
		ps.add(w.name, p)
	}
	return ps, nil
}

// acpUpdates measures one update after the other, from the agent's write to the
// editor's read, while a turn with a tool call is open.
func (b *bench) acpUpdates() error {
	ps, err := b.connectACP(b.acpWays())
	if err != nil {
		return err
	}
	defer ps.close()
	for _, p := range ps.open {
		if err := p.hold(); err != nil {
			return err
		}
	}
	for _, size := range []payload{
		{"100 B chunk", "chunk", `"bytes":70`, 2000, [2]float64{100, 0}},
		{"100 B chunk after 2 ms of silence", "chunk", `"bytes":70,"after":2`, 400, [2]float64{100, 0}},
		{"tool call", "tool", `"bytes":70`, 2000, [2]float64{100, 0}},
		{"20 KB chunk", "chunk", `"bytes":20000`, 1000, [2]float64{}},
	} {
		r, err := latencyOf(b, ps, "acp session/update", size)
		if err != nil {
			return err
		}
		b.report.rows[len(b.report.rows)-1].name = "processor time per update and what asked for it, " + size.name
		r.name = "acp session/update, " + size.name + ": agent writes -> editor reads"
		if size.over[0] > 0 {
			r.bar = fmt.Sprintf("< %g over direct", size.over[0])
			r.judge(r.value("belay")-r.value("direct") < size.over[0])
		}
		if r.has("belay") {
			r.say("%+.0f over direct, %+.0f over the relay", r.value("belay")-r.value("direct"), r.value("belay")-r.value("relay"))
		}
	}
	return nil
}

// acpThroughput measures a turn that is nothing but updates.
func (b *bench) acpThroughput() error {
	ps, err := b.connectACP(b.acpWays())
	if err != nil {
		return err
	}
	defer ps.close()
	r, err := throughputOf(b, ps, "acp session/update", 50000)
	if err != nil {
		return err
	}
	r.name, r.unit = "acp session/update, 100 B chunks, as fast as the agent writes", "updates/s"
	b.report.rows[len(b.report.rows)-1].name = "processor time per update, as fast as the agent writes"
	if r.has("belay") {
		r.say("%.2f of direct, %.2f of the relay", r.value("belay")/r.value("direct"), r.value("belay")/r.value("relay"))
	}
	return nil
}

// acpStops measures from the write of a Stop to the moment in which the agent has
// read it, by the agent's own word, and to the answer of the prompt.
func (b *bench) acpStops() error {
	// Belay looks at the agent's processes before a turn and after its Stop. Nobody
	// presses Stop a hundred times in a second: each is measured by itself.
	ps, err := b.connectACP(b.acpWays("--linger", "5ms"))
	if err != nil {
		return err
	}
	defer ps.close()
	n := 100
	if b.quick {
		n = 20
	}
	p99, answered := map[string][]float64{}, map[string][]float64{}
	p50, err := ps.each(b.rounds, func(name string, p *acpPeer) (float64, error) {
		var told, ends []float64
		for range n {
			one, end, err := p.stop()
			if err != nil {
				return 0, err
			}
			told, ends = append(told, micro(one)), append(ends, milli(end))
			time.Sleep(aftermath)
		}
		p99[name] = append(p99[name], quantile(told, 0.99))
		answered[name] = append(answered[name], median(ends))
		return median(told), nil
	})
	if err != nil {
		return err
	}
	b.report.compare("acp stop: editor writes -> agent reads, p50", "us", p50)
	b.report.compare("acp stop: editor writes -> agent reads, p99", "us", p99).note = "mostly when the scheduler lets each process run"
	b.report.compare("acp stop: editor writes -> prompt answered", "ms", answered).note = "an agent that answers at once, without processes"
	if b.belay == "" {
		return nil
	}
	inside, err := b.turnsTold()
	if err != nil {
		return err
	}
	b.report.compare("acp stop: inside Belay, read -> written to the agent, p50", "us", map[string][]float64{"belay": {median(inside)}})
	r := b.report.compare("acp stop: inside Belay, read -> written to the agent, p99", "us", map[string][]float64{"belay": {quantile(inside, 0.99)}})
	r.bar = "< 1000"
	r.note = fmt.Sprintf("by the receipts of %d turns", len(inside))
	r.judge(quantile(inside, 0.99) < 1000)
	return nil
}

// turnsTold asks the Belay that runs how long it took to tell the agent of each Stop,
// in microseconds.
func (b *bench) turnsTold() ([]float64, error) {
	cmd := exec.Command(b.belay, "receipts", "--json", "--limit", "0")
	cmd.Env = append(os.Environ(), b.env()...)
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("belay receipts: %w", err)
	}
	list, err := receipts(bytes.NewReader(out))
	var times []float64
	for _, r := range list {
		if took, ok := r.told(); ok && r.Kind == "turn" {
			times = append(times, micro(took))
		}
	}
	if len(times) == 0 && err == nil {
		err = errors.New("belay receipts: no turn was told")
	}
	return times, err
}

// aftermath is when nothing of a Stop is left to be done.
const aftermath = 30 * time.Millisecond

// acpIdle measures what an agent costs that nobody speaks to.
func (b *bench) acpIdle() error {
	ps, err := b.connectACP(b.acpWays()[1:])
	if err != nil {
		return err
	}
	defer ps.close()
	for _, p := range ps.open {
		if _, _, err := p.stop(); err != nil {
			return err
		}
	}
	return idleOf(b, "acp ", ps, "chunk", `"bytes":70`)
}

// acpPeer is the leanest editor there can be.
type acpPeer struct{ *peer }

// openACP starts an agent, or what stands before it, and does the handshake.
func openACP(argv, env []string) (*acpPeer, error) {
	one, err := startPeer(argv, env)
	if err != nil {
		return nil, err
	}
	p := &acpPeer{peer: one}
	if err := p.ask("initialize", `{"protocolVersion":1,"clientCapabilities":{},"clientInfo":{"name":"bench","version":"1"}}`); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

// ask sends a request and waits for its answer.
func (p *acpPeer) ask(method, params string) error {
	id, err := p.request(method, params)
	if err != nil {
		return err
	}
	if err := p.await(id); err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	return nil
}

func (p *acpPeer) request(method, params string) (int, error) {
	p.seq++
	return p.seq, p.send(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"%s","params":%s}`, p.seq, method, params))
}

func (p *acpPeer) notify(method, params string) error {
	return p.send(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"%s","params":%s}`, method, params))
}

func (p *acpPeer) session() error {
	return p.ask("session/new", `{"cwd":"/","mcpServers":[]}`)
}

func (p *acpPeer) prompt(text string) (int, error) {
	return p.request("session/prompt", fmt.Sprintf(`{"sessionId":"s_1","prompt":[{"type":"text","text":"%s"}]}`, text))
}

// hold opens a turn and waits until its tool call is there.
func (p *acpPeer) hold() error {
	if _, err := p.prompt(promptHold); err != nil {
		return err
	}
	_, err := p.until(`"toolCallId":"tc_1"`)
	return err
}

// until reads to the line that holds the text.
func (p *acpPeer) until(text string) ([]byte, error) {
	for {
		line, err := p.line()
		if err != nil {
			return nil, fmt.Errorf("waiting for %s: %w; stderr: %s", text, err, p.err)
		}
		if bytes.Contains(line[:min(len(line), 400)], []byte(text)) {
			return line, nil
		}
	}
}

// call asks for one update, which says when it was written, and waits for it.
func (p *acpPeer) call(kind, how string) (time.Duration, error) {
	if err := p.notify("_bench/update", fmt.Sprintf(`{"kind":"%s",%s}`, kind, how)); err != nil {
		return 0, err
	}
	line, err := p.until(`"text":"sent `)
	read := time.Now()
	if err != nil {
		return 0, err
	}
	at, err := stamped(line, `"text":"sent `)
	return read.Round(0).Sub(at), err // wall clock on both sides
}

// pump has the agent write so many updates in one turn.
func (p *acpPeer) pump(calls int) (time.Duration, error) {
	began := time.Now()
	id, err := p.prompt(fmt.Sprintf("%s %d", promptBurst, calls))
	if err != nil {
		return 0, err
	}
	n := 0
	for {
		line, err := p.line()
		if err != nil {
			return 0, err
		}
		switch head := line[:min(len(line), 200)]; {
		case bytes.Contains(head, []byte(`"session/update"`)):
			n++
		case bytes.Contains(head, fmt.Appendf(nil, `"id":%d,`, id)):
			if n != calls {
				return 0, fmt.Errorf("%d of %d updates arrived", n, calls)
			}
			return time.Since(began), nil
		}
	}
}

// stop stops one turn: how long until the agent was told, by its word, and until
// the prompt was answered.
func (p *acpPeer) stop() (told, answered time.Duration, err error) {
	if err := p.hold(); err != nil {
		return 0, 0, err
	}
	began := time.Now()
	if err := p.notify("session/cancel", `{"sessionId":"s_1"}`); err != nil {
		return 0, 0, err
	}
	line, err := p.until(`"text":"told `)
	if err != nil {
		return 0, 0, err
	}
	at, err := stamped(line, `"text":"told `)
	if err != nil {
		return 0, 0, err
	}
	if _, err := p.until(`"stopReason":"cancelled"`); err != nil {
		return 0, 0, err
	}
	return at.Sub(began.Round(0)), time.Since(began), nil
}

// stamped is the time behind the text.
func stamped(line []byte, text string) (time.Time, error) {
	_, after, _ := strings.Cut(string(line[:min(len(line), 400)]), text)
	word, _, _ := strings.Cut(after, `"`)
	word, _, _ = strings.Cut(word, " ")
	n, err := strconv.ParseInt(word, 10, 64)
	return time.Unix(0, n), err
}
