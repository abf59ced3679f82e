//go:build race && linux

package memcap

// shadow is how much memory the process takes for each byte of its own: the race
// detector keeps four beside it.
const shadow = 5
