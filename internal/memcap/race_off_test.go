//go:build !race

package memcap_test

const shadowed = 1
