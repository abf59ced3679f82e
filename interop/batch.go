package main

import (
	"fmt"
	"os"
	"sync"
)

// batch runs rows, some at once: they mostly wait. Each has processes, files and
// a runtime directory of its own.
type batch struct {
	slots chan struct{}
	wg    sync.WaitGroup
	lines []line
}

func newBatch(jobs int) *batch { return &batch{slots: make(chan struct{}, max(1, jobs))} }

// run starts the session of a row when there is room for it; its error becomes
// the row's problem.
func (b *batch) run(l line, r *row, name string, session func() error) {
	b.do(l, &r.problem, fmt.Sprintf("%s (%s)", name, r.way()), session)
}

// do is run for any line; problem is the line's.
func (b *batch) do(l line, problem *string, name string, session func() error) {
	b.lines = append(b.lines, l)
	b.slots <- struct{}{}
	fmt.Fprintf(os.Stderr, "interop: %s\n", name)
	b.wg.Go(func() {
		defer func() { <-b.slots }()
		if err := session(); err != nil {
			*problem = err.Error()
		}
	})
}

// addTo waits for all rows and adds them in the order in which they were started.
func (b *batch) addTo(t *table) {
	b.wg.Wait()
	for _, l := range b.lines {
		t.add(l)
	}
}
