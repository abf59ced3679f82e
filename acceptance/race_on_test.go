//go:build race

package acceptance

// raceFlags build belay as the tests were built.
var raceFlags = []string{"-race"}
