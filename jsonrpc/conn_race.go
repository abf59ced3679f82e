//go:build race

package jsonrpc

// underRace also tells tests: the race detector makes sync.Pool drop values at
// random, so allocations are only counted without it.
const underRace = true
