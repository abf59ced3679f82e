//go:build race

package httpclient

import "time"

// stressLimit under the race detector, which makes everything slow.
const stressLimit = 20 * time.Second
