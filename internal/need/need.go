// Package need lets a test say what it needs of the machine. What is missing
// skips the test by name, except where CI is set: there it fails, because CI
// promises that nothing is left out, and `make test` has installed it all.
package need

import (
	"os"
	"os/exec"
	"testing"
)

// CI reports whether this is a run in which nothing may be skipped.
func CI() bool { return os.Getenv("CI") != "" || os.Getenv("BELAY_CI") != "" }

// Commands asks for commands in PATH and returns the path of the first.
func Commands(tb testing.TB, names ...string) string {
	tb.Helper()
	var first string
	for i, name := range names {
		path, err := exec.LookPath(name)
		if err != nil {
			Missing(tb, name+" is not installed; scripts/setup installs it on Debian")
		}
		if i == 0 {
			first = path
		}
	}
	return first
}

// Missing ends the test because of something that the machine does not have
// and that why names, together with how to get it.
func Missing(tb testing.TB, why string) {
	tb.Helper()
	if CI() {
		tb.Fatal("needed here because CI is set: " + why)
	}
	tb.Skip(why)
}
