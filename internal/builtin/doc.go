// Package builtin is a server of harmless demonstration tools, for a Belay that
// was given nothing to serve: tools that take their time, so that there is
// something to stop.
//
// wait sleeps and heeds a cancel at once. count reports progress and has a
// partial result when it is stopped. stubborn ignores the cancel, so that the
// receipt can only say "signalled" until it ends by itself.
//
// The server is the official SDK's with the stop-ack extension: what wait and
// count say about their end is proof, and a Stop of them is confirmed. The
// tools read and write nothing outside their own memory.
package builtin
