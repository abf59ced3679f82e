// Package faketool turns any binary into fake tools: MCP servers over stdio
// that listen, are deaf, fork, flood or break their framing on demand, and the
// helper processes that such tools leave behind. Tests of every package, the
// demo and the benchmark use the same fakes.
//
// # How a binary becomes a fake
//
// A test binary calls [MaybeRun] first thing in TestMain; a program calls it
// first thing in main. When the first argument is [Marker] the process becomes
// a fake and never returns. [Command] builds such a command line from the
// running executable. The switch is an argument and not an environment
// variable, because the environment is inherited: a guardian or a Belay that
// is started between the test and the fake would turn into a fake as well, and
// a child started with an empty environment would not.
//
// # The witness
//
// What a fake does it writes into a witness file, one line for each event, in
// one append each (see [Event]). The file is the truth that tests judge by: the
// wire says what a server claims, the witness what it did. The events of the
// tick tool are start, tick i, signal reason (the cancel was read), stopped,
// done; those of the server itself have the key "server": start, initialize,
// eof, sigterm, exit, and violation for everything that a peer must never send.
//
// With -tasks calls become tasks, of either kind; then the key of the tool has the
// event task-cancel as well, and "server" each method that names a task.
//
// # Guarantees
//
// Every fake and every helper ends by itself: the deadline given by -life (at
// most two minutes) is absolute and handed down to all descendants, and a
// respawning pair counts its generations. A failed test leaves nothing that
// lives longer.
//
// The JSON is hand-made on purpose: a fake that cannot break the protocol
// proves nothing about those who must survive it.
//
// For tests there are two tools beside the fakes: [Client], a stdio client that
// sends raw lines and waits for answers, and [Witness], the reader of witness
// files.
package faketool
