// Package agent owns the process tree of an ACP agent: it starts the agent under
// a guardian, knows which process was born during which turn and tool call, and
// ends those that a Stop means.
//
// # The model
//
// The tree of an agent is one process tree (package supervise). In it live, side
// by side, and each is treated in its own way:
//
//	the agent    its process, and those that run a program of its installation
//	             (home.go): never ended by the Stop of a turn
//	behind       MCP servers behind Belay, each under a `belay wrap` of its own:
//	             they are the gateway's, with everything below them
//	kept         what the user's patterns name
//	foreign      everything else: tools, and what tools have left behind
//
// A [Brood] stands for one turn. A foreign process that is seen for the first time
// gets its [origin]: the turns that ran when it was born, and the tool calls that
// were open then. What has a parent of known origin inherits it, so that a server
// which an earlier turn started keeps its workers. An origin is never given twice.
// What lived when the turn began has an origin by then and is no part of it
// (ACP-B10).
//
// # Who is ended
//
// The first Stop of a turn means the processes of those tool calls that were open
// when it was pressed; a second one means the others of the turn too, which until
// then are only named (ACP-B19; DESIGN 11, 8). A process that was born while
// several turns ran is named, and ended only when all of these are stopped. Spare
// rules and other systemd scopes hold as everywhere (DESIGN 11, 7).
//
// # Runs
//
// What a tool call has started becomes a run of kind process below it: one for the
// process that the agent started, together with all that comes from it, and one for
// each that was found without its parent. Such a run can be stopped alone. When
// something above it is stopped it waits for the Brood's word, since when force is
// used is the bridge's decision. It is confirmed when all its processes were seen
// dead, by whatever cause.
//
// # How it is seen
//
// The process table is read while a tool call is open, at most forty times in a
// second and soon once in a second, and at each Stop; births are told by the
// kernel's time, so that a look may come late. In between nothing happens: the death of a
// process wakes who waits for it.
//
// # What is not seen
//
// A process that lives shorter than the pause between two looks gets no run; it is
// dead. One that loses its parent between two looks is told by its birth alone. What
// an agent does inside its own process is no process.
package agent
