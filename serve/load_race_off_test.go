//go:build !race

package serve

const loadFactor = 1
