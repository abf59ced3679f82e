// Command interop runs Belay between pinned real peers and prints what
// happened: the official TypeScript, Go and Python SDKs as clients and as
// servers, the reference server, whose long-running tool never stops by itself,
// and four coding agents.
//
//	go run ./interop [-part stdio|http|acp|acpsdk] [-agents NAMES] [-only WORDS] [-jobs N] [-bare] [-under] [-md FILE] [-record DIR] [-v]
//
// # Method
//
// Each row is one session of its own: a client starts a long call, something
// ends it (the client aborts, its time runs out, `belay cancel` in another
// process, a deadline in Belay), and the harness watches the witness: a file
// that the server process itself appends to. Every row is run bare and under
// `belay wrap --enforce strict --grace 500ms`. A row tells how long the work
// went on after the Stop, which processes were left alive, what the client was
// told, and whether its next calls in the same session worked: one at once,
// one after the watching.
//
// Over HTTP the clients go through `belay serve`, in both eras, to servers that
// run on their own and to servers that Belay starts. There a client can also
// vanish: it is killed in the middle of its call. A tap between the client and
// what it talks to notes when the stopped call's POST ended and whether the
// client goes on asking for its stream; Belay's receipt is read when all is
// over. The rows are not the full product of clients, servers and events: see
// pairs.
//
// # Agents
//
// Agents are driven by a raw client that plays the editor; their model is
// internal/fakemodel, on loopback, which is also the only way out that their
// environment names. Each row is a session in a home of its own: a tool of the
// agent works (a shell command, a call of the session's MCP server), something
// stops it (the editor's Stop, in both forms, once or twice; the editor's end;
// signals to Belay, or to the bare agent; the agent's death), and /proc is asked
// for the processes that carry the session's mark. Beside the work live
// processes that no Stop may touch. With CI set, two agents are run: those that
// between them show most defects and are the quickest to install; -agents names
// others. With -record the sessions are kept as transcripts; the tests of
// acp/bridge replay some.
//
// # What fails, and what does not
//
// Bare rows are facts about other people's programs and never fail. A row
// under Belay fails the run when the work went on beyond the ladder's time, a
// process of the stopped call is alive, or the next call in the same session
// did not work. Over HTTP it fails, too, when the POST was left open, the client
// goes on resuming, or the receipt says what cannot be known: a remote server
// whose work nobody saw end is never confirmed. That such a server goes on
// working is a fact about it. With an agent a row under Belay fails when the
// editor was not told `cancelled` in time, exactly once; when a process of the
// stopped tool call lives after 3 s, one of the turn after a second Stop, one of
// the whole tree after the session's end; when the MCP server was not told, an
// innocent process died, the turn has no receipt or a wrong one, or the next
// prompt does not end well.
//
// The peers are installed into .cache/interop from package registries; when one
// cannot be reached, this is said loudly, its rows are named as not run, and
// nothing fails for it.
package main
