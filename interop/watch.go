package main

import (
	"os"
	"slices"
	"time"

	"github.com/belayhq/belay/internal/faketool"
)

// observe watches the witness after a Stop and fills in what the work did. It
// ends as soon as every process of the call is dead, else after the watching
// time.
func (r *row) observe(w *faketool.Witness, key string, stop time.Time) {
	var pids []int
	for _, e := range w.Of(key, "tick") {
		if !slices.Contains(pids, e.Pid) && !e.Time.After(stop) {
			pids = append(pids, e.Pid)
		}
	}
	if left := time.Until(stop.Add(watch)); left > 0 {
		faketool.WaitDead(pids, left)
	}
	last := w.LastTick(key)
	r.stop, r.wentOn = stop, max(0, last.Sub(stop))
	for _, pid := range pids {
		if faketool.Alive(pid) {
			r.alive = append(r.alive, pid)
		}
	}
	r.stillAt = len(r.alive) > 0 && time.Since(last) < 500*time.Millisecond && r.wentOn > watch/2
}

// sweep ends what a row left behind: processes that this run has started, by
// the pids they wrote into the witness.
func sweep(w *faketool.Witness) {
	for _, pid := range faketool.WaitDead(pidsOf(w), time.Second) {
		if p, err := os.FindProcess(pid); err == nil {
			_ = p.Kill()
		}
	}
}

// pidsOf lists the processes that wrote into a witness.
func pidsOf(w *faketool.Witness) []int {
	var pids []int
	for _, e := range w.Events() {
		if !slices.Contains(pids, e.Pid) {
			pids = append(pids, e.Pid)
		}
	}
	return pids
}
