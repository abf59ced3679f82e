package node

import (
	"path/filepath"
	"runtime"
)

// EnvStateDir names the directory for what Belay keeps over restarts, instead of
// the user's own.
const EnvStateDir = "BELAY_STATE_DIR"

// StateDir is where Belay keeps what outlives it: $BELAY_STATE_DIR, else "belay"
// in $XDG_STATE_HOME or in the place that the system has for this. It is empty
// for a user without a home, and makes nothing.
func StateDir(getenv func(string) string) string { return stateDir(runtime.GOOS, getenv) }

func stateDir(system string, getenv func(string) string) string {
	if dir := getenv(EnvStateDir); filepath.IsAbs(dir) {
		return dir
	}
	base := ""
	switch home := getenv("HOME"); {
	case system == "windows":
		base = getenv("LocalAppData")
	case system == "darwin" && filepath.IsAbs(home):
		base = filepath.Join(home, "Library", "Application Support")
	case filepath.IsAbs(getenv("XDG_STATE_HOME")):
		base = getenv("XDG_STATE_HOME")
	case filepath.IsAbs(home):
		base = filepath.Join(home, ".local", "state")
	}
	if base == "" {
		return ""
	}
	return filepath.Join(base, "belay")
}

// LedgerPath is where the ledger lies if nobody says otherwise; empty if there
// is no place.
func LedgerPath(getenv func(string) string) string { return inState(getenv, "ledger.db") }

// LatchPath is where the latch is written down if nobody says otherwise.
func LatchPath(getenv func(string) string) string { return inState(getenv, "latch.json") }

func inState(getenv func(string) string, name string) string {
	if dir := StateDir(getenv); dir != "" {
		return filepath.Join(dir, name)
	}
	return ""
}
