//go:build race

package gateway

// slower is how much more time than the promise a build with the race detector
// gets where it is the machine that is measured.
const slower = 5
