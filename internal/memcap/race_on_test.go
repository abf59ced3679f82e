//go:build race

package memcap_test

// shadowed is how much more memory a process shows with the race detector.
const shadowed = 5
