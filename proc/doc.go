// Package proc starts one tool command and owns everything that comes from it:
// the command itself (the leader), its children, and theirs, wherever they go.
//
// # Model
//
// A [Tree] is one command and all processes that come from it. On Linux and
// darwin three parties take part:
//
//	P  the process that calls [Start] (Belay)
//	G  the guardian: P's own binary executed again, one for each tree
//	L  the leader: the tool command, a child of G
//
// G does almost nothing: it starts L, reaps whatever dies, tells P when L has
// ended and when nothing is left, and sleeps otherwise. The tool's input and
// output are pipes (or files) of P; no byte of them passes through G. P does
// the looking and the killing itself, straight from /proc, so that a stop
// needs no answer from a helper. Only when P dies, seen by G as the end of the
// control socket, does G act: SIGTERM to all at once, SIGKILL half a second
// later, spare rules respected, then it leaves.
//
// A program that uses this package calls [Main] first thing in main (and in
// TestMain): in a guardian it never returns.
//
// # What Linux gives, proven by tests
//
//   - Membership is exact. G is a subreaper, so a process that calls setsid,
//     forks twice, drops its environment or loses its parent stays a
//     descendant of G. No name, group or environment is guessed from.
//   - A kill leaves nothing: cgroup.kill where a cgroup v2 child can be made,
//     then (or instead) a sweep: stop all, look again until nobody new is
//     found, kill all, look again. Processes that restart each other lose.
//   - kill -9 of P leaves nothing behind after one second.
//   - kill -9 of G is noticed at once: P is a subreaper too, gets the orphans,
//     wakes them (SIGCONT) and kills them. [Tree.Err] then says [ErrGuardianLost].
//   - A process is always named by pid and start time, and signalled through
//     a pidfd: a pid that was used again is never hit.
//   - No zombie stays: G reaps all that dies under it.
//
// # Restraint
//
// Some processes that a tool starts are not the tool's: a tmux server, the
// browser window of the user, a daemon that moved to its own systemd scope.
// They are spared, with their descendants, and listed with the reason
// ([SpareRule], [Report.Spared]). What was left by an earlier call, or belongs
// to the server rather than to one call, is told apart by birth ([Selection]).
// The leader is never spared by rule or birth, only left out by a Selection.
// Spared processes stay under G until they end or P does; G then leaves them.
//
// # What is not covered
//
// Work handed to somebody else (a container daemon, systemd, a remote host)
// is no descendant; [Tree.HeldDaemon] and [Tree.RemoteConns] name the signs. A
// process that gained other credentials (sudo) may refuse the signal and is
// then listed as a survivor. A program that uses this package becomes a
// subreaper at the first Start; children that it starts by other means should
// stay in its own process group, as os/exec does by default, so that the loss
// of a guardian cannot confuse them with orphans. When a guardian is lost, a
// process that sits in P's own group (Config.Foreground), has left the marker
// and is in no cgroup cannot be told from P's own children and is left alone.
//
// On darwin there is no subreaper and no pidfd: the group, the known
// descendants and their groups are swept, and a process that leaves them all
// between two looks escapes. On Windows a job object holds the tree and is
// closed with P; SIGTERM becomes CTRL_BREAK. Neither is proven by tests:
// [Proven] and [Guarantees] say so.
package proc
