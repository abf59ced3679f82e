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

// run starts a row when there is room for it.
func (b *batch) run(l line, name, way string, session func()) {
	b.lines = append(b.lines, l)
	b.slots <- struct{}{}
	fmt.Fprintf(os.Stderr, "interop: %s (%s)\n", name, way)
	b.wg.Go(func() {
		defer func() { <-b.slots }()
		session()
	})
}

// addTo waits for all rows and adds them in the order in which they were started.
func (b *batch) addTo(t *table) {
	b.wg.Wait()
	for _, l := range b.lines {
		t.add(l)
	}
}
