//go:build !race

package jsonrpc

const underRace = false
