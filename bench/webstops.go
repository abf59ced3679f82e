package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/belayhq/belay/internal/faketool"
)

// webCancels measures from the caller's word, a notification or the end of its
// connection, to the moment the server's tool sees it.
func (b *bench) webCancels(s *webScene, ps *peers[*web]) error {
	n := 100
	if b.quick {
		n = 20
	}
	round := map[string]int{}
	p99 := map[string][]float64{}
	p50, err := ps.each(b.rounds, func(name string, w *web) (float64, error) {
		round[name]++
		witness := faketool.NewWitness(b.witnessOf(s, name))
		times, err := w.cancels(witness, fmt.Sprintf("%s-r%d", name, round[name]), n)
		p99[name] = append(p99[name], quantile(times, 0.99))
		return median(times), err
	})
	if err != nil {
		return err
	}
	for name := range p99 {
		if len(p50[name]) == 0 {
			delete(p99, name)
		}
	}
	b.report.compare(s.name+" cancel: client writes or hangs up -> tool told, p50", "us", p50)
	r := b.report.compare(s.name+" cancel: client writes or hangs up -> tool told, p99", "us", p99)
	r.bar = "< 1000 inside Belay"
	r.say("inside Belay at most %.0f (belay - direct)", r.value("belay")-r.value("direct"))
	r.judge(r.value("belay")-r.value("direct") < 1000)
	return nil
}

// cancels stops n calls, one after the other, and returns the microseconds from
// each to its "stopped" line.
func (w *web) cancels(witness *faketool.Witness, prefix string, n int) ([]float64, error) {
	if err := os.WriteFile(witness.Path, nil, 0o600); err != nil {
		return nil, err
	}
	other, err := w.line(1)
	if err != nil {
		return nil, err
	}
	var times []float64
	for i := range n {
		key := fmt.Sprintf("%s-%d", prefix, i)
		id, err := w.hold(0, key)
		if err != nil {
			return nil, err
		}
		if _, err := witness.WaitFor(key, "start", limit); err != nil {
			return nil, err
		}
		sent := time.Now().Round(0) // the wall clock, as the server's
		if w.era == eraModern {
			err = w.hangUp(0)
		} else {
			err = w.notify(other, "notifications/cancelled", fmt.Sprintf(`{"requestId":%d,"reason":"bench"}`, id))
		}
		if err != nil {
			return nil, err
		}
		const patience = 5 * time.Second
		e, err := witness.WaitFor(key, "stopped", patience)
		if err != nil {
			return nil, errors.New("a cancel did not reach the server")
		}
		times = append(times, micro(e.Time.Sub(sent)))
		if w.era == eraLegacy {
			_ = w.hangUp(0) // whatever a server answers to a cancelled call
		}
	}
	return times, nil
}

// hold posts, on the n-th connection, a call that lasts until it is cancelled.
func (w *web) hold(n int, key string) (int64, error) {
	return w.begin(n, "tick", fmt.Sprintf(`{"key":%q,"hold":true}`, key))
}

// begin posts a call on the n-th connection, and reads nothing.
func (w *web) begin(n int, tool, args string) (int64, error) {
	l, err := w.line(n)
	if err != nil {
		return 0, err
	}
	id := w.seq.Add(1)
	return id, w.post(l, "tools/call", tool, w.toolCall(nil, id, tool, args))
}

// headsOut is when the heads of the responses have left in any case, which takes
// memory, too.
const headsOut = 3 * time.Second

// webMemory measures the middle with many calls in flight in one session, which
// is the first thing it does. The calls end with the connections.
func (b *bench) webMemory(s *webScene) error {
	const calls = 2000
	defer s.stop()
	ps, err := b.connectWeb(s)
	if err != nil {
		return err
	}
	defer ps.close()
	values, err := ps.each(1, func(name string, w *web) (float64, error) {
		if w.root() == 0 {
			return 0, nil
		}
		witness := faketool.NewWitness(b.witnessOf(s, name))
		if err := os.WriteFile(witness.Path, nil, 0o600); err != nil {
			return 0, err
		}
		for n := range calls {
			if _, err := w.hold(n, "memory-"+name); err != nil {
				return 0, err
			}
		}
		if _, err := witness.WaitCount("memory-"+name, "start", calls, limit); err != nil {
			return 0, err
		}
		time.Sleep(headsOut)
		bytes, err := rss([]int{w.root()})
		return bytes / 1e6, errors.Join(err, w.close())
	})
	if err != nil {
		return err
	}
	delete(values, "direct")
	r := b.report.compare(s.name+" resident memory, 2,000 calls in flight", "MB", values)
	r.note = strings.Join(ps.said, "; ")
	r.bar = "< 80; no gateway ahead"
	behind := r.ahead(-1)
	r.judge(!behind && r.value("belay") < 80)
	return nil
}
