package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/belayhq/belay/internal/faketool"
)

// cancel measures from the write of a cancel to the moment the server has read
// it, by the server's own word.
func (b *bench) cancel() error {
	ps, err := b.connect(b.ways("--enforce", "never"), "cancel", "-deaf=false")
	if err != nil {
		return err
	}
	defer ps.close()
	n := 200
	if b.quick {
		n = 40
	}
	round := map[string]int{}
	p99 := map[string][]float64{}
	p50, err := ps.each(b.rounds, func(name string, p *peer) (float64, error) {
		round[name]++
		times, err := b.cancels(p, b.witness("cancel-"+name), fmt.Sprintf("r%d", round[name]), n)
		p99[name] = append(p99[name], quantile(times, 0.99))
		return median(times), err
	})
	if err != nil {
		return err
	}
	b.report.compare("cancel: client writes -> server reads, p50", "us", p50)
	r := b.report.compare("cancel: client writes -> server reads, p99", "us", p99)
	r.bar = "< 1000 inside Belay"
	if r.has("belay") {
		r.note = fmt.Sprintf("inside Belay at most %.0f (belay - direct)", r.value("belay")-r.value("direct"))
	}
	r.judge(r.has("belay") && r.value("belay")-r.value("direct") < 1000)
	return nil
}

// cancels stops n calls, one after the other, and returns the microseconds
// from each write to its "signal" line.
func (b *bench) cancels(p *peer, w *faketool.Witness, prefix string, n int) ([]float64, error) {
	sent := map[string]time.Time{}
	for i := range n {
		key := fmt.Sprintf("%s-%d", prefix, i)
		id, err := p.post("tick", fmt.Sprintf(`{"key":%q,"n":100000,"ms":1000}`, key))
		if err != nil {
			return nil, err
		}
		// The server registers calls in order: when the echo is back, the tick runs.
		if _, err := p.call("echo", `{}`); err != nil {
			return nil, err
		}
		sent[key] = time.Now()
		if err := p.cancel(id); err != nil {
			return nil, err
		}
		if _, err := p.call("echo", `{}`); err != nil {
			return nil, err
		}
	}
	last := fmt.Sprintf("%s-%d", prefix, n-1)
	if _, err := w.WaitFor(last, "signal", 10*time.Second); err != nil {
		return nil, err
	}
	var times []float64
	for _, e := range w.Events() {
		if at, ok := sent[e.Key]; ok && e.Name == "signal" {
			times = append(times, micro(e.Time.Sub(at.Round(0)))) // wall clock on both sides
		}
	}
	if len(times) != n {
		return nil, fmt.Errorf("%d of %d cancels reached the server", len(times), n)
	}
	return times, nil
}

// forced measures a Stop by force: a deaf server with helpers in sessions of
// their own, all of which ignore SIGTERM or escaped from the group.
func (b *bench) forced() error {
	if b.belay == "" {
		return errors.New("needs the belay binary")
	}
	start, err := b.serverStart()
	if err != nil {
		return err
	}
	// By what killed: "cgroup" or "sweep", as the receipts say. Where no cgroup
	// can be had both halves are swept, and the row with a cgroup is missing.
	dead := map[string][]float64{}
	next := map[string][]float64{"direct": {start}}
	for i := range b.rounds * 2 {
		one, err := b.forceOnce(i, []string{"auto", "off"}[i%2])
		if err != nil {
			return err
		}
		dead[one.by] = append(dead[one.by], one.dead)
		next["belay"] = append(next["belay"], one.next)
	}
	for _, kind := range []struct {
		by, name string
		bar      float64
	}{{"cgroup", "with a cgroup", 50}, {"sweep", "without a cgroup", 100}} {
		if len(dead[kind.by]) == 0 {
			continue
		}
		r := b.report.compare("forced stop: kill step -> all dead, "+kind.name, "ms", map[string][]float64{"belay": dead[kind.by]})
		r.bar = fmt.Sprintf("<= %g", kind.bar)
		r.judge(r.value("belay") <= kind.bar)
		r.note = "by the receipt; deaf server with setsid, double-forked and SIGTERM-proof helpers"
	}
	r := b.report.compare("next call after a forced stop", "ms", next)
	r.bar = "<= the server's own start-up + 100"
	r.note = "from the death of the old process; direct: start, handshake and first call of a new server"
	r.judge(r.value("belay") <= start+100)
	return nil
}

// serverStart is the median time of a fresh direct server to its first answer.
func (b *bench) serverStart() (float64, error) {
	var times []float64
	for range 5 {
		began := time.Now()
		p, err := openPeer(b.server(""), nil)
		if err != nil {
			return 0, err
		}
		_, err = p.call("echo", `{}`)
		times = append(times, milli(time.Since(began)))
		_ = p.close()
		if err != nil {
			return 0, err
		}
	}
	return median(times), nil
}

type forcedTimes struct {
	dead, next float64 // milliseconds
	by         string  // what killed: "cgroup" or "sweep"
}

func (b *bench) forceOnce(i int, cgroup string) (forcedTimes, error) {
	name := fmt.Sprintf("forced-%d", i)
	way := b.belayWay("--enforce", "strict", "--grace", "50ms", "--cgroup", cgroup)
	p, err := openPeer(way.wrap(b.server(name, "-deaf", "-deaf-term", "-stay")), b.env())
	if err != nil {
		return forcedTimes{}, err
	}
	defer p.close()
	w := b.witness(name)
	if _, err := p.post("fork", `{"key":"k","n":100000,"ms":5,"fork":["setsid","daemon","termproof"]}`); err != nil {
		return forcedTimes{}, err
	}
	for _, how := range []string{"setsid", "daemon", "termproof"} {
		if _, err := w.WaitFor("k/"+how, "tick", 10*time.Second); err != nil {
			return forcedTimes{}, err
		}
	}
	type stopped struct {
		receipt receipt
		err     error
	}
	done := make(chan stopped, 1)
	go func() { // ends with the command, which is waited for below
		r, err := b.stopAll()
		done <- stopped{r, err}
	}()
	// The next call is made at once, not when the command has said its say.
	left := faketool.WaitDead(append(w.Pids("k/*"), w.Pids("k")...), 10*time.Second)
	_, err = p.call("echo", `{}`)
	answered := time.Now()
	stop := <-done
	if err := errors.Join(err, stop.err); err != nil {
		return forcedTimes{}, err
	}
	if len(left) > 0 {
		return forcedTimes{}, fmt.Errorf("still alive after a %s receipt: %v", stop.receipt.Verdict, left)
	}
	kill, gone := stop.receipt.killAndGone()
	if gone.IsZero() {
		return forcedTimes{}, fmt.Errorf("the receipt has no kill step followed by process_gone: %+v", stop.receipt)
	}
	return forcedTimes{dead: milli(gone.Sub(kill)), next: milli(answered.Sub(gone)), by: stop.receipt.killedBy()}, nil
}

// receipt is what this program reads of a receipt's JSON.
type receipt struct {
	Kind    string `json:"kind"`
	Verdict string `json:"verdict"`
	Steps   []struct {
		At       time.Time `json:"at"`
		Step     string    `json:"step"`
		Detail   string    `json:"detail"`
		Evidence *struct {
			Kind string `json:"kind"`
		} `json:"evidence"`
	} `json:"steps"`
}

// told is how long it took from the Stop until the run's stopper had told; false if
// it has not.
func (r receipt) told() (time.Duration, bool) {
	for _, s := range r.Steps {
		if s.Step == "told" {
			return s.At.Sub(r.Steps[0].At), true
		}
	}
	return 0, false
}

// killAndGone are the times of the kill step and of the evidence that every
// process is gone; zero if one of them is missing.
func (r receipt) killAndGone() (kill, gone time.Time) {
	for _, s := range r.Steps {
		switch {
		case s.Step == "kill" && kill.IsZero():
			kill = s.At
		case s.Evidence != nil && s.Evidence.Kind == "process_gone" && !kill.IsZero():
			return kill, s.At
		}
	}
	return kill, time.Time{}
}

// killedBy reads the means out of the evidence's text.
func (r receipt) killedBy() string {
	for _, s := range r.Steps {
		if s.Evidence != nil && strings.Contains(s.Detail, "cgroup") {
			return "cgroup"
		}
	}
	return "sweep"
}

// stopAll runs `belay cancel --all --now` and returns the receipt that has a
// kill step, else the first.
func (b *bench) stopAll() (receipt, error) {
	cmd := exec.Command(b.belay, "cancel", "--all", "--now", "--wait", "15s", "--json")
	cmd.Env = append(os.Environ(), b.env()...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return receipt{}, err
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return receipt{}, err
	}
	list, decodeErr := receipts(out)
	waitErr := cmd.Wait()
	for _, r := range list {
		if _, gone := r.killAndGone(); !gone.IsZero() {
			return r, nil
		}
	}
	if len(list) > 0 {
		return list[0], nil
	}
	return receipt{}, fmt.Errorf("belay cancel --all printed no receipt: %w", errors.Join(decodeErr, waitErr))
}

// receipts finds every object with steps in a stream of JSON values, however
// the command nests them.
func receipts(in io.Reader) ([]receipt, error) {
	var list []receipt
	dec := json.NewDecoder(in)
	for {
		var v json.RawMessage
		if err := dec.Decode(&v); err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			_, _ = io.Copy(io.Discard, in)
			return list, err
		}
		collect(v, &list)
	}
}

func collect(raw json.RawMessage, list *[]receipt) {
	var object map[string]json.RawMessage
	var array []json.RawMessage
	if json.Unmarshal(raw, &object) == nil {
		var r receipt
		if _, ok := object["steps"]; ok && json.Unmarshal(raw, &r) == nil {
			*list = append(*list, r)
			return
		}
		for _, v := range object {
			collect(v, list)
		}
	} else if json.Unmarshal(raw, &array) == nil {
		for _, v := range array {
			collect(v, list)
		}
	}
}
