package proc

import (
	"os"
	"slices"
	"strings"
)

// personal are variables by which a person's own command is known to a server.
// A tool is no person: what it could do with them is what the rule of DESIGN 11,
// 10 is against, and on another machine nobody could tell the two apart.
var personal = []string{"BELAY_TOKEN="}

// Environment is P's own without what belongs to its user's commands, for tools
// that P starts.
func Environment() []string {
	return slices.DeleteFunc(os.Environ(), func(entry string) bool {
		return slices.ContainsFunc(personal, func(name string) bool { return strings.HasPrefix(entry, name) })
	})
}
