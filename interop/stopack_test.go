//go:build unix

package main

import (
	"strings"
	"testing"
)

// TestStopAck runs the rows that need nothing installed, those of the Go SDK;
// make interop runs the TypeScript and Python servers as well. The ack comes when
// the work has ended, not before, and under Belay makes a stop confirmed although
// nobody is killed (DESIGN 11, 5; MCP-G30).
func TestStopAck(t *testing.T) {
	t.Parallel()
	belay, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	h := &harness{belay: belay, dir: t.TempDir()}
	h.stdio.allow = weather(t)
	h.stopAcks("")
	for _, r := range h.stdio.lines {
		if r.failed() {
			t.Error(strings.Join(r.cells(), " | "))
		}
	}
	if len(h.stdio.lines) != 8 {
		t.Errorf("%d rows", len(h.stdio.lines))
	}
}
