package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// acpRecord is what the editor sent in one session; what it received the client
// keeps. nil keeps nothing.
type acpRecord struct {
	mu    sync.Mutex
	lines []acpLine
}

// acpLine is one line of a session.
type acpLine struct {
	at   time.Time
	text string // begins with "> " or "< "
}

func (r *acpRecord) sent(line string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, acpLine{time.Now(), "> " + line})
}

// keepRecord writes the session as a transcript, in the order in which the
// editor saw it. Places and versions are those of no machine; everything else is
// as it was, byte for byte.
func (h *harness) keepRecord(x *acpRun, c acpCell) error {
	s := x.s
	s.record.mu.Lock()
	lines := slices.Clone(s.record.lines)
	s.record.mu.Unlock()
	for _, m := range s.Messages() {
		lines = append(lines, acpLine{m.Time, "< " + m.Raw})
	}
	slices.SortStableFunc(lines, func(a, b acpLine) int { return a.at.Compare(b.at) })
	var out strings.Builder
	fmt.Fprintf(&out, "A session of %s with an editor, ACP version %d: %s. Recorded without Belay,\n"+
		"by go run ./interop -part acp -bare -record DIR; places and versions are neutral.\n-- lines --\n", s.agent.key, s.version, c.name)
	_, version, _ := strings.Cut(s.agent.pin(), " ")
	neutral := strings.NewReplacer(
		s.dir, "/session", executable(), "/usr/bin/tool", h.cache, "/agents", s.model.URL(), "http://127.0.0.1:1",
		`"`+version+`"`, `"0.0.0"`,
	)
	for _, l := range lines {
		out.WriteString(neutral.Replace(l.text) + "\n")
	}
	if err := os.MkdirAll(h.record, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(h.record, recordName(s.agent.key, s.version, c.name)), []byte(out.String()), 0o644)
}

var noLetters = regexp.MustCompile(`[^a-z0-9]+`)

// recordName is the file of a session's transcript.
func recordName(agent string, version int, cell string) string {
	words := noLetters.ReplaceAllString(strings.ToLower(cell), "_")
	return fmt.Sprintf("%s_v%d_%s.txtar", agent, version, strings.Trim(words, "_"))
}
