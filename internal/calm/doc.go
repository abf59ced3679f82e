// Package calm lets a test hold a bound on wall time on a machine that others
// use, too. "Stopped within 300 ms" is a promise about our program; two cores
// on which a compiler, a second package's tests and a hypervisor's other guests
// run may break it for us.
//
// A [Watch] looks at the machine beside the measurement and tells the
// [Weather]: for how long this process wanted to run and was not, and how many
// tasks wanted each core. From that follows what a bound comes to just then
// ([Weather.Allow]). On a calm machine that is the bound itself, so a test that
// fails there fails honestly.
//
//   - [Within] is for what can be measured again: an attempt that keeps the
//     bound proves it; one beyond the bound, but within what the weather allows,
//     proves nothing and is void: the next waits for calm; one beyond that, too,
//     counts against us, and the third of those fails the test.
//   - [Watch.Within] is for what happens once.
//   - [Receive] and [Deadline] are for waiting for an event that must come in
//     time.
//
// None of them is of use within testing/synctest, where time is exact and no
// help is needed; nor for a limit that is there only so that a test ends at all:
// that should simply be long.
package calm
