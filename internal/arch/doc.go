// Package arch holds the structure of the module as tests: which package may
// import which ([Table]), that imports only point down, that every package
// says what it is for, that no tracked file names a place on somebody's
// machine. A change that needs a new arrow changes the table first, with the
// reason in its row, and is discussed there.
package arch
