//go:build !race && linux

package memcap

// shadow is how much memory the process takes for each byte of its own.
const shadow = 1
