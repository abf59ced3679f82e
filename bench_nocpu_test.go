//go:build !unix

package belay

import "time"

// processorTime is not measured here.
func processorTime() time.Duration { return 0 }
