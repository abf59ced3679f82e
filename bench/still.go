package main

import (
	"errors"
	"fmt"
	"time"
)

// startup measures from exec to the answer of initialize.
func (b *bench) startup() error {
	return b.startupOf("start-up: exec -> initialize answered", b.ways(), b.server(""), func(argv []string) (closer, error) {
		return openPeer(argv, b.env())
	})
}

// closer is what was started.
type closer interface{ close() error }

// startupOf measures how long each way to a peer takes to open.
func (b *bench) startupOf(what string, ways []way, peer []string, open func(argv []string) (closer, error)) error {
	values := map[string][]float64{}
	for range b.rounds * 4 {
		for _, w := range ways {
			began := time.Now()
			p, err := open(w.wrap(peer))
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			values[w.name] = append(values[w.name], milli(time.Since(began)))
			_ = p.close()
		}
	}
	r := b.report.compare(what, "ms", values)
	r.bar = "<= 30 over direct"
	if r.has("belay") {
		r.note = fmt.Sprintf("%+.1f over direct", r.value("belay")-r.value("direct"))
	}
	r.judge(r.has("belay") && r.value("belay")-r.value("direct") <= 30)
	return nil
}

// idle measures what a wrapped server costs that nobody uses.
func (b *bench) idle() error {
	ps, err := b.connect(b.ways()[1:], "")
	if err != nil {
		return err
	}
	defer ps.close()
	return idleOf(b, "", ps, "echo", "{}")
}

// idleOf lets what is in the middle fall idle, after some calls, and looks.
func idleOf[C client](b *bench, what string, ps *peers[C], tool, args string) error {
	// Belay takes itself for idle after 5 to 10 s in which nothing has passed, and gives
	// back then what it does not need for waiting.
	settle, watch := 11*time.Second, 5*time.Second
	if b.quick {
		watch = 2 * time.Second
	}
	for _, name := range ps.names {
		for range 20 {
			if _, err := ps.open[name].call(tool, args); err != nil {
				return err
			}
		}
	}
	time.Sleep(settle)
	memory, wakes := map[string][]float64{}, map[string][]float64{}
	before := map[string]float64{}
	processes := map[string]int{}
	for _, name := range ps.names {
		pids, err := middle(ps.open[name].root())
		if err != nil {
			return err
		}
		processes[name] = len(pids)
		bytes, err1 := pss(pids)
		count, err2 := wakeUps(pids)
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		memory[name] = []float64{bytes / 1e6}
		before[name] = count
	}
	time.Sleep(watch)
	for _, name := range ps.names {
		pids, _ := middle(ps.open[name].root())
		after, err := wakeUps(pids)
		if err != nil {
			return err
		}
		wakes[name] = []float64{(after - before[name]) / watch.Seconds()}
	}
	r := b.report.compare(what+"idle memory (PSS) of what is in the middle", "MB", memory)
	r.bar = "<= 15"
	r.note = fmt.Sprintf("%d processes: Belay and its guardian", processes["belay"])
	r.judge(r.has("belay") && r.value("belay") <= 15)
	r = b.report.compare(what+"idle wake-ups", "per s", wakes)
	r.bar = "none"
	r.judge(r.has("belay") && r.value("belay") < 0.5)
	return nil
}

// memory measures Belay with many calls in flight through one session.
func (b *bench) memory() error {
	const calls = 2000
	values := map[string][]float64{}
	note := ""
	for _, w := range b.ways("--enforce", "never")[1:] {
		p, err := openPeer(w.wrap(b.server("")), b.env())
		if err != nil {
			return err
		}
		for range calls {
			if _, err := p.post("tick", `{"n":100000,"ms":100000}`); err != nil {
				return err
			}
		}
		if _, err := p.call("echo", `{}`); err != nil { // all calls have passed
			return err
		}
		pids, err := middle(p.cmd.Process.Pid)
		if err != nil {
			return err
		}
		// The root is the process the client started; a guardian is its child.
		bytes, err1 := rss([]int{p.cmd.Process.Pid})
		all, err2 := rss(pids)
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		values[w.name] = []float64{bytes / 1e6}
		if w.name == "belay" {
			note = fmt.Sprintf("with the guardian %.1f MB", all/1e6)
		}
		_ = p.cmd.Process.Kill() // 2,000 calls would be cancelled one by one
		_ = p.close()
	}
	r := b.report.compare("resident memory, 2,000 calls in flight", "MB", values)
	r.bar, r.note = "< 60", note
	r.judge(r.has("belay") && r.value("belay") < 60)
	return nil
}
