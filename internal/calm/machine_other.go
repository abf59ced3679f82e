//go:build !linux

package calm

import "time"

// runnable is not known here: only the canary tells.
func runnable() int { return 0 }

// stolen is not known here: only the canary tells.
func stolen() time.Duration { return 0 }
