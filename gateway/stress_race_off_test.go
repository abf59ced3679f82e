//go:build !race

package gateway

// slower is 1 in a build without the race detector: the promise itself.
const slower = 1
