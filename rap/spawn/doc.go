// Package spawn starts tool servers of the Reactive Agent Protocol as process trees
// that belong to this program (RAP-95).
//
// # The model
//
// A [Server] is a command. It is started with RAP_EMBEDDED=1 when its first call
// comes, below a guardian (package proc), in a process group of its own. The first
// line that it writes to stdout says where it listens on loopback: {"port": N}. What
// it writes after that goes to the log. When it has ended, the next call starts it
// anew.
//
// # Guarantees
//
//   - One process tree at a time; everybody who wants it meanwhile waits for the one
//     start that is under way.
//   - A command that does not say its port in time is ended, with all that came from it.
//   - The end of the tree is evidence, as package supervise has it: it is seen, and
//     survivors are named.
//   - Close ends the tree, SIGINT, SIGTERM and SIGKILL one after the other, and waits.
//     When the program itself dies the guardian does the same without SIGINT.
package spawn
