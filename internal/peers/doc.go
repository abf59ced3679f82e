// Package peers holds what Belay knows about other people's programs: which
// commands only relay work to somewhere else, which daemons are not to be
// harmed, which tools need time to clean up, which MCP servers may be
// restarted.
//
// # The model
//
// The facts are data: the YAML files beside this one, with a date and with
// comments that say what each field means. Behaviour is never chosen by a
// peer's version, only by these facts or by what the peer says of itself
// (DESIGN 11, 13). Whatever is not listed gets the safe behaviour: it is no
// relay, it is not spared, it gets the usual times, it is not restarted.
//
// A user overrides them with a file of the same form, peers.yaml in Belay's
// folder of the user's configuration, or the file that BELAY_PEERS names. Its
// entries are looked at before the built-in ones, and may also say relay,
// spare or slow: false.
//
// # Commands behind commands
//
// A command line is seldom the program itself: `npx -y mcp-remote URL`,
// `env A=1 uvx X`, `sh -c 'cd d && exec docker run …'`. Every question about a
// command line is asked about each command that can be seen in it (see
// [Commands]), as far as arguments show that; what a script does inside
// remains unseen.
//
// # Guarantees
//
//   - The built-in facts cost no time: a test writes builtin.go from the data
//     files. Only a file of the user is read and parsed, once.
//   - A file of the user that cannot be used is one error that names the
//     line, the wrong key and the nearest right one; the built-in facts then
//     hold alone. It never stops a run.
//   - Facts is read-only after it was loaded and safe for concurrent use.
package peers
