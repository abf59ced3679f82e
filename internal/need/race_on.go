//go:build race

package need

import "os"

// BuildFlags are the flags with which a test builds programs of this module: as
// it was built itself, so that all that they import is compiled but once, and
// the race detector watches them, too.
func BuildFlags() []string { return []string{"-race"} }

// Programs under the race detector sleep a second at their end if nobody says
// otherwise, which would count as time that their work went on.
func init() {
	if os.Getenv("GORACE") == "" {
		_ = os.Setenv("GORACE", "atexit_sleep_ms=0")
	}
}
