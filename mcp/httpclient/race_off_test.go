//go:build !race

package httpclient

import "time"

// stressLimit leaves room for other work on the machine; figures are logged.
const stressLimit = 3 * time.Second
