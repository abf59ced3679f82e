// Package supervise makes a process tree the stopper of a run: it knows both
// package proc, which ends processes, and package belay, which says what an
// end proves.
//
// # The model
//
// A [Tree] is a proc.Tree with what is known about its command (package
// peers): whether it only relays work to somewhere else, whether it needs time
// to clean up, who in it is to be spared. A [Stopper] is one run's way to stop
// it, or a part of it. Which part is a proc.Selection:
//
//	(a) [Whole]              the whole tree: exec, isolation: call
//	(b) [Except] (from, to)  all but what earlier calls left behind: a shared
//	                         server that has to be forced
//	(c) [Since] (t)          only what was born since, never the leader: the
//	                         children of one call, the server is kept
//
// Whoever owns a run and needs no Stopper of its own uses the methods of
// Tree directly: [Tree.Terminate], [Tree.Kill], [Tree.Plan] take a Selection and
// return evidence; [Tree.Await] watches for an end that comes by itself.
//
// # What is proven
//
//   - Every selected process was seen gone: process_gone, scope local-tree.
//   - The same, and the command, or a process in the tree, is a known relay, or
//     the tree held a connection to a container daemon when it was ended:
//     scope remote, which never confirms (DESIGN 11, 4).
//   - Only processes born since a moment are gone, their server lives: no
//     survivors, and nothing proven; the server may work on.
//   - Somebody is left: survivors, by pid, time of birth and command.
//
// The signs of a relay are collected before each step, since the dead show
// none.
//
// # Restraint
//
// Command lines in evidence are bounded and their secrets replaced
// ([Redact], DESIGN 11, 15). Where a process in the tree is known to clean up
// slowly, ten seconds lie between SIGTERM and SIGKILL (DESIGN 11, 7), unless a
// person pressed again.
//
// All types are safe for concurrent use. The package starts no goroutine.
package supervise
