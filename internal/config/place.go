package config

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/belayhq/belay/auth"
)

// Variables that go before cancellation.enabled (ORC-64), the first that is set
// before the second, which is the one of the family that clients know.
const (
	EnvCancellation     = "BELAY_CANCELLATION_ENABLED"
	EnvToolCancellation = "MCPGATEWAY_TOOL_CANCELLATION_ENABLED"
)

// cancellation is what the environment says about it; known is false if it says
// nothing.
func cancellation(getenv func(string) string) (enabled, known bool, err error) {
	for _, name := range []string{EnvCancellation, EnvToolCancellation} {
		switch value := strings.ToLower(strings.TrimSpace(getenv(name))); value {
		case "":
		case "true", "1", "yes", "on":
			return true, true, nil
		case "false", "0", "no", "off":
			return false, true, nil
		default:
			return false, false, fmt.Errorf("the environment variable %s has to be true or false, not %.32q", name, value)
		}
	}
	return false, false, nil
}

// EnvStateDir names [StateDir] itself.
const EnvStateDir = auth.EnvStateDir

// StateDir is Belay's folder for what outlives a process and is no setting: the
// ledger and the latch. It is $BELAY_STATE_DIR if that is absolute, and empty for
// a user without a home. It makes and checks nothing.
func StateDir(getenv func(string) string) string { return stateDir(runtime.GOOS, getenv) }

// LedgerPath is where the ledger lies if nobody says otherwise; empty if there is
// no place.
func LedgerPath(getenv func(string) string) string { return inState(getenv, "ledger.db") }

// LatchPath is where the latch is written down if nobody says otherwise.
func LatchPath(getenv func(string) string) string { return inState(getenv, "latch.json") }

func inState(getenv func(string) string, name string) string {
	if dir := StateDir(getenv); dir != "" {
		return filepath.Join(dir, name)
	}
	return ""
}

func stateDir(system string, getenv func(string) string) string {
	if dir := getenv(EnvStateDir); filepath.IsAbs(dir) {
		return dir
	}
	if system == "windows" {
		if dir := getenv("LocalAppData"); dir != "" {
			return filepath.Join(dir, "belay")
		}
		return ""
	}
	home := getenv("HOME")
	if system == "darwin" {
		if filepath.IsAbs(home) {
			return filepath.Join(home, "Library", "Application Support", "belay")
		}
		return ""
	}
	if dir := getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "belay")
	}
	if filepath.IsAbs(home) {
		return filepath.Join(home, ".local", "state", "belay")
	}
	return ""
}
