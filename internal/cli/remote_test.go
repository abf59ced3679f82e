//go:build unix

package cli

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestRemote runs every script in testdata/remote: the commands against a real
// "belay serve", and against what it left behind.
func TestRemote(t *testing.T) {
	runScripts(t, "remote", func(e *testscript.Env, _ string) error {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		e.Setenv("SELF", self) // this binary, which is also the fake tools
		e.Setenv("HOME", e.WorkDir)
		e.Setenv("XDG_CONFIG_HOME", e.WorkDir+"/config")
		e.Setenv("BELAY_TOKEN_FILE", "")
		return os.MkdirAll(e.WorkDir+"/config", 0o700)
	}, map[string]func(*testscript.TestScript, bool, []string){
		"served": setServed,
		"later":  askLater,
		"web":    askWeb,
		"signal": sendSignal,
		"begin":  beginSession,
		"code":   runForCode,
		"json":   checkJSON,
		"within": waitFor,
		"runid":  setRunID,
	})
}
