//go:build race

package serve

const loadFactor = 10 // the race detector is that much slower
