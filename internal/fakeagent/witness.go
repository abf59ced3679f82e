package fakeagent

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"
)

// WitnessEnv names the environment variable with the witness file of agents whose
// options name none.
const WitnessEnv = "FAKEAGENT_WITNESS"

// witness appends events to a file; without one it drops them.
type witness struct{ file *os.File }

func newWitness(path string) *witness {
	if path == "" {
		path = os.Getenv(WitnessEnv)
	}
	if path == "" {
		return &witness{}
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		fmt.Fprintln(os.Stderr, "fakeagent: open witness:", err)
		return &witness{}
	}
	return &witness{file: f}
}

// write records one event in one write, so that lines of many processes never mix.
func (w *witness) write(key, name, detail string) {
	if w.file == nil {
		return
	}
	line := fmt.Sprintf("%d %d %s %s", time.Now().UnixNano(), os.Getpid(), word(key), word(name))
	if detail != "" {
		line += " " + strings.ReplaceAll(detail, "\n", " ")
	}
	_, _ = w.file.WriteString(line + "\n")
}

func (w *witness) close() {
	if w.file != nil {
		_ = w.file.Close()
	}
}

func word(s string) string {
	if s == "" {
		return "-"
	}
	return strings.NewReplacer(" ", "_", "\n", "_").Replace(s)
}

func unmarshal(raw json.RawMessage, into any) bool {
	return len(raw) > 0 && json.Unmarshal(raw, into) == nil
}
