package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// floods measures cancels of one principal while another sends bad ones on 64
// connections, as fast as they are answered: with the default rate, which turns
// most of them away, and without one, when each is read and found wrong.
func (b *bench) floods() error {
	good := 200
	if b.quick {
		good = 50
	}
	for _, mode := range []struct {
		name        string
		orchestrate map[string]any
		pace        time.Duration
	}{
		{"no rate", unlimited(), 0},
		{"default rate, good ones at 18/s", nil, time.Second / 18}, // below the rate, which holds for everybody
	} {
		var p50, p99, bad []float64
		for range b.rounds {
			times, sent, err := b.flood(good, mode.orchestrate, mode.pace)
			if err != nil {
				return fmt.Errorf("%s: %w", mode.name, err)
			}
			p50, p99, bad = append(p50, quantile(times, 0.5)), append(p99, quantile(times, 0.99)), append(bad, sent)
		}
		what := "REST cancel beside 64 connections of bad ones, " + mode.name
		b.report.compare(what+", p50", "ms", map[string][]float64{"belay": p50})
		r := b.report.compare(what+", p99", "ms", map[string][]float64{"belay": p99})
		r.bar = "< 50"
		r.note = fmt.Sprintf("%d cancels one after the other, until each one's receipt; %.0f bad ones a second", good, median(bad))
		r.judge(r.value("belay") < 50)
	}
	return nil
}

// flood is one round: the milliseconds of each good cancel, and how many bad ones
// were answered in a second.
func (b *bench) flood(good int, orchestrate map[string]any, pace time.Duration) ([]float64, float64, error) {
	h, err := b.inHouse(good, orchestrate)
	if err != nil {
		return nil, 0, err
	}
	defer h.close()
	crank, err := startPeer(role(roleFlood, h.service.url, h.crank), b.env())
	if err != nil {
		return nil, 0, err
	}
	defer crank.close()
	if _, err := crank.line(); err != nil { // all connections are at it
		return nil, 0, fmt.Errorf("the flood: %w; stderr: %s", err, crank.err)
	}
	began := time.Now()
	var times []float64
	for _, run := range h.runs {
		took, err := restDoors[0].order(h.admin, run)
		if err != nil {
			return nil, 0, err
		}
		times = append(times, milli(took))
		time.Sleep(pace)
	}
	lasted := time.Since(began)
	_ = crank.in.Close()
	text, err := crank.line()
	if err != nil {
		return nil, 0, fmt.Errorf("the flood: %w; stderr: %s", err, crank.err)
	}
	sent, err := strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
	return times, sent / lasted.Seconds(), err
}

// badCancels is what the flood sends in turn: a run that nobody knows, bodies
// that are broken, and a selection of nothing.
var badCancels = []struct{ path, body string }{
	{"/v1/runs/run_00000000000000000000000000/cancel", `{"reason":"flood"}`},
	{"/v1/runs/x/cancel", `{"reason":`},
	{"/orchestrate/cancel", `{"requestId":`},
	{"/v1/cancel", `{"reason":"flood"}`},
}

// sendFlood sends bad cancels on 64 connections until stdin ends, and prints how
// many were answered. A first line says that all connections are at it.
func sendFlood(address, token string) error {
	var answered atomic.Int64
	var stop atomic.Bool
	errs := make([]error, inFlight)
	var wg, up sync.WaitGroup
	up.Add(inFlight)
	for n := range inFlight {
		wg.Go(func() {
			begun := sync.OnceFunc(up.Done)
			defer begun()
			c, err := openREST(address, token)
			for i := n; err == nil && !stop.Load(); i++ {
				one := badCancels[i%len(badCancels)]
				var status int
				if status, err = c.do("POST", one.path, one.body); err == nil && status/100 != 4 {
					err = fmt.Errorf("a bad cancel got status %d: %.200s", status, c.body)
				}
				answered.Add(1)
				begun()
			}
			errs[n] = err
		})
	}
	up.Wait()
	answered.Store(0)
	fmt.Println("flooding")
	_, _ = os.Stdin.Read(make([]byte, 1))
	count := answered.Load()
	stop.Store(true)
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	fmt.Println(count)
	return nil
}
