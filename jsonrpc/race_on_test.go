//go:build race

package jsonrpc

// The race detector makes sync.Pool drop values at random, so allocations are
// only counted without it.
const raceEnabled = true
