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
// Beside it, under Belay, stands what was said on standard error,
// and what the work and the MCP server wrote down.
func (h *harness) keepRecord(x *acpRun, c acpCell) error {
	s := x.s
	if s.record == nil {
		return nil
	}
	s.record.mu.Lock()
	lines := slices.Clone(s.record.lines)
	s.record.mu.Unlock()
	for _, m := range s.Messages() {
		lines = append(lines, acpLine{m.Time, "< " + m.Raw})
	}
	slices.SortStableFunc(lines, func(a, b acpLine) int { return a.at.Compare(b.at) })
	var out strings.Builder
	how := "without Belay"
	if x.r.belay {
		how = "under Belay"
	}
	fmt.Fprintf(&out, "A session of %s with an editor, ACP version %d: %s. Recorded %s,\n"+
		"by go run ./interop -part acp -record DIR; places and versions are neutral.\n-- lines --\n", s.agent.key, s.version, c.name, how)
	_, version, _ := strings.Cut(s.agent.pin(), " ")
	neutral := strings.NewReplacer(
		s.dir, "/session", executable(), "/usr/bin/tool", h.cache, "/agents", s.model.URL(), "http://127.0.0.1:1",
		`"`+version+`"`, `"0.0.0"`,
	)
	for _, l := range lines {
		out.WriteString(neutral.Replace(l.text) + "\n")
	}
	name := recordName(s.agent.key, s.version, c.name)
	if x.r.belay {
		name = strings.TrimSuffix(name, ".txtar") + "_belay.txtar"
		out.WriteString("-- stderr --\n" + s.stderr.last(maxTail) + "\n-- witness --\n")
		for _, e := range s.witness.Events() {
			fmt.Fprintln(&out, e.Time.Format(time.StampMilli), e.Pid, e.Key, e.Name, e.Detail)
		}
	}
	if err := os.MkdirAll(h.record, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(h.record, name), []byte(out.String()), 0o644)
}

var noLetters = regexp.MustCompile(`[^a-z0-9]+`)

// recordName is the file of a session's transcript.
func recordName(agent string, version int, cell string) string {
	words := noLetters.ReplaceAllString(strings.ToLower(cell), "_")
	return fmt.Sprintf("%s_v%d_%s.txtar", agent, version, strings.Trim(words, "_"))
}
