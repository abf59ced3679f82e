package cli

import (
	"encoding/json"

	"github.com/belayhq/belay/internal/memcap"
	"github.com/belayhq/belay/script/lint"
)

// scriptCheckCmd is for Belay itself: to check a script is to run its top level, which
// may take the process along. See toolCheckCmd.
type scriptCheckCmd struct {
	Editor bool   `help:"Tools for the editor can be loaded."`
	Dir    string `arg:"" name:"dir" type:"path" help:"A project."`
}

// checkMemory bounds the process that checks one project: as much as a worker has.
const checkMemory = 256 << 20

// Run checks one project and prints the report.
func (c *scriptCheckCmd) Run(env *Env) error {
	stop := memcap.Cap(checkMemory, nil)
	defer stop()
	return json.NewEncoder(env.Stdout).Encode(lint.Project(c.Dir, c.Editor))
}
