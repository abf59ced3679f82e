// Package hook stops work that Belay did not start: a container behind a
// daemon, a job in a queue, a pod. The operator says how, per server or tool,
// and how to see whether the work is still alive (DESIGN 11, 6).
//
// # The model
//
// [Hooks] are up to four actions, each a command or an HTTP request: tell asks
// politely, terminate and kill use force, alive asks whether the work is still
// there. [Hooks.For] makes the [Stop] of one call, whose methods fit the steps
// of a run's ladder.
//
// An action is a template. Its placeholders ({run}, {args.container}, …) are
// filled for each call with values that come, in the end, from a model: they
// are data, wherever they land. A command is never given to a shell, and a
// value is one part of one argument, which it cannot turn into an option; in a
// URL a value is escaped and cannot leave its place in the path; in a JSON body
// it is JSON; in a header it has no line breaks. A value that is missing, or of
// a kind that does not fit, is an error, and the hook is not run.
//
// # Evidence
//
// Only alive is evidence. If it found the work alive after the Stop was pressed
// and later finds it gone, that is [belay.SeenHookGone] with scope
// [belay.ScopeHook], and the verdict is confirmed: as true as the operator's
// check. An alive that never said yes proves nothing by saying no (it may ask
// for a name that never existed), nor does the success of any other hook:
// without alive a stop by hooks is signalled at most.
//
// # Guarantees
//
//   - A command runs as a process tree of its own: at its timeout it is killed,
//     and nothing that it started is left behind, whatever way it ended.
//   - Output and response bodies are read up to a bound; redirects are not
//     followed.
//   - At most 64 actions run at once in a process, of which at most 48 are
//     checks, so that checks that hang do not hold up a kill; others wait.
//   - In observe mode terminate and kill are never run (DESIGN 11, 16).
//   - Logs, errors and evidence name an action by its template, never by what
//     was filled in, which is also taken out of what it prints.
//
// A hook is trusted code of the operator: it runs with Belay's own rights and
// environment.
package hook
