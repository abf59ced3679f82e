//go:build race

package cli

// busy is how much more time than the promise a build with the race detector
// gets where it is the machine that is measured.
const busy = 3
