//go:build !race

package cli

// busy is 1 in a build without the race detector: the promise itself.
const busy = 1
