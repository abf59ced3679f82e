// Package local joins all Belay processes of one user on one machine, without
// a daemon.
//
// # The model
//
// Each Belay process that holds runs is a [Server]: it listens on a unix
// socket, named by its pid, in the user's runtime directory ([Dir]). Whoever
// wants to see or stop something is a [Mesh]: it asks every socket in the
// directory at the same time and joins the answers. A Mesh is a
// [belay.Control], so its users cannot tell it from one process's own tree.
//
// Runs form one tree across processes. A process that Belay starts finds a
// ticket in its environment ([EnvParent]); a Belay that finds one attaches
// itself below the run that the ticket names ([Attach]) and keeps that
// connection open. A Stop of that run, or of one above it, arrives over it.
// A Mesh sends a Stop also directly to every process that holds a part of the
// subtree; both carry the same [belay.StopID], so the second to arrive changes
// nothing.
//
// # The protocol
//
// The server speaks first, one [hello] line; the client checks it and sends
// one request line; the server sends answer lines, the last of which is
// "done". Every line is one JSON object with a bound on its size. A server that has
// nothing to say while a request is open sends a beat, so that a frozen
// process is told from a patient one. wire.go is the whole of it.
//
// # Guarantees
//
//   - The directory is private (0700, owned by this user, no symlink) or it is
//     refused. Both ends check that the other has the same uid.
//   - A socket whose process is dead is removed. Whatever else does not behave
//     (other owner, not a socket, rubbish, silence) costs at most
//     [DefaultTimeout] and becomes one [SocketError]; everything else goes on.
//   - A request that was read is carried out even if the asker goes away:
//     hanging up ends the waiting, never a Stop.
//   - A process that dies during a request is reported as gone, with the runs
//     that it held.
//   - A peer whose process lies inside a run's tree may list, but stop only
//     runs at or below that run (DESIGN 11, 10). A ticket allows attaching
//     below its run and nothing more. It answers no question that a run asks a
//     person, and neither does a process below the program that asks
//     ([Options.Barred]). The same user is not a sandbox: a
//     program that is not inside a run's tree is taken for the user.
//   - Connections, line sizes and the time to send a request are bounded.
//   - Every goroutine belongs to a Server, a Parent or a call; Close waits.
//
// Credentials of peers are checked on Linux and darwin. On other systems the
// privacy of the directory is all there is.
package local
