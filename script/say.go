package script

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// Bounds of what a call says while it runs. A script that floods is heard as one that
// speaks: it slows nobody down and fills nothing up.
const (
	MaxConsole      = 1 << 20 // bytes of its console's lines
	MaxConsoleLines = 10_000

	reportBurst = 50                    // replaced reports in a row
	reportPace  = 50 * time.Millisecond // between two of them later
)

// speech counts what a call has said. It belongs to the call's goroutine.
type speech struct {
	lines, bytes int // of the console
	dropped      bool

	known   map[string]bool   // ids of reports
	last    string            // the newest of them
	held    map[string]string // what will be said later, by id
	room    int               // replaced reports that may be said now
	paced   time.Time         // when room was last made
	waiting bool              // a job will say what is held
}

// print is a line of the script's console (AT-73).
func (c *Call) print(level, message string) {
	message = cut(message)
	s := &c.said
	s.lines++
	s.bytes += len(message)
	switch {
	case s.lines <= MaxConsoleLines && s.bytes <= MaxConsole:
		c.log(level, message)
	case !s.dropped:
		s.dropped = true
		c.log("warn", fmt.Sprintf("the console of this call is full (%d lines or %d bytes): the rest is left out", MaxConsoleLines, MaxConsole))
	}
}

// report passes progress on while the call runs (AT-54); of more different reports
// than a call may have, the later ones replace the last. Of those that replace an
// earlier one too fast only the newest is said, a moment later or at the end.
func (c *Call) report(message, id string) {
	c.show(message)
	if c.options.Report == nil || c.phase == finished || c.isCancelled() {
		return
	}
	s := &c.said
	if s.known == nil {
		s.known, s.held, s.room, s.paced = make(map[string]bool), make(map[string]string), reportBurst, time.Now()
	}
	key := id
	if id == "" {
		key = fmt.Sprintf("#%d", len(s.known))
	}
	message = cut(message)
	if !s.known[key] {
		if len(s.known) < MaxReports {
			s.known[key], s.last = true, key
			c.options.Report(message, key)
			return
		}
		key = s.last
	}
	if more := int(time.Since(s.paced) / reportPace); more > 0 {
		s.room, s.paced = min(s.room+more, reportBurst), s.paced.Add(time.Duration(more)*reportPace)
	}
	if s.room > 0 {
		s.room--
		delete(s.held, key)
		c.options.Report(message, key)
		return
	}
	s.held[key] = message
	if !s.waiting {
		s.waiting = true
		time.AfterFunc(reportPace, func() { c.loop.add(func() error { c.sayHeld(); return nil }) }) // of an ended call the loop takes nothing
	}
}

// sayHeld says what was held back, unless the call was stopped meanwhile.
func (c *Call) sayHeld() {
	s := &c.said
	s.waiting = false
	if c.phase == finished || c.isCancelled() {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(s.held)) {
		c.options.Report(s.held[key], key)
	}
	clear(s.held)
}
