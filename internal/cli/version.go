package cli

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is set by the linker for a release; else the build information says
// what is known.
var version string

// Version is the version of this program: a release's number, else the
// revision it was built from, else "devel".
func Version() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return "devel-" + s.Value[:12]
		}
	}
	return "devel"
}

type versionCmd struct {
	JSON bool `name:"json" help:"Print one JSON object."`
}

// Help implements kong.HelpProvider.
func (*versionCmd) Help() string { return "Example:\n\n    belay version" }

// Run prints one line.
func (c *versionCmd) Run(env *Env) error {
	if c.JSON {
		return json.NewEncoder(env.Stdout).Encode(map[string]string{
			"version": Version(), "os": runtime.GOOS, "arch": runtime.GOARCH, "go": runtime.Version(),
		})
	}
	_, err := fmt.Fprintf(env.Stdout, "belay %s %s/%s %s\n", Version(), runtime.GOOS, runtime.GOARCH, runtime.Version())
	return err
}
