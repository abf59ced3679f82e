// Package memcap bounds the memory of this very process, for programs that run
// other people's code in it and would rather die than take the machine along.
//
// # The model
//
// [Cap] is called once, early. From then on three things hold, each behind the
// one before:
//
//  1. the garbage collector works the harder the nearer the bound is;
//  2. a watch looks at what the runtime has of the system, every few milliseconds
//     from a collection on until none has come for a second: an idle process sleeps;
//     what is over the bound, and still is after a collection, ends the process;
//  3. on Linux the kernel refuses memory beyond the bound and a margin, so that
//     one huge allocation, which is faster than any watch, ends the process too.
//
// A process that ends so says why in its exit code or in its last words on
// stderr. Whoever started it asks [Died].
//
// # What is not bounded
//
// Memory that is not the Go runtime's, where the kernel does not refuse it. A
// process whose code takes memory quicker than the watch looks has more than the
// bound for some milliseconds, at most the margin more on Linux.
package memcap
